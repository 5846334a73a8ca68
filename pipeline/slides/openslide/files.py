"""What OpenSlide does not tell of a slide: its files, and where a Leica slide's areas lie."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import tifffile

from pipeline.box import Box
from pipeline.errors import UnreadableError
from pipeline.slides.openslide.validate import read_ini
from pipeline.slides.tiff.reader import TIFF_ERRORS


def companion_files(path: Path, vendor: str) -> tuple[Path, ...]:
    """Every file whose bytes make up the slide, the one that was named among them, sorted."""
    files = {path}
    if vendor == "mirax":
        folder = path.with_suffix("")
        files |= {file for file in folder.rglob("*") if file.is_file()}
    elif vendor == "trestle":
        files |= {file for file in [path.with_suffix(".Full")] if file.is_file()}
    elif vendor == "hamamatsu" and path.suffix.lower() in (".vms", ".vmu"):
        files |= _named_in_ini(path)
    return tuple(sorted(files))


def _named_in_ini(path: Path) -> set[Path]:
    values = (line.partition("=")[2].strip() for line in read_ini(path).splitlines())
    beside = (path.parent / value for value in values if value and Path(value).name == value)
    return {file for file in beside if file.is_file()}


def scn_areas(path: Path) -> list[list[Box]]:
    """By level, the areas that OpenSlide lays on a Leica slide's canvas (openslide.org/formats/leica).

    Raises:
        UnreadableError: the XML is not as Leica writes it.
    """
    try:
        with tifffile.TiffFile(path) as tiff:
            collection = ElementTree.fromstring(tiff.pages.first.description).find("{*}collection")
        if collection is None:
            raise ValueError("no collection")
        images = [_scn_image(image, collection) for image in collection.findall("{*}image")]
    except TIFF_ERRORS as error:
        raise UnreadableError(
            f"{path.name}: its Leica description cannot be read ({type(error).__name__}: {error}). "
            "The file is damaged; copy it again."
        ) from error
    areas = [image for image in images if image is not None]
    # OpenSlide takes the finest scale among the areas for each level.
    nm_per_px = [min(scales) for scales in zip(*(scales for _, scales, _ in areas), strict=True)]
    return [
        [Box(int(x_nm / scale), int(y_nm / scale), *sizes[level]) for (x_nm, y_nm), _, sizes in areas]
        for level, scale in enumerate(nm_per_px)
    ]


_ScnImage = tuple[tuple[int, int], list[float], list[tuple[int, int]]]


def _scn_image(image: ElementTree.Element, collection: ElementTree.Element) -> _ScnImage | None:
    """Offset (nm), nanometres per pixel by level, level sizes; None for the macro image and for fluorescence."""
    view = image.find("{*}view")
    if view is None:
        raise ValueError("an image without view")
    offset = (int(view.attrib["offsetX"]), int(view.attrib["offsetY"]))
    size = (view.attrib["sizeX"], view.attrib["sizeY"])
    is_macro = offset == (0, 0) and size == (collection.attrib["sizeX"], collection.attrib["sizeY"])
    if is_macro or image.findtext(".//{*}illuminationSource") != "brightfield":
        return None
    planes = [d for d in image.findall("{*}pixels/{*}dimension") if d.attrib.get("z", "0") == "0"]
    sizes = sorted(((int(d.attrib["sizeX"]), int(d.attrib["sizeY"])) for d in planes), reverse=True)
    return offset, [int(size[0]) / width for width, _ in sizes], sizes
