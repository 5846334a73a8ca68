"""The JSON of a slide store: NGFF 0.5 for everyone, the `gemslide` attribute for us."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.box import Box
from pipeline.errors import UnverifiedLinkError
from pipeline.files import write_text_atomic
from pipeline.places.byte_source import read_json_at
from pipeline.places.object_path import StorePath
from pipeline.store.format.layout import CONTRACT_VERSION
from pipeline.units import MAX_MPP, MAX_PLANES, MIN_MPP, default_plane, mean_distance, why_no_stack
from training.foundation.reading import MAX_JSON_BYTES
from training.foundation.words.findings import message_of
from training.foundation.words.names import NAME_PATTERN

MAX_LEVELS, MAX_DOWNSAMPLE = 32, 1e6
MAX_ICC_BASE64 = 16 * 2**20
MAX_WARNINGS, MAX_WARNING = 64, 2000


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Word = Annotated[str, Field(max_length=1000)]
MAX_PX0 = 2**31
Position = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]


class Source(_Strict):
    """The slide file, identified by its bytes and not by its name."""

    sha256: str | None = Field(pattern=r"^[0-9a-f]{64}$")
    """None until a linked store is verified."""
    bytes: int = Field(ge=0)
    format: Word
    files: int = Field(1, ge=1)
    series: str | None = Field(None, pattern=r"^#?[0-9]{1,9}(/[0-9]{1,9}){0,9}$")
    """Image of the file: its number, or path of numbers; "#n" for the n-th. None if the file has one slide and
    begins with it. Never a name from the file."""


class Gate(_Strict):
    """Comparison of sampled tiles with a second decoder."""

    tiles: int = Field(ge=0)
    against: Word
    equal: bool
    reason: Word | None = None


class Level(_Strict):
    """Origin of one level of the store."""

    path: str = Field(pattern=r"^[0-9]{1,2}$")
    """Below `0/`: the level's number."""
    downsample: float = Field(ge=1, le=MAX_DOWNSAMPLE)
    route: Word
    codec: Word
    gate: Gate | None = None
    quality: int | None = Field(None, ge=1, le=100)
    """JPEG quality of a level that was requested in JPEG; None: lossless, or the scanner's own."""
    rebuilt: tuple[Position, ...] = ()
    """(row, column) of tiles that were damaged in the source and built from the level before."""


class Link(_Strict):
    """A store whose finest levels are pointers into the slide's file; the project's `links.json` has its path."""

    id: str = Field(pattern=r"^[0-9a-f]{32}$")
    """Its entry in `links.json`."""
    state: Literal["linked", "verified"]
    bytes: int = Field(ge=0)
    """Of the slide's tiles that it points at."""
    levels: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)


class Nanometres(_Strict):
    """Hamamatsu's coordinates: nanometres from the centre of the glass slide."""

    origin_xy0: tuple[float, float]
    """The centre of the glass in level-0 pixels; it may be outside the scanned area."""
    nm_per_px0_xy: tuple[Annotated[float, Field(gt=0)], Annotated[float, Field(gt=0)]]


