"""The slide among the images of a TIFF: its levels, its associated images, and whether it is one plane."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree

import tifffile

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.pyramid import is_reduced_copy, looks_reduced
from pipeline.slides.common.series import choose_series
from pipeline.slides.common.side_images import says_only_kind
from pipeline.slides.tiff.images import TiffImage, images_in, page_kind, unlisted_pages
from pipeline.slides.tiff.library import Series, TiffStructure, size_of
from pipeline.slides.tiff.metadata import page_mpp, philips_images
from pipeline.slides.tiff.planes import level_source
from pipeline.slides.tiff.validate import check_sizes, has_plain_sizes, is_grey, is_rgb, tile_bytes
from training.foundation.errors import GemslideError, UnreadableError

_SIDE_IMAGES = ("thumbnail", "label", "macro")


@dataclass(frozen=True)
class PageChecks:
    """A reader's checks of pages, which tell the slide from the rest."""

    check: Callable[[tifffile.TiffPage], None]
    """Raises if anything is wrong with a page that will be level 0."""
    is_another_image: Callable[[tifffile.TiffPage, tifffile.TiffPage], bool | None]
    """Whether a page shows something other than a finer one of its proportions; None if nothing in them tells."""


def choose_image(
    tiff: TiffStructure, name: str, series: str | None, checks: PageChecks
) -> tuple[TiffImage, list[TiffImage]]:
    """The image that is the slide (`series.py`), and all images of the file.

    Args:
        series: the one that the user chose; None if none was chosen.

    Raises:
        UnreadableError: there is no page, no image but label or macro, or the image is in other files too.
        NotBrightfieldRgbError: fluorescence, or a stack.
        AmbiguousSeriesError: several may be the slide, or none has that number.
    """
    if tiff.is_of("lsm"):
        raise NotBrightfieldRgbError(f"{name}: is of a confocal microscope (Zeiss LSM); only brightfield is read.")
    if not tiff.num_pages:
        raise UnreadableError(f"{name}: no image in it. The file is damaged or cut short; copy it again.")
    _check_one_file(tiff, name)
    images = images_in(tiff)
    if not images:
        raise UnreadableError(f"{name}: no image in it, only masks of one. Export the slide itself.")
    if called := _slide_called_a_side_image(tiff, images, checks, name):
        tiff.ignore_name_of(called.page)
        images = images_in(tiff)
    slides = [image for image in images if image.kind is None]
    if series is None and slides:
        # A fluorescence stack is refused for what it is, not for the number of its pages.
        _check_image(tiff, max(slides, key=lambda image: image.candidate.num_px), name, checks)
    images = [part for image in images for part in _split_by_content(tiff, image, checks)]
    chosen = choose_series([image.candidate for image in images], series, name)
    if chosen.kind:
        # The user says that it is the slide despite its name; its levels are found by shape, as for any other.
        tiff.ignore_name_of(next(image.page for image in images if image.series == chosen.series))
        images = [part for image in images_in(tiff) for part in _split_by_content(tiff, image, checks)]
    image = next(image for image in images if image.series == chosen.series)
    _check_image(tiff, image, name, checks)
    return image, images


def _slide_called_a_side_image(
    tiff: TiffStructure, images: Sequence[TiffImage], checks: PageChecks, name: str
) -> TiffImage | None:
    """The image of which the largest one without a name is a reduced copy; or if all have names, the only one with
    levels, so that its name is only free text, such as "Liver, macro". None, as a rule.

    Raises:
        UnreadableError: it is called a label, which must never be shown as the slide.
    """
    unnamed = [image for image in images if image.kind is None]
    if not unnamed:
        return _only_pyramid(tiff, images)
    largest = max(unnamed, key=lambda image: image.candidate.num_px)
    for image in sorted(images, key=lambda image: -image.candidate.num_px):
        if image.kind and _shows_same(largest.page, image.page, checks):
            if image.kind == "label":
                raise UnreadableError(
                    f"{name}: calls its largest image ({image.candidate}) a label, but the next one "
                    f"({largest.candidate}) is a reduced copy of it. Export the slide alone."
                )
            return image
    return None


def _only_pyramid(tiff: TiffStructure, images: Sequence[TiffImage]) -> TiffImage | None:
    pyramids = [image for image in images if image.reduced and image.kind != "label"]
    if len(pyramids) != 1 or tiff.is_of("ome") or says_only_kind(tiff.description_of(pyramids[0].page)):
        return None
    return pyramids[0]


