"""Predictions of a DICOM slide as DICOM: the source slide, the position on its glass, and the target file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline.errors import ChangedSourceError
from pipeline.export.common.target import new_file
from pipeline.export.dicom.kinds import DicomKind
from pipeline.export.dicom.library import DicomResult, parametric_map, save, segmentation
from pipeline.files import sha256_of_files
from pipeline.slides.dicom.plane import plane_of
from pipeline.slides.dicom.reader import DicomSlide
from pipeline.slides.registry import open_slide
from pipeline.store.layers.overlays import Predictions
from training.foundation.errors import BadRecipeError


def write_dicom_results(
    source: Path,
    predictions: Predictions,
    files: Mapping[DicomKind, Path],
    *,
    source_sha256: str,
    series: str | None = None,
) -> str | None:
    """Write a segmentation ("dicom-seg": fractional, probability) or a parametric map ("dicom-pm": float32), or both.

    One pixel per cell, in the source's frame of reference, study and patient: the files repeat the source's patient
    data.

    Args:
        source: the DICOM file or folder that the predicted store was made from.
        files: the file to write, by kind.
        source_sha256: hash of the source, as stated in the store.
        series: the series, in a folder with several.

    Returns:
        A warning about the position of the results, or None.

    Raises:
        BadRecipeError: the source is not DICOM. ChangedSourceError: it is not the one the store was made from.
        UnreadableError: it does not state its position, or lacks attributes that a result must repeat.
        DiskFullError, LockedError: from the target.
    """
    with open_slide(source, series) as slide:
        if not isinstance(slide, DicomSlide):
            raise BadRecipeError(
                f"{source.name}: is {slide.info.format}, not DICOM. DICOM results need a DICOM slide; for other slides "
                "use GeoJSON, CSV, Parquet or OME-TIFF."
            )
        sha256 = sha256_of_files(slide.files)
        if sha256 != source_sha256:
            raise ChangedSourceError(
                f"{source.name}: has SHA-256 {sha256[:12]}…, but the predictions are of a slide with "
                f"{source_sha256[:12]}…. Name the slide that the store was made from."
            )
        header = slide.finest_header
        result = DicomResult(header.dataset, header.path.name, plane_of(header), predictions)
    for kind, path in files.items():
        dataset = (segmentation if kind == "dicom-seg" else parametric_map)(result)
        with new_file(path) as stream:
            save(dataset, stream)
    if result.source_plane.has_origin:
        return None
    return "the slide does not state its position on the glass: its first pixel was taken as the origin"
