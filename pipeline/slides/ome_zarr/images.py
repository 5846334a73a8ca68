"""The images in an OME-Zarr folder: the folder itself, or a container of several as bioformats2raw writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.series import Candidate, SideImage
from pipeline.slides.common.side_images import kind_by_name
from pipeline.slides.ome_zarr.library import ZarrFolder
from pipeline.slides.ome_zarr.metadata import image_names, mpp_of, ome_attributes, read_multiscale
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

_MAX_IMAGES, _MAX_DEPTH = 1000, 4
ROOT = "."
"""Value of `--series` for the image of the named folder itself; also for the first of several there."""
_NO_IMAGES = {"labels", "OME"}
"""Groups that belong to the image beside them."""


@dataclass(frozen=True)
class ZarrImage:
    """One multiscale image."""

    path: str
    """Path of its group in the folder, "" for the folder itself."""
    index: int
    """Position among the entries of that group's `multiscales`."""
    candidate: Candidate
    xml_number: int | None = None
    """Number in the container's OME-XML; None if it is not listed there."""

    @property
    def series(self) -> str:
        return self.candidate.series

    @property
    def kind(self) -> SideImage | None:
        return self.candidate.kind


def find_images(folder: ZarrFolder, path: Path, name: str) -> list[ZarrImage]:
    """All images of a folder, including those of containers in it.

    Raises:
        UnreadableError: it holds none, or is a plate of wells.
        DamagedFileError: zarr cannot read it.
    """
    ome = ome_attributes(folder.attributes())
    if "multiscales" in ome:
        inner = [group for group in sorted(folder.names()) if group not in _NO_IMAGES and _holds_images(folder, group)]
        below = [image for group in inner for image in _images_below(folder, group, "", name, _MAX_DEPTH)]
        own = _images_of_group(folder, "", "", name)
        return [*map(_named_as_root, own), *below] if below or len(own) > 1 else own
    _refuse_plate(ome, name)
    if "bioformats2raw.layout" not in ome:
        groups = [group for group in folder.names() if _holds_images(folder, group)]
        inside = f" It holds {counted(len(groups), 'image')}, each in its own folder." if groups else ""
        raise UnreadableError(
            f"{name}: is a zarr folder without OME-Zarr metadata (no multiscales).{inside} Name the image's folder."
        )
    groups, xml_names = _listed(folder, name), image_names(path)
    images = []
    for position, group in enumerate(groups):
        xml_number = _xml_number(group, position, len(groups), len(xml_names))
        xml_name = "" if xml_number is None else xml_names[xml_number]
        inner_images = _images_below(folder, group, xml_name, name, _MAX_DEPTH)
        images += [replace(image, xml_number=xml_number) for image in inner_images]
    if not images:
        raise UnreadableError(f"{name}: is a container without images. Convert the slide again.")
    return images[:_MAX_IMAGES]


def _xml_number(group: str, position: int, num_groups: int, num_listed: int) -> int | None:
    """Number of a container's group in its OME-XML: its position, or its own number where some are missing."""
    if num_groups == num_listed:
        return position
    number = int(group) if re.fullmatch("[0-9]{1,9}", group) else num_listed
    return number if number < num_listed else None


def _named_as_root(image: ZarrImage) -> ZarrImage:
    return replace(image, candidate=replace(image.candidate, series=f"{ROOT}{image.series}"))


def _images_below(folder: ZarrFolder, group: str, xml_name: str, name: str, depth: int) -> list[ZarrImage]:
    """Images of a group, which may be a container."""
    ome = _read_ome(folder, group)
    if "multiscales" in ome or depth == 0:
        return _images_of_group(folder, group, xml_name, name)
    _refuse_plate(ome, f"{name}/{group}")
    if "bioformats2raw.layout" not in ome:
        return _images_of_group(folder, group, xml_name, name)
    images = []
    for inner in _listed(folder, name, group):
        images += _images_below(folder, _join(group, inner), "", name, depth - 1)
    return images


