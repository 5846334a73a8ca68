"""Use of highdicom alone: objects for a segmentation and a parametric map, and reading back their values."""

from __future__ import annotations

import hashlib
import struct
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import highdicom as hd
import numpy as np
from highdicom.color import CIELabColor
from numpy.typing import NDArray
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code

from pipeline.annotations.formats.geojson import COLOURS
from pipeline.export.common.cells import fingerprint
from pipeline.export.dicom.kinds import MAX_FRACTION, NOT_PREDICTED
from pipeline.export.dicom.texts import LONG_TEXT, SHORT_TEXT, plain_text
from pipeline.slides.common.damage import DamagedFileError, library_errors
from pipeline.slides.dicom.plane import SlidePlane
from pipeline.store.layers.overlays import Predictions
from pipeline.units import RESEARCH_USE
from training.foundation.errors import UnreadableError

if TYPE_CHECKING:
    from pydicom.dataset import Dataset

_NAMESPACE = uuid.UUID("b2f0f8f6-5f5c-5a3e-8a51-1f7d4c0b9f43")
_MAKER, _SCHEME = "gemslide", "99GEMSLIDE"
_FRAME_PX = 256
_LUT_LABEL = "class {}"
"""Label of a class in a parametric map, numbered from 1."""
_TYPE_2 = (
    "PatientID", "PatientName", "PatientBirthDate", "PatientSex",
    "AccessionNumber", "StudyID", "StudyDate", "StudyTime",
)  # fmt: skip
"""Attributes that must be present and may be empty."""
_LIBRARY_ERRORS = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    OSError,
    struct.error,
)


@dataclass(frozen=True)
class DicomResult:
    """Data from which both kinds of object are made."""

    source: Dataset
    """Attributes of the slide's finest level."""
    source_name: str
    source_plane: SlidePlane
    predictions: Predictions

    @property
    def plane(self) -> SlidePlane:
        """Plane of the matrix of cells."""
        return self.source_plane.for_cells(self.predictions.stride_px0)

    def uid(self, *what: str) -> str:
        """UID that is the same for the same content, so that a repeated export replaces instead of duplicating it."""
        parts = [str(self.source.get("SOPInstanceUID")), fingerprint(self.predictions), version("gemslide"), *what]
        return f"2.25.{uuid.uuid5(_NAMESPACE, '/'.join(parts)).int}"


def segmentation(result: DicomResult) -> Dataset:
    """Segmentation, FRACTIONAL of type PROBABILITY, with a segment per class; cells without prediction are 0.

    Raises:
        UnreadableError: the source lacks attributes that the object must repeat.
    """
    probabilities = np.nan_to_num(_hwk(result.predictions), nan=0.0)
    names = result.predictions.class_names
    with _library(result.source_name):
        descriptions = [
            hd.seg.SegmentDescription(
                segment_number=k + 1,
                segment_label=plain_text(name, LONG_TEXT),
                segmented_property_category=codes.SCT.Tissue,
                segmented_property_type=_code(name),
                algorithm_type=hd.seg.SegmentAlgorithmTypeValues.AUTOMATIC,
                algorithm_identification=_algorithm(result.predictions),
                display_color=CIELabColor.from_rgb(*COLOURS[k % len(COLOURS)]),
            )
            for k, name in enumerate(names)
        ]
        return hd.seg.Segmentation(
            pixel_array=probabilities,
            segmentation_type=hd.seg.SegmentationTypeValues.FRACTIONAL,
            segment_descriptions=descriptions,
            fractional_type=hd.seg.SegmentationFractionalTypeValues.PROBABILITY,
            max_fractional_value=MAX_FRACTION,
            omit_empty_frames=False,
            dimension_organization_type=hd.DimensionOrganizationTypeValues.TILED_FULL,
            series_number=501,
            content_label="PROBABILITY",
            **_common(result, "seg"),
        )


