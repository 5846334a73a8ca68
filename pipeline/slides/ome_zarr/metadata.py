"""Metadata of an OME-Zarr: its images, their axes, and their levels with scales (NGFF 0.4 and 0.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import ValidationError

from pipeline.errors import NotBrightfieldRgbError
from pipeline.slides.common.channels import NotRgbChannelsError, Order, check_no_fluorescence, rgb_order, xml_names
from pipeline.slides.common.damage import DamagedFileError
from pipeline.slides.common.mpp import FoundMpp, MppXy, ome_mpp, search_mpp, um_per_unit
from pipeline.slides.ome_zarr import schema
from training.foundation.errors import UnreadableError
from training.foundation.words.findings import message_of

_VERSIONS = ("0.4", "0.5")
_NUM_COLOURS = 3
_MODELS = {"color", "greyscale"}
_TRANSFORMATIONS = {
    "scale", "translation", "affine", "rotation", "sequence", "mapAxis", "mapIndex", "coordinates", "displacements",
    "byDimension", "bijection", "inverseOf",
}  # fmt: skip
"""What messages may quote; all else is free text of the file."""
_MAX_XML_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Axes:
    """Positions of y, x and the channels among an array's dimensions; all others must have length 1."""

    names: tuple[str, ...]
    um_per_unit: tuple[float | None, ...]

    @property
    def y(self) -> int:
        return self.names.index("y")

    @property
    def x(self) -> int:
        return self.names.index("x")

    @property
    def channel(self) -> int | None:
        return self.names.index("c") if "c" in self.names else None


@dataclass(frozen=True)
class Dataset:
    """One level: its array's path in the image's group, and its step and origin along each axis."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    is_scaled: bool = True
    """Whether its step is stated."""


@dataclass(frozen=True)
class Multiscale:
    """One image of several levels, finest first."""

    name: str
    axes: Axes
    datasets: tuple[Dataset, ...]
    rgb_order: Order | None = None
    """Positions of red, green and blue among the channels; None: in this order, or not stated."""
    finest: int = 0
    """Index of the finest dataset: by the specification, the first."""

    def with_finest(self, index: int) -> Multiscale:
        """The same image with another dataset as its finest."""
        return replace(self, finest=index)

    def step_um(self, dataset: Dataset, axis: int) -> float | None:
        """Microns per pixel along an axis; None if its unit is not stated."""
        unit = self.axes.um_per_unit[axis]
        return None if unit is None else dataset.scale[axis] * unit


def ome_attributes(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The OME part of a group's attributes: under "ome" since 0.5, at the top in 0.4."""
    ome = attributes.get("ome", attributes)
    return ome if isinstance(ome, Mapping) else {}


def read_multiscale(
    attributes: Mapping[str, Any], name: str, index: int = 0, xml_channels: Sequence[Mapping[str, str]] = ()
) -> Multiscale:
    """A multiscale image of a group: the first (by the specification, the default), or another by its number.

    Args:
        xml_channels: the channels' attributes in OME-XML, if there is any.

    Raises:
        UnreadableError: the metadata contradicts itself, or is of another version of NGFF.
        NotBrightfieldRgbError: its channels are stated to be something other than red, green and blue.
    """
    ome = ome_attributes(attributes)
    try:
        _check_version(ome, name)
        image, omero = (
            schema.Image.model_validate(_image(ome, index)),
            schema.Omero.model_validate(ome.get("omero") or {}),
        )
        axes = _axes(image.axes)
        common = _transformations(image.transformations, len(axes.names))
        datasets = tuple(_dataset(entry, common, len(axes.names)) for entry in image.datasets)
    except (DamagedFileError, ValidationError) as error:
        raise UnreadableError(
            f"{name}: its OME-Zarr metadata cannot be understood ({_why(error)}). "
            "It is damaged or was written by hand; convert the slide again."
        ) from error
    return Multiscale(image.name or "", axes, datasets, _channel_order(omero, xml_channels, name))


def _image(ome: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    images = ome.get("multiscales")
    if not isinstance(images, list) or len(images) <= index or not isinstance(images[index], Mapping):
        raise DamagedFileError("multiscales is not a list of images")
    image: Mapping[str, Any] = images[index]
    return image


def _check_version(ome: Mapping[str, Any], name: str) -> None:
    version = str(ome.get("version", _image(ome, 0).get("version", "none")))
    if version not in _VERSIONS:
        known = version if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}|none", version) else "of another form"
        raise UnreadableError(
            f"{name}: is OME-Zarr version {known}; {' and '.join(_VERSIONS)} are read. Convert it, for "
            "example with bioformats2raw."
        )


def _why(error: DamagedFileError | ValidationError) -> str:
    if isinstance(error, DamagedFileError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'an image'}: {message_of(first)}"


def _axes(entries: list[schema.Axis]) -> Axes:
    names = tuple(entry.name for entry in entries)
    if len(set(names)) != len(names) or not {"y", "x"} <= set(names):
        raise DamagedFileError(f"axes {listed_axes(names)}")
    return Axes(names, tuple(um_per_unit(entry.unit) for entry in entries))


def listed_axes(names: Sequence[str]) -> str:
    """Names of axes as messages give them: a longer one is free text."""
    return ", ".join(name if re.fullmatch("[a-z]", name) else "one of another name" for name in names)


SizeWh = tuple[int, int]
XmlPixels = Mapping[str, str]
"""Attributes of the element Pixels of OME-XML."""
_Transformations = tuple[tuple[float, ...], tuple[float, ...]]


