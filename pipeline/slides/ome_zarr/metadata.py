"""What the metadata of an OME-Zarr says: which image, which axes, which levels at which scale (NGFF 0.4 and 0.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.errors import NotBrightfieldRgbError, UnreadableError

_UM_PER_UNIT = {
    "angstrom": 1e-4, "nanometer": 1e-3, "micrometer": 1.0, "millimeter": 1e3, "centimeter": 1e4, "meter": 1e6,
    "inch": 25_400.0,
}  # fmt: skip
_VERSIONS = ("0.4", "0.5")
_RGB = ["FF0000", "00FF00", "0000FF"]
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
        image = ome["multiscales"][0]
        version = str(ome.get("version", image.get("version", "none")))
        if version not in _VERSIONS:
            raise UnreadableError(
                f"{name}: is OME-Zarr of version {version}; {' and '.join(_VERSIONS)} are read. Convert it, for "
                "example with bioformats2raw."
            )
        axes = _axes(image["axes"])
        common = _transformations(image.get("coordinateTransformations", []), len(axes.names))
        datasets = tuple(_dataset(entry, common, len(axes.names)) for entry in image["datasets"])
        if not datasets:
            raise ValueError("no datasets")
        _check_colours(ome.get("omero"), name)
        return Multiscale(str(image.get("name", "")), axes, datasets)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"{name}: its OME-Zarr metadata cannot be understood ({type(error).__name__}: {error}). "
            "It is damaged or was written by hand; convert the slide again."
        ) from error


def _axes(entries: Sequence[Mapping[str, Any]]) -> Axes:
    names = tuple(str(entry["name"]) for entry in entries)
    if len(set(names)) != len(names) or not {"y", "x"} <= set(names):
        raise ValueError(f"axes {names}")
    units = tuple(_UM_PER_UNIT.get(str(entry["unit"])) if "unit" in entry else None for entry in entries)
    return Axes(names, units)


_Transformations = tuple[tuple[float, ...], tuple[float, ...]]


def _transformations(entries: Sequence[Mapping[str, Any]], num_axes: int) -> _Transformations:
    """Scale and translation, one number for each axis; nothing else is allowed in 0.4 and 0.5."""
    scale, translation = (1.0,) * num_axes, (0.0,) * num_axes
    for entry in entries:
        kind = entry["type"]
        if kind == "identity":
            continue
        if kind not in ("scale", "translation"):
            raise ValueError(f"coordinate transformation {kind!r}")
        numbers = tuple(float(number) for number in entry[kind])
        if len(numbers) != num_axes:
            raise ValueError(f"{kind} of {len(numbers)} numbers for {num_axes} axes")
        if kind == "scale":
            scale = numbers
        else:
            translation = numbers
    return scale, translation


def _dataset(entry: Mapping[str, Any], common: _Transformations, num_axes: int) -> Dataset:
    scale, translation = _transformations(entry.get("coordinateTransformations", []), num_axes)
    path = str(entry["path"])
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"a dataset outside the image: {path!r}")
    return Dataset(
        path,
        tuple(own * shared for own, shared in zip(scale, common[0], strict=True)),
        tuple(own * factor + shared for own, factor, shared in zip(translation, *common, strict=True)),
    )


def _check_colours(omero: Mapping[str, Any] | None, name: str) -> None:
    """Three channels of fluorescence look like RGB to whoever only counts; the display settings tell them apart."""
    if not omero or not omero.get("channels"):
        return
    colours = [str(channel.get("color", "")).upper() for channel in omero["channels"]]
    model = str(omero.get("rdefs", {}).get("model", "color"))
    if model != "color" or (len(colours) == 3 and any(colours) and colours != _RGB):
        raise NotBrightfieldRgbError(
            f"{name}: its display settings show {len(colours)} channels in colours {', '.join(colours)}, model "
            f"{model}: not red, green and blue of a brightfield slide. Export it as RGB."
        )


def associated_name(multiscale: Multiscale) -> str | None:
    """label, macro or thumbnail when an image's name says that it is one (as Bio-Formats names them)."""
    words = multiscale.name.lower().split()
    return next((known for word, known in _NAMES.items() if word in words), None)
