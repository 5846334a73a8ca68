"""Label, macro and thumbnail images by their names in files, in the terms of various vendors, programs and languages.

Only names count: a line or field of few words, or the value of a field that holds a name. A word somewhere in a longer
text says nothing, since titles and notes are free text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from pipeline.slides.common.series import SideImage

_WORDS: dict[SideImage, str] = {
    "label": (
        "label labels labelimage slidelabel barcode barcodes qr qrcode etikett etikette objektträgeretikett "
        "étiquette etiquette etiqueta rótulo etichetta etiket etykieta этикетка метка штрихкод "
        "ラベル バーコード 标签 標籤 条码 條碼 라벨"
    ),
    "macro": (
        "macro macroimage makro overview overviewimage übersicht uebersicht übersichtsbild uebersichtsbild localizer "
        "localiser navigation navigator navmap slidepreview slideoverview prescan macrophoto обзор макро マクロ "
        "全体像 宏观 宏观图 概览 總覽 매크로"
    ),
    "thumbnail": (
        "thumbnail thumbnails thumbnailimage thumb preview previewimage vorschau vorschaubild miniatur miniature "
        "miniatura aperçu apercu anteprima podgląd voorbeeld previsualización previsualizacion icon миниатюра "
        "サムネイル プレビュー 缩略图 縮圖 预览 预览图 預覽 썸네일 미리보기"
    ),
}  # fmt: skip
_NOT_IN_TITLES = {"thumb"}
"""Words with another meaning in a longer name, "thumb, left": they count only by themselves."""
_KINDS: dict[str, SideImage] = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_ORDER: tuple[SideImage, ...] = ("label", "macro", "thumbnail")
_MAX_WORDS = 4
_IMAGE_WORDS = {"image", "picture", "photo", "slide", "bild", "imagen", "immagine"}
_NAME_KEYS = {
    "image", "imagekind", "imagename", "imagetype", "kind", "name", "page", "pagename", "role", "series", "seriesname",
    "type",
}  # fmt: skip
_FILE_NAME = re.compile(r"\S*\.[A-Za-z][A-Za-z0-9]{1,7}(?=[\s\]\)#:,;]|$)")
_END = re.compile(r"(?:\[([^\[\]]{1,60})\]|\s[-\u2013\u2014]\s+([^-\u2013\u2014\[\]]{1,60}))\s*(?:#\d+)?\s*$")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def kind_by_name(name: str) -> SideImage | None:
    """Kind of image that a name states: "Label Image", "slide_macro", "a.svs [thumbnail]"; None for all others."""
    rest = _FILE_NAME.sub(" ", name[:2000])
    words = _words(rest)
    if len(words) > _MAX_WORDS:
        return _kind_at_end(name)
    return _first_kind(words) or _first_kind(_words(_CAMEL.sub(" ", rest)))


def _kind_at_end(name: str) -> SideImage | None:
    """Kind of image that follows a title of any length: "… left.svs [label image]", "… left - macro image"."""
    end = _END.search(name[-200:])
    words = _words(end.group(1) or end.group(2)) if end else []
    return _first_kind(words) if all(word in _KINDS or word in _IMAGE_WORDS for word in words) else None


def kind_by_description(text: str) -> SideImage | None:
    """Kind of image that a page's description states, in several lines and fields or in XML or JSON."""
    kinds = {kind for field in _fields(text[:20_000]) for kind in [_kind_of_field(field)] if kind}
    return next((kind for kind in _ORDER if kind in kinds), None)


def says_only_kind(text: str) -> bool:
    """Whether a description is nothing but the name of a kind of image: "Macro image", not "Liver, macro"."""
    return all(word in _KINDS or word in _IMAGE_WORDS for word in _words(text[:20_000]))


def _fields(text: str) -> Iterator[str]:
    if text.lstrip().startswith("<"):
        for match in re.finditer(r"<ImageType>([^<]{1,100})</ImageType>", text):
            yield f"type={match.group(1)}"
        return
    for field in re.split(r"[\r\n|;,{}]", text):
        yield field.strip()


def _kind_of_field(field: str) -> SideImage | None:
    as_by_philips = re.match(r"\s*(\w+)\s+-\w", field)  # "Macro -offset=(0,0) -pixelspacing=…"
    if as_by_philips:
        return _first_kind(_words(as_by_philips.group(1)))
    key, sign, value = re.sub(r"[\"']", "", field).partition("=" if "=" in field else ":")
    if not sign:
        return kind_by_name(field)
    return kind_by_name(value) if "".join(_words(key)) in _NAME_KEYS else None


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", unicodedata.normalize("NFKC", text).casefold())


def _first_kind(words: list[str]) -> SideImage | None:
    others = set(words) - _KINDS.keys() - _IMAGE_WORDS
    kinds = {_KINDS[word] for word in words if word in _KINDS and not (others and word in _NOT_IN_TITLES)}
    return next((kind for kind in _ORDER if kind in kinds), None)
