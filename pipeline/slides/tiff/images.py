"""The images of a TIFF: groups of pages that show the same at several sizes, and the kind that the file gives each.

Nothing is inferred from the order of the pages: a thumbnail or label may come first, and levels in any order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tifffile

from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.mpp import MppXy
from pipeline.slides.common.pyramid import is_reduced_copy, looks_reduced
from pipeline.slides.common.series import MAX_SIDE_SHARE, Candidate, SideImage
from pipeline.slides.common.side_images import kind_by_description, kind_by_name
from pipeline.slides.tiff.library import TiffStructure, size_of
from pipeline.slides.tiff.metadata import page_mpp

_NEW_SUBFILE_TYPE, _PAGE_NAME = 254, 285
_APERIO_KINDS: dict[object, SideImage] = {1: "label", 9: "macro"}
"""By NewSubfileType, for pages in strips."""
_APERIO_THUMBNAIL = re.compile(r"\d+x\d+ -> \d+x\d+ - ")
_IS_MASK = 4
"""Bit of NewSubfileType."""


@dataclass(frozen=True)
class TiffImage:
    """One image: its finest page and the pages that may be its levels."""

    number: int
    """Number of its page in the chain; in an OME-TIFF, of the image in its XML."""
    page: tifffile.TiffPage
    """The finest page."""
    reduced: tuple[tifffile.TiffPage, ...] = ()
    """Pages that the file puts below this one, or that have its proportions at a smaller size."""
    kind: SideImage | None = None
    mpp_xy: MppXy | None = None
    below: int | None = None
    """Number of an image below that page that is not a level of it; None for others."""
    copy_of: tuple[tifffile.TiffPage, ...] = ()
    """Pages of which it may be a reduced copy, by its shape: it is an image of its own if it shows none of them."""
    unlike: tuple[tifffile.TiffPage, ...] = ()
    """Tiled pages of its proportions that show something else, and so are left out as levels."""

    @property
    def series(self) -> str:
        """Value of `--series` for it."""
        return str(self.number) if self.below is None else f"{self.number}/{self.below}"

    @property
    def candidate(self) -> Candidate:
        mpp = sum(self.mpp_xy) / 2 if self.mpp_xy else None
        return Candidate(self.series, self.page.imagewidth, self.page.imagelength, mpp, self.kind)


def images_in(tiff: TiffStructure) -> list[TiffImage]:
    """All images, in the file's order.

    Raises:
        DamagedFileError: a page's size is not a number. It could be the slide, and its levels must not take its place.
    """
    if tiff.is_of("ome"):
        return _ome_images(tiff)
    pages = [(number, _sized(page)) for number, page in enumerate(tiff.pages()) if not _is_mask(tiff, page)]
    images = _philips_images(tiff, pages) if tiff.is_of("philips") else _chain_images(tiff, pages)
    return sorted(images, key=lambda image: (image.number, -1 if image.below is None else image.below))


def page_kind(tiff: TiffStructure, page: tifffile.TiffPage, title: str = "") -> SideImage | None:
    """Kind of image by a page's texts, or by Aperio's rules.

    Args:
        title: the image's name in OME-XML.
    """
    if tiff.ignores_name_of(page):
        return None
    if by_title := kind_by_name(title):
        return by_title
    description = tiff.description_of(page)
    if not page.is_tiled and tiff.is_of("svs"):
        by_type = _APERIO_KINDS.get(tiff.tag(_NEW_SUBFILE_TYPE, page))
        if by_type or _APERIO_THUMBNAIL.search(description):
            return by_type or "thumbnail"
    name = tiff.tag(_PAGE_NAME, page)
    by_name = kind_by_name(name) if isinstance(name, str) else None
    return by_name or kind_by_description(description)


def _sized(page: tifffile.TiffPage) -> tifffile.TiffPage:
    sizes = (page.imagewidth, page.imagelength, page.tilewidth, page.tilelength)
    if not all(isinstance(size, int) for size in sizes):
        raise DamagedFileError(f"a size of page {page.index} is not a number but {type(page.imagewidth).__name__}")
    return page


def _num_px(page: tifffile.TiffPage) -> int:
    return int(page.imagewidth * page.imagelength)


def _is_mask(tiff: TiffStructure, page: tifffile.TiffPage) -> bool:
    kind = tiff.tag(_NEW_SUBFILE_TYPE, page)
    return isinstance(kind, int) and bool(kind & _IS_MASK)


def _ome_images(tiff: TiffStructure) -> list[TiffImage]:
    """The images of the XML, then pages that it does not mention: a slide among them must not go unnoticed."""
    images: list[TiffImage] = []
    for number, series in enumerate(tiff.series):
        kind = page_kind(tiff, series.keyframe, series.name)
        below = [_sized(level) for level in series.levels if level.offset != series.keyframe.offset]
        images += _images_of_page(tiff, number, _sized(series.keyframe), below, kind, number)
    levels: dict[str, list[tifffile.TiffPage]] = {}
    rest: list[tuple[int, tifffile.TiffPage]] = []
    for number, page in unlisted_pages(tiff):
        owners = [] if page_kind(tiff, page) else [image for image in images if _is_exact_copy(page, image)]
        if len(owners) == 1:
            levels.setdefault(owners[0].series, []).append(page)
        else:
            rest.append((number, page))
    own = [replace(image, reduced=(*image.reduced, *levels.get(image.series, ()))) for image in images]
    others = _chain_images(tiff, rest)
    return own + [_perhaps_copy(one, [image for image in own if _may_be_copy(one, image)]) for one in others]


def unlisted_pages(tiff: TiffStructure) -> list[tuple[int, tifffile.TiffPage]]:
    """Pages that OME-XML does not mention, each with its number behind those of the XML's images.

    Programs that build a pyramid often leave the XML as it was, so that they may be levels.
    """
    listed = {offset for series in tiff.series for offset in series.offsets}
    pages = [page for page in tiff.pages() if page.offset not in listed and not _is_mask(tiff, page)]
    return [(len(tiff.series) + k, _sized(page)) for k, page in enumerate(pages)]


def _is_exact_copy(page: tifffile.TiffPage, image: TiffImage) -> bool:
    return image.kind is None and bool(page.is_tiled) and is_reduced_copy(size_of(page), size_of(image.page))


def _images_of_page(
    tiff: TiffStructure,
    number: int,
    page: tifffile.TiffPage,
    below: Sequence[tifffile.TiffPage],
    kind: SideImage | None,
    ome_image: int,
) -> list[TiffImage]:
    """A page with the pages below it: one image at several sizes, unless one of them is another image.

    Args:
        kind: what the page is called; it applies to all of them.
    """
    kinds = [kind, *(kind or page_kind(tiff, sub) for sub in below)]
    entries = list(zip((None, *range(len(below))), (page, *below), kinds, strict=True))
    unnamed = [part for _, part, own in entries if own is None]
    finest = max(unnamed or (page, *below), key=_num_px)
    if not unnamed:
        copies = tuple(part for part in (page, *below) if part is not finest and _looks_reduced(part, finest))
        return [TiffImage(number, finest, copies, kind)]
    reduced = [part for part in unnamed if part is not finest and _looks_reduced(part, finest)]
    images = []
    for position, part, own in entries:
        if own is None and part not in reduced:
            is_finest = part is finest
            at = None if is_finest and (page is finest or page in reduced) else position
            mpp_xy = page_mpp(tiff, part, ome_image)
            images.append(TiffImage(number, part, tuple(reduced) if is_finest else (), None, mpp_xy, at))
        elif own is not None:
            images.append(TiffImage(number, part, kind=own, below=position))
    return images


def _philips_images(tiff: TiffStructure, pages: Sequence[tuple[int, tifffile.TiffPage]]) -> list[TiffImage]:
    """Images of a Philips file. Lower levels are padded to whole tiles, so shapes say nothing; the XML counts scans.

    tifffile removes the padding from the sizes of its series' levels.
    """
    named = [(number, page, page_kind(tiff, page)) for number, page in pages]
    beside = [TiffImage(number, page, kind=kind) for number, page, kind in named if kind]
    scan = [(number, page) for number, page, kind in named if not kind]
    if not scan:
        return beside
    number, finest = max(scan, key=lambda entry: _num_px(entry[1]))
    levels = tuple(map(_sized, tiff.series[0].levels))
    reduced = (*levels, *(page for _, page in scan if page is not finest))
    return [TiffImage(number, finest, reduced, None, page_mpp(tiff, finest, 0)), *beside]


def _chain_images(tiff: TiffStructure, pages: Sequence[tuple[int, tifffile.TiffPage]]) -> list[TiffImage]:
    """Largest first, every page is a reduced copy of an image before it, or an image of its own.

    A page with pages below it (SubIFDs) has its own levels, and is not a reduced copy of anything large. One that could
    be a copy of several images, or is not exact enough, is a level of none: levels can be built, and those of another
    slide must not be shown.
    """
    images: list[TiffImage] = []
    doubtful: list[TiffImage] = []
    copies: dict[str, list[tifffile.TiffPage]] = {}
    parts = [
        part
        for number, page in pages
        for part in _images_of_page(tiff, number, page, _sub_pages(tiff, page), page_kind(tiff, page), number)
    ]
    for part in sorted(parts, key=lambda part: _num_px(part.page), reverse=True):
        owners = [] if part.kind else [one for one in images if _may_be_copy(part, one)]
        if len(owners) == 1 and is_reduced_copy(size_of(part.page), size_of(owners[0].page)):
            copies.setdefault(owners[0].series, []).append(part.page)
        elif owners:
            doubtful.append(_perhaps_copy(part, owners))
        else:
            images.append(part)
    # The file's own statement of what is below an image takes precedence over shapes.
    own = [replace(image, reduced=image.reduced or tuple(copies.get(image.series, ()))) for image in images]
    return own + doubtful


def _perhaps_copy(part: TiffImage, owners: Sequence[TiffImage]) -> TiffImage:
    return replace(part, copy_of=(*part.copy_of, *(one.page for one in owners)))


def _sub_pages(tiff: TiffStructure, page: tifffile.TiffPage) -> list[tifffile.TiffPage]:
    return [_sized(sub) for sub in tiff.sub_pages(page) if not _is_mask(tiff, sub)]


def _may_be_copy(part: TiffImage, image: TiffImage) -> bool:
    if image.kind or (part.reduced and _num_px(part.page) > MAX_SIDE_SHARE * _num_px(image.page)):
        return False
    return _looks_reduced(part.page, image.page)


def _looks_reduced(page: tifffile.TiffPage, finest: tifffile.TiffPage) -> bool:
    tile_wh = (page.tilewidth, page.tilelength) if page.is_tiled else None
    return looks_reduced(size_of(page), size_of(finest), tile_wh)