def _images_of_group(folder: ZarrFolder, group: str, xml_name: str, name: str) -> list[ZarrImage]:
    """One image for each entry of `multiscales` with its own arrays; others are the same image, reduced again."""
    attributes = folder.attributes(group)
    entries = ome_attributes(attributes).get("multiscales")
    num_entries = len(entries) if isinstance(entries, list) else 1
    seen: set[str] = set()
    images = []
    for index in range(min(max(1, num_entries), _MAX_IMAGES)):
        series = group if index == 0 else f"{group}#{index}"
        image = _image(folder, group, index, series, xml_name)
        finest = _finest_path(entries, index)
        if finest is None or finest not in seen:
            images.append(image)
            seen.add(finest or "")
    return images


def _finest_path(entries: object, index: int) -> str | None:
    with suppress(TypeError, LookupError):
        return str(entries[index]["datasets"][0]["path"])  # type: ignore[index]
    return None


def _image(folder: ZarrFolder, group: str, index: int, series: str, xml_name: str) -> ZarrImage:
    """An image with its size; (0, 0) if its metadata are damaged, which is reported when it is read."""
    attributes = folder.attributes(group)
    names = [*_names(attributes, index), xml_name, *group.split("/")]
    kind = next((kind for kind in map(kind_by_name, names) if kind), None)
    width_px = height_px = 0
    mpp = None
    with suppress(DamagedFileError, UnreadableError, NotBrightfieldRgbError):
        multiscale = read_multiscale(attributes, group, index)
        mpp_xy = mpp_of(multiscale).mpp_xy
        mpp = sum(mpp_xy) / 2 if mpp_xy else None
        for dataset in multiscale.datasets:
            shape = folder.array("/".join(part for part in (group, dataset.path) if part)).shape
            if len(shape) == len(multiscale.axes.names) and shape[multiscale.axes.x] > width_px:
                width_px, height_px = shape[multiscale.axes.x], shape[multiscale.axes.y]
    is_damaged = width_px == 0  # it may be the slide
    detail = "cannot be read, " if is_damaged else ""
    return ZarrImage(
        group, index, Candidate(series, width_px, height_px, mpp, kind, is_declared=is_damaged, detail=detail)
    )


def _names(attributes: Mapping[str, Any], index: int) -> Sequence[str]:
    """Names that the metadata give an image."""
    ome = ome_attributes(attributes)
    names: list[object] = []
    with suppress(TypeError, LookupError):
        entry = ome["multiscales"][index]
        names.append(entry.get("name"))
        names.append((entry.get("metadata") or {}).get("name"))
    with suppress(AttributeError):
        names.append((ome.get("omero") or {}).get("name"))
    return [name for name in names if isinstance(name, str)]


def _listed(folder: ZarrFolder, name: str, group: str = "") -> list[str]:
    """Paths of a container's images: those that it lists, then further groups that are images or hold some."""
    names = folder.names(group)
    ome = _join(group, "OME")
    listed = (_read_ome(folder, ome).get("series") if "OME" in names else None) or []
    if not isinstance(listed, list):
        raise UnreadableError(f"{name}: is a container whose list of images is not a list. Convert the slide again.")
    known = [str(path) for path in listed]
    numbered = sorted((one for one in names if re.fullmatch("[0-9]{1,9}", one)), key=int)
    others = [one for one in sorted(set(names) - {"OME", *numbered}) if _holds_images(folder, _join(group, one))]
    paths = list(dict.fromkeys([*known, *numbered, *others]))
    if not paths:
        raise UnreadableError(f"{name}: is a container without images. Convert the slide again.")
    return paths[:_MAX_IMAGES]


def _join(group: str, name: str) -> str:
    return f"{group}/{name}" if group else name


def _holds_images(folder: ZarrFolder, group: str) -> bool:
    return not {"multiscales", "bioformats2raw.layout"}.isdisjoint(_read_ome(folder, group))


def _read_ome(folder: ZarrFolder, group: str) -> Mapping[str, Any]:
    return ome_attributes(folder.attributes(group))


def _refuse_plate(ome: Mapping[str, Any], name: str) -> None:
    if "plate" in ome or "well" in ome:
        raise UnreadableError(f"{name}: is a plate of wells, not a slide. Name one of its images.")