def _transformations(entries: list[schema.Transformation], num_axes: int) -> _Transformations:
    """Scale and translation, one number for each axis; nothing else is allowed in 0.4 and 0.5."""
    scale, translation = (1.0,) * num_axes, (0.0,) * num_axes
    types = [entry.type for entry in entries]
    if any(types.count(kind) > 1 for kind in ("scale", "translation")):
        raise DamagedFileError("several scales or translations for one image")
    for entry in entries:
        if entry.type == "identity":
            continue
        numbers = {"scale": entry.scale, "translation": entry.translation}.get(entry.type)
        if numbers is None or len(numbers) != num_axes:
            length = "no" if numbers is None else len(numbers)
            kind = repr(entry.type) if entry.type in _TRANSFORMATIONS else "of another type"
            raise DamagedFileError(f"coordinate transformation {kind} of {length} numbers for {num_axes} axes")
        if entry.type == "scale":
            scale = numbers
        else:
            translation = numbers
    return scale, translation


def _dataset(entry: schema.Dataset, common: _Transformations, num_axes: int) -> Dataset:
    scale, translation = _transformations(entry.transformations, num_axes)
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        raise DamagedFileError("a dataset outside the image")
    return Dataset(
        entry.path,
        tuple(own * shared for own, shared in zip(scale, common[0], strict=True)),
        tuple(own * factor + shared for own, factor, shared in zip(translation, *common, strict=True)),
        is_scaled=any(step.type == "scale" for step in entry.transformations),
    )


def _channel_order(omero: schema.Omero, xml_channels: Sequence[Mapping[str, str]], name: str) -> Order | None:
    """Positions of red, green and blue, by the display settings and the OME-XML beside the images.

    Three fluorescence channels look like RGB if they are only counted.

    Raises:
        NotBrightfieldRgbError: the channels are something else.
    """
    channels = omero.channels or []
    model = (omero.rdefs.model if omero.rdefs else None) or "color"
    try:
        if channels and model != "color":
            known = model if model in _MODELS else "of another name"
            raise NotRgbChannelsError(f"its display settings show {len(channels)} channels, model {known}")
        check_no_fluorescence([channel.label for channel in channels])
        names = xml_names(xml_channels)
        by_xml = rgb_order(names) if len(names) == _NUM_COLOURS else None
        if len(channels) != _NUM_COLOURS:
            return by_xml
        order = rgb_order([channel.label for channel in channels], [channel.color for channel in channels])
        if by_xml and order and by_xml != order:
            raise NotRgbChannelsError("its display settings and OME-XML name red, green and blue in different orders")
        return by_xml or order
    except NotRgbChannelsError as error:
        raise NotBrightfieldRgbError(
            f"{name}: {error}: not red, green and blue of a brightfield slide. Export it as 8-bit RGB."
        ) from error


def mpp_of(multiscale: Multiscale, xml_pixels: XmlPixels | None = None, size_wh: SizeWh = (0, 0)) -> FoundMpp:
    """Microns per level-0 pixel (x, y), and the places searched.

    Args:
        xml_pixels: what OME-XML states of the image; it counts for the size that it states.
        size_wh: of level 0 in pixels.
    """
    scale = ("OME-Zarr scale with its axes' units", partial(_scale_mpp, multiscale))
    if not xml_pixels or (xml_pixels.get("SizeX"), xml_pixels.get("SizeY")) != tuple(map(str, size_wh)):
        return search_mpp([scale])
    return search_mpp([scale, ("OME PhysicalSize", partial(ome_mpp, xml_pixels))])


def _scale_mpp(multiscale: Multiscale) -> MppXy | None:
    axes, finest = multiscale.axes, multiscale.datasets[multiscale.finest]
    x, y = multiscale.step_um(finest, axes.x), multiscale.step_um(finest, axes.y)
    return None if x is None or y is None else (x, y)


def objective_power_of(folder: Path) -> float | None:
    """Nominal magnification from the OME-XML that bioformats2raw puts beside the images."""
    root = _ome_xml(folder)
    objective = None if root is None else root.find(".//{*}Objective")
    try:
        power = float(objective.attrib.get("NominalMagnification", "0")) if objective is not None else 0.0
    except ValueError:
        return None
    return power if 0 < power < 1000 else None


def image_names(folder: Path) -> list[str]:
    """Names of a container's images in the order of its series, from that OME-XML; [] if there is none."""
    root = _ome_xml(folder)
    return [] if root is None else [image.attrib.get("Name", "") for image in root.findall("{*}Image")]


def xml_channels(folder: Path, image: int) -> list[Mapping[str, str]]:
    """Attributes of an image's channels in that OME-XML, by its number there; [] if there is none."""
    pixels = _xml_pixels(folder, image)
    return [] if pixels is None else [channel.attrib for channel in pixels.findall("{*}Channel")]


def xml_pixels(folder: Path, image: int) -> XmlPixels | None:
    """Attributes of an image's pixels there: sizes and scale."""
    pixels = _xml_pixels(folder, image)
    return None if pixels is None else pixels.attrib


def _xml_pixels(folder: Path, image: int) -> ElementTree.Element | None:
    root = _ome_xml(folder)
    images = [] if root is None else root.findall("{*}Image")
    return images[image].find("{*}Pixels") if image < len(images) else None


def _ome_xml(folder: Path) -> ElementTree.Element | None:
    path = folder / "OME" / "METADATA.ome.xml"
    try:
        if not path.is_file() or path.stat().st_size > _MAX_XML_BYTES:
            return None
        return ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, ValueError, OSError):
        return None
