"""Which pages of a TIFF are the slide's levels, which its label and macro image; and whether it is one image."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import tifffile

from pipeline.errors import NotBrightfieldRgbError, UnreadableError
from pipeline.slides.limits import MAX_TILE_BYTES
from pipeline.slides.pyramid import is_reduced_copy
from pipeline.slides.tiff.library import Series, TiffStructure
from pipeline.slides.tiff.metadata import philips_images
from pipeline.slides.tiff.validate import PLANAR_CONTIG, check_sizes, has_plain_sizes, is_rgb, tile_bytes

_ASSOCIATED = {"thumbnail": "thumbnail", "label": "label", "macro": "macro", "overview": "macro"}
_MAX_SIDE_IMAGE_SHARE = 1 / 16
"""An image beside the slide that is neither named nor smaller than this is another slide."""


def level_pages(tiff: TiffStructure, name: str) -> list[tifffile.TiffPage]:
    """Pages that are one image at falling size. Pages of another shape or kind are not levels.

    Raises:
        UnreadableError: there is no page, or the image lies in other files too.
    """
    if not tiff.num_pages:
        raise UnreadableError(f"{name}: no image in it. The file is damaged or cut short; copy it again.")
    first = tiff.first
    check_sizes(first, name)
    _check_one_file(tiff, name)
    if not first.is_tiled:
        return [first]
    # Of a Philips file this also takes the padding off the lower levels' sizes: they are filled up to whole tiles.
    candidates = [*tiff.series[0].levels]
    if not tiff.is_of("ome"):
        # In an SVS tifffile takes the second page for the thumbnail, also where it is the first reduced level; in other
        # files it ends a series at the first page out of order.
        candidates += tiff.pages()
    levels = [first]
    tiled = (page for page in candidates if _is_level_of(page, first))
    for page in sorted(tiled, key=lambda page: page.imagewidth, reverse=True):
        if page.imagewidth < levels[-1].imagewidth:
            levels.append(page)
    return levels


def _is_level_of(page: tifffile.TiffPage, first: tifffile.TiffPage) -> bool:
    if not has_plain_sizes(page) or not is_rgb(page) or page.planarconfig != PLANAR_CONTIG:
        return False
    if not page.is_tiled or not 0 < tile_bytes(page) <= MAX_TILE_BYTES:
        return False
    return is_reduced_copy((page.imagewidth, page.imagelength), (first.imagewidth, first.imagelength))


def _check_one_file(tiff: TiffStructure, name: str) -> None:
    """An OME-TIFF may be one of several files; tifffile would open the others, and show black where one is missing."""
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


def check_one_image(tiff: TiffStructure, name: str) -> None:
    """Whether the first series is one plane, and no other series a slide of its own.

    Raises:
        NotBrightfieldRgbError: several planes: focal planes, times or channels.
        UnreadableError: several slides.
    """
    first, series = tiff.first, tiff.series
    planes = math.prod(series[0].shape) // max(1, first.imagewidth * first.imagelength * first.samplesperpixel)
    if planes > 1:
        raise NotBrightfieldRgbError(
            f"{name}: holds {planes} images of {first.imagewidth}×{first.imagelength} px in one stack (axes "
            f"{series[0].axes}): focal planes, times or channels. Export one of them."
        )
    if tiff.is_of("philips") and (scanned := len(philips_images(tiff, "WSI"))) != 1:
        raise UnreadableError(f"{name}: holds {scanned} scans in one Philips file. Export them one by one.")
    if not tiff.is_of("ome"):
        return
    for other in series[1:]:
        share = math.prod(other.shape) / max(1, math.prod(series[0].shape))
        if share > _MAX_SIDE_IMAGE_SHARE and _associated_name(other) is None:
            raise UnreadableError(
                f"{name}: holds {len(series)} images, and its second scene is no label or macro image "
                f"({'×'.join(map(str, other.shape))}). Export each as a file of its own."
            )


def describe_stack(tiff: TiffStructure) -> str:
    """What else can be said of a file that is no RGB: its first series' axes, where its maker names them."""
    if not tiff.is_of("ome", "qpi", "imagej", "lsm"):
        return ""
    series = tiff.series[0]
    return f", first of a stack with axes {series.axes} ({'×'.join(map(str, series.shape))}), as fluorescence is stored"


def associated_sources(tiff: TiffStructure) -> dict[str, tifffile.TiffPage | bytes]:
    """Label, macro and thumbnail by name: a page, or a JPEG stream out of Philips' XML."""
    found: dict[str, tifffile.TiffPage | bytes] = {}
    if tiff.is_of("svs", "ome", "philips", "qpi"):
        for series in tiff.series[1:]:
            name = _associated_name(series)
            if name is not None:
                found.setdefault(name, series.keyframe)
    if tiff.is_of("philips"):
        for kind, name in (("LABELIMAGE", "label"), ("MACROIMAGE", "macro")):
            streams = [stream for stream in philips_images(tiff, kind) if stream]
            if streams:
                found.setdefault(name, streams[0])
    order = list(_ASSOCIATED.values())
    return dict(sorted(found.items(), key=lambda item: order.index(item[0])))


def _associated_name(series: Series) -> str | None:
    words = series.name.lower().split()
    return next((name for word, name in _ASSOCIATED.items() if word in words), None)