def parametric_map(result: DicomResult) -> Dataset:
    """Parametric map of float32: a channel per class, whose value is the probability; see `kinds.NOT_PREDICTED`.

    TILED_SPARSE with every tile: TILED_FULL may not hold several quantities (PS3.3, C.7.6.17.3).

    Raises:
        UnreadableError: the source lacks attributes that the object must repeat.
    """
    probabilities = np.nan_to_num(_hwk(result.predictions), nan=NOT_PREDICTED)
    with _library(result.source_name):
        mappings = [
            [
                hd.pm.RealWorldValueMapping(
                    lut_label=_LUT_LABEL.format(k + 1),
                    lut_explanation=plain_text(name, LONG_TEXT),
                    unit=codes.UCUM.NoUnits,
                    value_range=(0.0, 1.0),
                    slope=1.0,
                    intercept=0.0,
                    quantity_definition=_code(name),
                )
            ]
            for k, name in enumerate(result.predictions.class_names)
        ]
        made = hd.pm.ParametricMap(
            pixel_array=probabilities,
            real_world_value_mappings=mappings,
            voi_lut_transformations=[hd.VOILUTTransformation(window_center=0.5, window_width=1.0)],
            contains_recognizable_visual_features=False,
            dimension_organization_type=hd.DimensionOrganizationTypeValues.TILED_SPARSE,
            content_qualification=hd.ContentQualificationValues.RESEARCH,
            series_number=502,
            content_label="PROBABILITY",
            **_common(result, "pm"),
        )
        made.FloatPixelPaddingValue = NOT_PREDICTED
        return made


def save(dataset: Dataset, stream: BinaryIO) -> None:
    """Write an object as a DICOM file."""
    dataset.save_as(stream, enforce_file_format=True)


def read_segmentation(path: Path) -> NDArray[np.float64]:
    """Probabilities of a segmentation, (classes, rows, columns).

    Raises:
        DamagedFileError: not a segmentation, or unreadable.
    """
    with _reading():
        seg = hd.seg.segread(path)
        return np.moveaxis(np.asarray(seg.get_total_pixel_matrix(dtype=np.float64)), -1, 0)


def read_parametric_map(path: Path) -> NDArray[np.float32]:
    """Stored values of a parametric map, (classes, rows, columns).

    Raises:
        DamagedFileError: not a parametric map, or unreadable.
    """
    with _reading():
        image = hd.imread(path)
        frames = np.asarray(image.pixel_array, np.float32).reshape(-1, image.Rows, image.Columns)
        groups = [_position(group) for group in image.PerFrameFunctionalGroupsSequence]
        shape = max(k for k, _, _ in groups) + 1, image.TotalPixelMatrixRows, image.TotalPixelMatrixColumns
        if np.prod(shape) > frames.size:
            raise ValueError(f"{frames.size} values for {shape[0]} classes of {shape[1]} × {shape[2]} cells")
        values = np.full(shape, np.nan, np.float32)
        for (k, row, column), frame in zip(groups, frames, strict=True):
            part = values[k, row : row + image.Rows, column : column + image.Columns]
            part[...] = frame[: part.shape[0], : part.shape[1]]
        return values


def _position(group: Dataset) -> tuple[int, int, int]:
    """(class, row, column) of a frame's first pixel, from 0."""
    label = group.RealWorldValueMappingSequence[0].LUTLabel
    position = group.PlanePositionSlideSequence[0]
    row, column = position.RowPositionInTotalImagePixelMatrix, position.ColumnPositionInTotalImagePixelMatrix
    k = int(str(label).removeprefix(_LUT_LABEL.format("")))
    if min(k, row, column) < 1:
        raise ValueError(f"a frame of class {k} in row {row}, column {column}")
    return k - 1, int(row) - 1, int(column) - 1