def _shows_same(page: tifffile.TiffPage, larger: tifffile.TiffPage, checks: PageChecks) -> bool:
    """Whether a page is a reduced copy of a larger one, by shape and content; not if either cannot be read."""
    return looks_reduced(size_of(page), size_of(larger)) and _is_alike(page, larger, checks) is True


def _split_by_content(tiff: TiffStructure, image: TiffImage, checks: PageChecks) -> list[TiffImage]:
    """An image without the pages that only have its proportions, and those as images of their own.

    Pages that the file itself puts below the image are not other slides, but are still left out as levels.
    """
    if image.copy_of:
        shown = (_is_copy(image.page, page, checks) for page in image.copy_of)
        return [] if any(shown) else [replace(image, copy_of=())]
    if image.kind is not None or not image.reduced:
        return [image]
    try:
        checks.check(image.page)
    except GemslideError:  # raised again if this image is chosen
        return [image]
    levels = level_pages(tiff, image)
    in_strips = [page for page in image.reduced if not page.is_tiled and page_kind(tiff, page) is None]
    alike = [levels[0]]
    unlike_levels: list[tifffile.TiffPage] = []
    for page in levels[1:]:
        (unlike_levels if checks.is_another_image(page, alike[-1]) else alike).append(page)
    others = [page for page in in_strips if not _is_copy_of_any(page, alike, checks)] + unlike_levels
    if not others:
        return [image]
    reduced = tuple(page for page in image.reduced if page not in others)
    unlike = tuple(page for page in others if page.is_tiled)
    return [replace(image, reduced=reduced, unlike=unlike), *_images_apart(tiff, others)]


def _is_copy_of_any(page: tifffile.TiffPage, levels: Sequence[tifffile.TiffPage], checks: PageChecks) -> bool:
    """Whether a page shows the same as the next finer level, which takes less time to compare, or as the finest.

    Args:
        levels: finest first.
    """
    larger = [level for level in levels[1:] if level.imagewidth > page.imagewidth]
    if larger and _is_alike(page, larger[-1], checks, if_nothing_tells=False):
        return True
    return _is_copy(page, levels[0], checks)


def _images_apart(tiff: TiffStructure, pages: Sequence[tifffile.TiffPage]) -> Iterator[TiffImage]:
    """Those of the pages that stand in the chain, not below another page, as images of their own."""
    offsets = {page.offset for page in pages}
    for number, page in unlisted_pages(tiff) if tiff.is_of("ome") else enumerate(tiff.pages()):
        if page.offset in offsets:
            yield TiffImage(number, page, mpp_xy=page_mpp(tiff, page, 0))


def _is_copy(page: tifffile.TiffPage, finer: tifffile.TiffPage, checks: PageChecks) -> bool:
    """Whether a page shows the same as a finer one; also if it cannot be read, as it is not a slide then."""
    return _is_alike(page, finer, checks) is not False


def _is_alike(
    page: tifffile.TiffPage, finer: tifffile.TiffPage, checks: PageChecks, *, if_nothing_tells: bool = True
) -> bool | None:
    """Whether a page shows the same as a finer one; None if either cannot be read."""
    try:
        checks.check(page)
        checks.check(finer)
        is_another = checks.is_another_image(page, finer)
        return if_nothing_tells if is_another is None else not is_another
    except (GemslideError, DamagedFileError):
        return None


def _check_image(tiff: TiffStructure, image: TiffImage, name: str, checks: PageChecks) -> None:
    tiff.use_page(image.page, image.number)
    check_sizes(image.page, name)
    checks.check(image.page)
    check_one_plane(tiff, image, name)


def level_pages(tiff: TiffStructure, image: TiffImage) -> list[tifffile.TiffPage]:
    """The pages of an image by decreasing size, whatever their order in the file.

    Pages of another shape or kind, and those that say they are a label, are not levels.
    """
    levels = [image.page]
    if not image.page.is_tiled:
        return levels
    tiled = (page for page in image.reduced if _is_level_of(page, image.page) and page_kind(tiff, page) is None)
    for page in sorted(tiled, key=lambda page: page.imagewidth, reverse=True):
        if page.imagewidth < levels[-1].imagewidth:
            levels.append(page)
    return levels


def level_sizes_wh(path: Path) -> list[tuple[int, int]]:
    """Sizes of the slide's levels in a TIFF that another library decodes, finest first.

    Raises:
        UnreadableError, AmbiguousSeriesError: no slide in it, or several. NotBrightfieldRgbError: a stack.
    """
    try:
        with TiffStructure(path) as tiff:
            image, _ = choose_image(tiff, path.name, None, PageChecks(lambda page: None, lambda page, finer: False))
            pages = [image.page, *(page for page in image.reduced if page_kind(tiff, page) is None)]
            return [size_of(page) for page in pages]
    except DamagedFileError as error:
        raise UnreadableError(f"{path.name}: its tags cannot be read ({error}). Copy the file again.") from error


