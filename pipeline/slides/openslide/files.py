"""Facts that OpenSlide does not report: a slide's files, and the positions of a Leica slide's areas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from pipeline.box import Box
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.openslide.validate import read_ini
from pipeline.slides.tiff.library import TiffStructure
from pipeline.slides.tiff.metadata import parsed_xml
from training.foundation.errors import UnreadableError


def companion_files(path: Path, vendor: str) -> tuple[Path, ...]:
    """Every file whose bytes make up the slide, including the named one, sorted."""
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
    """Areas, by level, that OpenSlide places on a Leica slide's canvas (openslide.org/formats/leica).

    Raises:
        UnreadableError: the XML is not as Leica writes it.
    """
    with _scn_collection(path) as collection:
        return _areas_by_level(collection)


def scn_planes(path: Path) -> int:
    """Focal planes of a Leica slide. Raises UnreadableError."""
    with _scn_collection(path) as collection:
        return len({dimension.attrib.get("z", "0") for dimension in collection.iterfind(".//{*}dimension")})


@contextmanager
def _scn_collection(path: Path) -> Iterator[ElementTree.Element]:
    try:
        with TiffStructure(path) as tiff:
            root = parsed_xml(tiff.description)
        collection = None if root is None else root.find("{*}collection")
        if collection is None:
            raise DamagedFileError("no collection")
        yield collection
    except DamagedFileError as error:
        raise UnreadableError(
            f"{path.name}: its Leica description cannot be read ({error}). The file is damaged; copy it again."
        ) from error


def _areas_by_level(collection: ElementTree.Element) -> list[list[Box]]:
    areas = [image for image in map(partial(_scn_image, collection), collection.findall("{*}image")) if image]
    if len({len(sizes) for _, _, sizes in areas}) > 1:
        raise DamagedFileError("areas of different numbers of levels")
    # OpenSlide takes the finest scale among the areas for each level.
    nm_per_px = [min(scales) for scales in zip(*(scales for _, scales, _ in areas), strict=True)]
    return [
        [Box(int(x_nm / scale), int(y_nm / scale), *sizes[level]) for (x_nm, y_nm), _, sizes in areas]
        for level, scale in enumerate(nm_per_px)
    ]


_ScnImage = tuple[tuple[int, int], list[float], list[tuple[int, int]]]


def _scn_image(collection: ElementTree.Element, image: ElementTree.Element) -> _ScnImage | None:
    """Offset (nm), nanometres per pixel by level, level sizes; None for the macro image and for fluorescence."""
    view = image.find("{*}view")
    if view is None:
        raise DamagedFileError("an image without a view")
    offset, size = (_whole(view, "offsetX"), _whole(view, "offsetY")), (_whole(view, "sizeX"), _whole(view, "sizeY"))
    is_macro = offset == (0, 0) and size == (_whole(collection, "sizeX"), _whole(collection, "sizeY"))
    if is_macro or image.findtext(".//{*}illuminationSource") != "brightfield":
        return None
    planes = [d for d in image.findall("{*}pixels/{*}dimension") if d.attrib.get("z", "0") == "0"]
    sizes = sorted(((_whole(d, "sizeX"), _whole(d, "sizeY")) for d in planes), reverse=True)
    if min([size[0], *(side for wh in sizes for side in wh)]) < 1:
        raise DamagedFileError("a size of 0")
    return offset, [size[0] / width for width, _ in sizes], sizes


def _whole(element: ElementTree.Element, key: str) -> int:
    text = element.attrib.get(key, "").strip()
    if not re.fullmatch("-?[0-9]{1,18}", text):
        raise DamagedFileError(f"{key}={text!r}")
    return int(text)