def _common(result: DicomResult, kind: str) -> dict[str, Any]:
    """Arguments common to both objects."""
    predictions, plane, source = result.predictions, result.plane, _completed(result)
    _, rows, columns = predictions.probabilities_cyx.shape
    spacing_x_mm, spacing_y_mm = plane.spacing_xy_mm
    return {
        "source_images": [source],
        # Class names may be in any script; text repeated from the source is re-encoded.
        "specific_character_set": "ISO_IR 192",
        "series_instance_uid": result.uid(kind, "series"),
        "sop_instance_uid": result.uid(kind, "instance"),
        "instance_number": 1,
        "manufacturer": _MAKER,
        "manufacturer_model_name": plain_text(predictions.model_id, LONG_TEXT),
        "software_versions": version("gemslide"),
        "device_serial_number": fingerprint(predictions)[:SHORT_TEXT],
        "series_description": plain_text(f"{RESEARCH_USE} {predictions.model_id}", LONG_TEXT),
        "content_description": plain_text(f"{RESEARCH_USE} {predictions.model_id}", LONG_TEXT),
        "pixel_measures": hd.PixelMeasuresSequence((spacing_y_mm, spacing_x_mm), _thickness_mm(source)),
        "plane_orientation": hd.PlaneOrientationSequence("SLIDE", [*plane.along_row_xyz, *plane.along_column_xyz]),
        "plane_positions": [hd.PlanePositionSequence("SLIDE", plane.origin_xyz_mm, (1, 1))],
        "tile_pixel_array": True,
        "tile_size": (min(_FRAME_PX, rows), min(_FRAME_PX, columns)),
    }


def _completed(result: DicomResult) -> Dataset:
    """The source's attributes, plus those that highdicom requires and not every scanner writes."""
    source = deepcopy(result.source)
    for keyword in _TYPE_2:
        if keyword not in source:
            setattr(source, keyword, "")
    if not result.source_plane.has_origin:
        source.TotalPixelMatrixOriginSequence = hd.PlanePositionSequence(
            "SLIDE", result.source_plane.origin_xyz_mm, (1, 1)
        )
    return source


def _thickness_mm(source: Dataset) -> float:
    """Depth of the imaged volume as stated by the source, or one micrometre."""
    depth_um = source.get("ImagedVolumeDepth")
    return float(depth_um) / 1000 if depth_um else 0.001


def _hwk(predictions: Predictions) -> NDArray[np.float32]:
    """(1, rows, columns, classes), as highdicom takes a total pixel matrix."""
    return np.ascontiguousarray(np.moveaxis(predictions.probabilities_cyx, 0, -1)[None], np.float32)


def _algorithm(predictions: Predictions) -> hd.AlgorithmIdentificationSequence:
    return hd.AlgorithmIdentificationSequence(
        name=plain_text(predictions.model_id, LONG_TEXT),
        family=codes.DCM.ArtificialIntelligence,
        version=plain_text(_weights(predictions), LONG_TEXT),
        source=f"{_MAKER} {version('gemslide')}",
        parameters={"predictions_sha256": fingerprint(predictions)},
    )


def _weights(predictions: Predictions) -> str:
    """SHA-256 of the model's weights as stated by the predictions; else the id, which ends in eight digits of it."""
    made_from = predictions.attributes.get("made_from")
    model = made_from.get("model") if isinstance(made_from, dict) else None
    sha256 = model.get("weights_sha256") if isinstance(model, dict) else None
    return sha256 if isinstance(sha256, str) else predictions.model_id


def _code(class_name: str) -> Code:
    """A private code, since no public terminology defines a model's classes."""
    digest = hashlib.sha256(class_name.encode()).hexdigest()
    return Code(digest[: SHORT_TEXT - 1], _SCHEME, plain_text(class_name, LONG_TEXT))


@contextmanager
def _library(source_name: str) -> Iterator[None]:
    """Report errors of highdicom's calls; use it around nothing else."""
    try:
        with _reading():
            yield
    except DamagedFileError as error:
        raise UnreadableError(
            f"{source_name}: no DICOM result can be made for this slide ({error}). It lacks attributes that a result "
            "must repeat, such as its study or frame of reference; use the other formats."
        ) from error


@contextmanager
def _reading() -> Iterator[None]:
    with library_errors(_LIBRARY_ERRORS), warnings.catch_warnings(action="ignore"):
        yield