def _is_level_of(page: tifffile.TiffPage, first: tifffile.TiffPage) -> bool:
    if not has_plain_sizes(page) or not (is_rgb(page) or (is_grey(page) and is_grey(first))):
        return False
    if not page.is_tiled or not 0 < tile_bytes(page) <= MAX_TILE_BYTES:
        return False
    return is_reduced_copy((page.imagewidth, page.imagelength), (first.imagewidth, first.imagelength))


def _check_one_file(tiff: TiffStructure, name: str) -> None:
    """Refuse one of several OME-TIFF files: tifffile would open the others, and show black where one is missing."""
    if not tiff.ome_xml:
        return
    try:
        root = ElementTree.fromstring(tiff.ome_xml)
    except (ElementTree.ParseError, ValueError) as error:
        raise UnreadableError(f"{name}: its OME-XML is damaged ({error}). Copy the file again.") from error
    parts = {(part.text or "").strip() for part in root.iterfind(".//{*}TiffData/{*}UUID")}
    own = root.attrib.get("UUID")
    if root.find("{*}BinaryOnly") is not None or len(parts | {own or part for part in parts}) > 1:
        raise UnreadableError(
            f"{name}: is one of {max(2, len(parts))} files of an OME-TIFF. Export the slide as one file."
        )


def check_one_plane(tiff: TiffStructure, image: TiffImage, name: str) -> None:
    """Check that an image is one plane, in formats that put several into one image.

    Raises:
        NotBrightfieldRgbError: several planes: focal planes, times or channels.
        UnreadableError: several scans in one Philips file.
    """
    if tiff.is_of("philips") and (scanned := len(philips_images(tiff, "WSI"))) != 1:
        raise UnreadableError(f"{name}: holds {scanned} scans in one Philips file. Export them one by one.")
    page = image.page
    series = _series_of(tiff, image)
    if series is None:
        return
    planes = math.prod(series.shape) // max(1, page.imagewidth * page.imagelength * page.samplesperpixel)
    if planes > max(1, len(level_source(tiff, page, name).planes)):
        raise NotBrightfieldRgbError(
            f"{name}: holds {planes} images of {page.imagewidth}×{page.imagelength} px in one stack (axes "
            f"{series.axes}): focal planes, times or channels. Export one of them."
        )


def _series_of(tiff: TiffStructure, image: TiffImage) -> Series | None:
    """The series that tells the number of an image's planes; None if none does.

    tifffile and MetaMorph write all planes behind one page: no other page tells of them.
    """
    if image.below is not None:
        return None
    if tiff.is_of("ome", "qpi", "imagej", "lsm"):
        number = image.number if tiff.is_of("ome") else 0
        return tiff.series[number] if number < len(tiff.series) else None  # a page that the XML does not mention
    if not tiff.is_of("shaped", "stk"):
        return None
    return next((one for one in tiff.series if one.offsets == {image.page.offset}), None)


def describe_stack(tiff: TiffStructure) -> str:
    """Clause on a file that is not RGB: its first series' axes, if its format names them; else ""."""
    if not tiff.is_of("ome", "qpi", "imagej", "lsm"):
        return ""
    series = tiff.series[0]
    return f", first of a stack with axes {series.axes} ({'×'.join(map(str, series.shape))}), as fluorescence is stored"


def associated_sources(tiff: TiffStructure, images: Sequence[TiffImage]) -> dict[str, tifffile.TiffPage | bytes]:
    """Label, macro and thumbnail by name: a page, or a JPEG stream from Philips's XML."""
    sources: dict[str, tifffile.TiffPage | bytes] = {}
    for image in images:
        if image.kind:
            sources.setdefault(image.kind, image.page)
        elif tiff.is_of("svs", "qpi"):
            for page in image.reduced:
                if not page.is_tiled:
                    sources.setdefault("thumbnail", page)
    if tiff.is_of("philips"):
        for kind, name in (("LABELIMAGE", "label"), ("MACROIMAGE", "macro")):
            streams = [stream for stream in philips_images(tiff, kind) if stream]
            if streams:
                sources.setdefault(name, streams[0])
    return {name: sources[name] for name in _SIDE_IMAGES if name in sources}