class SlideAttributes(_Strict):
    """Root attribute `gemslide`. It contains no path, stem, patient, image or user identifier of the source."""

    contract_version: int = CONTRACT_VERSION
    slide_id: str = Field(pattern=NAME_PATTERN)
    mpp0: float = Field(ge=MIN_MPP, le=MAX_MPP)
    source: Source
    levels: tuple[Level, ...] = Field(min_length=1, max_length=MAX_LEVELS)
    associated: tuple[Word, ...] = Field((), max_length=16)
    icc: str | None = Field(None, max_length=MAX_ICC_BASE64)
    objective_power: float | None = None
    scanner_model: Word | None = None
    bounds_px0: Box | None = None
    """Scanned area, if the scanner states it."""
    planes_um: tuple[float, ...] | None = Field(None, min_length=2, max_length=MAX_PLANES)
    """Heights of a stack's focal planes, as the scanner states them, lowest first; None: one plane."""
    nanometres: Nanometres | None = None
    """Of Hamamatsu's slides: places annotations of NDP.view (NDPA)."""
    mpp_source: Word
    stain: dict[str, Any] | None = None
    qc: dict[str, Any] | None = None
    link: Link | None = None
    ingest: dict[str, Any]

    @field_validator("bounds_px0")
    @classmethod
    def bounds_are_positions(cls, bounds_px0: Box | None) -> Box | None:
        if bounds_px0 is not None and not all(0 <= number <= MAX_PX0 for number in bounds_px0):
            raise ValueError(f"bounds_px0 {tuple(bounds_px0)}: numbers from 0 to {MAX_PX0}")
        return bounds_px0

    @field_validator("stain")
    @classmethod
    def fits_are_tables(cls, stain: dict[str, Any] | None) -> dict[str, Any] | None:
        for method in ("macenko", "reinhard"):
            entry = (stain or {}).get(method)
            if not isinstance(entry, dict | None) or not isinstance((entry or {}).get("fit"), dict | None):
                raise ValueError(f"{method} or its fit is not a table")
        return stain

    @field_validator("planes_um")
    @classmethod
    def planes_rise(cls, planes_um: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if planes_um and (why := why_no_stack(planes_um)):
            raise ValueError(why)
        return planes_um

    @field_validator("ingest")
    @classmethod
    def tissue_is_a_share(cls, ingest: dict[str, Any]) -> dict[str, Any]:
        fraction = ingest.get("tissue_fraction", 0.0)
        if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise ValueError(f"tissue_fraction {fraction!r:.40} is not a share")
        return ingest

    @field_validator("ingest")
    @classmethod
    def damage_is_counted(cls, ingest: dict[str, Any]) -> dict[str, Any]:
        damaged = ingest.get("damaged", {"tiles": 0, "of": 0})
        counts = [damaged.get(name) for name in ("tiles", "of")] if isinstance(damaged, dict) else [None]
        if not all(type(count) is int and 0 <= count <= MAX_PX0 for count in counts):
            raise ValueError(f"damaged {damaged!r:.80} are not counts of tiles")
        return ingest

    @field_validator("ingest")
    @classmethod
    def warnings_are_clauses(cls, ingest: dict[str, Any]) -> dict[str, Any]:
        warnings = ingest.get("warnings", [])
        is_list = isinstance(warnings, list) and len(warnings) <= MAX_WARNINGS
        if not is_list or not all(isinstance(clause, str) and len(clause) <= MAX_WARNING for clause in warnings):
            raise ValueError(f"warnings {warnings!r:.80} are not a list of clauses")
        return ingest

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings from ingest that a person should read before relying on the store."""
        return tuple(self.ingest.get("warnings", ()))

    @property
    def damaged_tiles(self) -> int:
        """Tiles of the source's finest level that were damaged, and are white and masked here."""
        return int(self.ingest.get("damaged", {"tiles": 0})["tiles"])

    @property
    def is_unverified(self) -> bool:
        """Whether the store points at a slide's file with which it has not been compared yet."""
        return self.link is not None and self.link.state == "linked"

    @property
    def source_sha256(self) -> str:
        """Hash of the slide's file, which everything that is made from the slide states.

        Raises:
            UnverifiedLinkError: the store is linked to a file with which it has not been compared.
        """
        if self.source.sha256 is None:
            raise UnverifiedLinkError(
                f"slide {self.slide_id}: is linked and not verified: its tiles have not been compared with the "
                f"scanner's file, and it has no tissue mask. Run: gemslide verify {self.slide_id}"
            )
        return self.source.sha256

    @model_validator(mode="after")
    def source_is_known(self) -> Self:
        if (self.source.sha256 is None) != self.is_unverified:
            raise ValueError("the source's SHA-256 is missing, or stated before the link was verified")
        if self.link and not set(self.link.levels) <= set(range(len(self.levels))):
            raise ValueError(f"link to levels {self.link.levels} of {len(self.levels)}")
        if self.link and self.planes_um:
            raise ValueError(f"link to {len(self.planes_um)} focal planes, of which none are linked")
        return self

    @model_validator(mode="after")
    def levels_in_order(self) -> Self:
        paths = [level.path for level in self.levels]
        if paths != [str(number) for number in range(len(paths))]:
            raise ValueError(f"levels must be 0, 1, … in order, got {', '.join(paths)}")
        downsamples = [level.downsample for level in self.levels]
        if downsamples[0] != 1 or downsamples != sorted(downsamples):
            raise ValueError(f"downsamples must begin with 1 and grow, got {downsamples}")
        return self


def first_finding(error: ValidationError) -> str:
    """The first error in input from others: its location and message, both of bounded length."""
    first = error.errors()[0]
    return f"`{'.'.join(map(str, first['loc'])):.80}`: {message_of(first):.200}"


def write_group(path: Path, attributes: dict[str, Any]) -> None:
    """Write a zarr v3 group's `zarr.json`."""
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": attributes})


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON that people can read."""
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")


def read_json(path: StorePath) -> dict[str, Any]:
    """A zarr.json as a dict. Raises OSError, ValueError."""
    content = read_json_at(path, max_bytes=MAX_JSON_BYTES)
    if not isinstance(content, dict):
        raise ValueError(f"{path}: holds {type(content).__name__}, not an object")
    return content


def _axis(name: str) -> dict[str, str]:
    return {"name": "c", "type": "channel"} if name == "c" else {"name": name, "type": "space", "unit": "micrometer"}


def multiscale(
    name: str,
    kind: str,
    axes: str,
    spacings_um: Sequence[float],
    *,
    offset_um: float | None = None,
    planes_um: Sequence[float] = (0.0, 0.0),
) -> dict[str, Any]:
    """NGFF 0.5 multiscale entry.

    Args:
        axes: "cyx", "czyx" or "yx".
        spacings_um: micrometres per cell of each dataset, finest first.
        offset_um: centre of the finest dataset's first cell; None: half of (its own spacing minus the finest).
        planes_um: heights along z; the scale is their mean distance, since NGFF 0.5 has no other.
    """
    datasets = []
    for index, spacing in enumerate(spacings_um):
        start = (spacing - spacings_um[0]) / 2 + (offset_um or 0.0)
        scales = {"c": 1.0, "z": mean_distance(planes_um), "y": spacing, "x": spacing}
        starts = {"c": 0.0, "z": planes_um[0], "y": start, "x": start}
        transformations: list[dict[str, Any]] = [{"type": "scale", "scale": [scales[axis] for axis in axes]}]
        if any(starts[axis] for axis in axes):
            transformations.append({"type": "translation", "translation": [starts[axis] for axis in axes]})
        datasets.append({"path": str(index), "coordinateTransformations": transformations})
    return {
        "name": name,
        "type": kind,
        "metadata": {"description": "coordinates are centres of cells, in micrometres from the slide's top left"},
        "axes": [_axis(axis) for axis in axes],
        "datasets": datasets,
    }


def image_attributes(
    name: str, spacings_um: Sequence[float], planes_um: Sequence[float] | None = None
) -> dict[str, Any]:
    """`ome` of an RGB image; with heights of focal planes, that of a stack."""
    if planes_um:
        image, plane = multiscale(name, "area", "czyx", spacings_um, planes_um=planes_um), default_plane(planes_um)
    else:
        image, plane = multiscale(name, "area", "cyx", spacings_um), 0
    channels = [
        {
            "label": label,
            "color": color,
            "active": True,
            "coefficient": 1,
            "family": "linear",
            "inverted": False,
            "window": {"min": 0, "max": 255, "start": 0, "end": 255},
        }
        for label, color in (("R", "FF0000"), ("G", "00FF00"), ("B", "0000FF"))
    ]
    # Also in a file that has a checksum, which the root has not.
    own = {"gemslide": {"planes_um": list(planes_um)}} if planes_um else {}
    return own | {
        "ome": {
            "version": "0.5",
            "multiscales": [image],
            "omero": {
                "name": name,
                "channels": channels,
                "rdefs": {"defaultT": 0, "defaultZ": plane, "model": "color"},
            },
        }
    }


def tissue_attributes(spacings_um: Sequence[float], mpp0: float) -> dict[str, Any]:
    """`ome` of the tissue label."""
    return _label_attributes("tissue", "majority", [0, 128, 0, 128], spacings_um, mpp0)


def damaged_attributes(spacings_um: Sequence[float], mpp0: float, cell_px0: int) -> dict[str, Any]:
    """`ome` of the label `damaged`, and `gemslide` with the side of its cells in whole level-0 pixels."""
    own = {"cell_px0": cell_px0}
    return {**_label_attributes("damaged", "maximum", [200, 0, 0, 128], spacings_um, mpp0), "gemslide": own}


def _label_attributes(
    name: str, kind: str, rgba: list[int], spacings_um: Sequence[float], mpp0: float
) -> dict[str, Any]:
    """`ome` of a label of ones; its first cell is centred half a cell from the slide's corner."""
    offset_um = (spacings_um[0] - mpp0) / 2
    return {
        "ome": {
            "version": "0.5",
            "multiscales": [multiscale(name, kind, "yx", spacings_um, offset_um=offset_um)],
            "image-label": {
                "version": "0.5",
                "colors": [{"label-value": 1, "rgba": rgba}],
                "properties": [{"label-value": 1, "class": name}],
                "source": {"image": "../../"},
            },
        }
    }


def ome_xml(series: Sequence[tuple[str, int, int, float | None]], planes_um: Sequence[float] | None = None) -> str:
    """OME/METADATA.ome.xml: (name, width_px, height_px, mpp) per series, metadata only.

    Args:
        planes_um: heights of the first series's focal planes; None: one.
    """
    depths = [len(planes_um or (0.0,)), *(1 for _ in series[1:])]
    distance = f' PhysicalSizeZ="{mean_distance(planes_um):.9g}"' if planes_um else ""
    images = "".join(
        f'<Image ID="Image:{i}" Name="{name}"><Pixels ID="Pixels:{i}" DimensionOrder="XYCZT" Type="uint8" '
        f'SizeX="{width}" SizeY="{height}" SizeC="3" SizeZ="{depths[i]}" SizeT="1" Interleaved="true"'
        + (f' PhysicalSizeX="{mpp:.9g}" PhysicalSizeY="{mpp:.9g}"' if mpp else "")
        + distance * (i == 0)
        + f'><Channel ID="Channel:{i}:0" SamplesPerPixel="3"/><MetadataOnly/></Pixels></Image>'
        for i, (name, width, height, mpp) in enumerate(series)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">{images}</OME>\n'
    )
