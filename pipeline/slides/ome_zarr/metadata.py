"""What the metadata of an OME-Zarr says: which image, which axes, which levels at which scale (NGFF 0.4 and 0.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import ValidationError

from pipeline.errors import NotBrightfieldRgbError, UnreadableError
from pipeline.slides.damage import DamagedFileError
from pipeline.slides.mpp import MppXy, search_mpp
from pipeline.slides.ome_zarr import schema

_UM_PER_UNIT = {
    "angstrom": 1e-4, "nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4, "meter": 1e6,
    "inch": 25_400.0,
}  # fmt: skip
_VERSIONS = ("0.4", "0.5")
_RGB = ["FF0000", "00FF00", "0000FF"]
_MAX_XML_BYTES = 16 * 2**20
_NAMES = {"label": "label", "macro": "macro", "thumbnail": "thumbnail"}


@dataclass(frozen=True)
class Axes:
    """Where y, x and the channels lie among an array's dimensions; all others must have length 1."""

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
    """One level: its array's path in the image's group, and what one step and the origin are along each axis."""

    path: str
    scale: tuple[float, ...]
    translation: tuple[float, ...]


@dataclass(frozen=True)
class Multiscale:
    """One image of several levels, finest first."""

    name: str
    axes: Axes
    datasets: tuple[Dataset, ...]

    def step_um(self, dataset: Dataset, axis: int) -> float | None:
        """Microns per pixel along an axis; None where its unit is not said."""
        unit = self.axes.um_per_unit[axis]
        return None if unit is None else dataset.scale[axis] * unit


def ome_attributes(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The OME part of a group's attributes: under "ome" since 0.5, at the top in 0.4."""
    ome = attributes.get("ome", attributes)
    return ome if isinstance(ome, Mapping) else {}


def read_multiscale(attributes: Mapping[str, Any], name: str) -> Multiscale:
    """The first (by the specification the default) multiscale image of a group.

    Raises:
        UnreadableError: the metadata contradicts itself, or is of another version of NGFF.
        NotBrightfieldRgbError: its channels are said to have other colours than red, green and blue.
    """
    ome = ome_attributes(attributes)
    try:
        _check_version(ome, name)
        image, omero = (
            schema.Image.model_validate(_first_image(ome)),
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
    _check_colours(omero, name)
    return Multiscale(image.name or "", axes, datasets)


def _first_image(ome: Mapping[str, Any]) -> Mapping[str, Any]:
    images = ome.get("multiscales")
    if not isinstance(images, list) or not images or not isinstance(images[0], Mapping):
        raise DamagedFileError("multiscales is no list of images")
    first: Mapping[str, Any] = images[0]
    return first


def _check_version(ome: Mapping[str, Any], name: str) -> None:
    version = str(ome.get("version", _first_image(ome).get("version", "none")))
    if version not in _VERSIONS:
        raise UnreadableError(
            f"{name}: is OME-Zarr of version {version}; {' and '.join(_VERSIONS)} are read. Convert it, for "
            "example with bioformats2raw."
        )


def _why(error: DamagedFileError | ValidationError) -> str:
    if isinstance(error, DamagedFileError):
        return str(error)
    first = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'an image'}: {first['msg']}"


def _axes(entries: list[schema.Axis]) -> Axes:
    names = tuple(entry.name for entry in entries)
    if len(set(names)) != len(names) or not {"y", "x"} <= set(names):
        raise DamagedFileError(f"axes {names}")
    return Axes(names, tuple(_UM_PER_UNIT.get(entry.unit or "") for entry in entries))


_Transformations = tuple[tuple[float, ...], tuple[float, ...]]


def _transformations(entries: list[schema.Transformation], num_axes: int) -> _Transformations:
    """Scale and translation, one number for each axis; nothing else is allowed in 0.4 and 0.5."""
    scale, translation = (1.0,) * num_axes, (0.0,) * num_axes
    for entry in entries:
        if entry.type == "identity":
            continue
        numbers = {"scale": entry.scale, "translation": entry.translation}.get(entry.type)
        if numbers is None or len(numbers) != num_axes:
            length = "no" if numbers is None else len(numbers)
            raise DamagedFileError(f"coordinate transformation {entry.type!r} of {length} numbers for {num_axes} axes")
        if entry.type == "scale":
            scale = numbers
        else:
            translation = numbers
    return scale, translation


def _dataset(entry: schema.Dataset, common: _Transformations, num_axes: int) -> Dataset:
    scale, translation = _transformations(entry.transformations, num_axes)
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        raise DamagedFileError(f"a dataset outside the image: {entry.path!r}")
    return Dataset(
        entry.path,
        tuple(own * shared for own, shared in zip(scale, common[0], strict=True)),
        tuple(own * factor + shared for own, factor, shared in zip(translation, *common, strict=True)),
    )


def _check_colours(omero: schema.Omero, name: str) -> None:
    """Three channels of fluorescence look like RGB to whoever only counts; the display settings tell them apart."""
    if not omero.channels:
        return
    colours = [(channel.color or "").upper() for channel in omero.channels]
    model = (omero.rdefs.model if omero.rdefs else None) or "color"
    if model != "color" or (len(colours) == 3 and any(colours) and colours != _RGB):
        raise NotBrightfieldRgbError(
            f"{name}: its display settings show {len(colours)} channels in colours {', '.join(colours)}, model "
            f"{model}: not red, green and blue of a brightfield slide. Export it as RGB."
        )


def mpp_of(multiscale: Multiscale) -> tuple[MppXy | None, str]:
    """Microns per level-0 pixel (x, y), and where it was looked for."""
    return search_mpp([("OME-Zarr scale with its axes' units", partial(_scale_mpp, multiscale))])


def _scale_mpp(multiscale: Multiscale) -> MppXy | None:
    axes, finest = multiscale.axes, multiscale.datasets[0]
    x, y = multiscale.step_um(finest, axes.x), multiscale.step_um(finest, axes.y)
    return None if x is None or y is None else (x, y)


def objective_power_of(folder: Path) -> float | None:
    """Nominal magnification from the OME-XML that bioformats2raw puts beside the images."""
    path = folder / "OME" / "METADATA.ome.xml"
    try:
        if not path.is_file() or path.stat().st_size > _MAX_XML_BYTES:
            return None
        objective = ElementTree.parse(path).getroot().find(".//{*}Objective")
        power = float(objective.attrib.get("NominalMagnification", "0")) if objective is not None else 0.0
    except (ElementTree.ParseError, ValueError, OSError):
        return None
    return power if 0 < power < 1000 else None


def associated_name(multiscale: Multiscale) -> str | None:
    """label, macro or thumbnail when an image's name says that it is one (as Bio-Formats names them)."""
    words = multiscale.name.lower().split()
    return next((known for word, known in _NAMES.items() if word in words), None)
