"""A new tissue mask for a slide in the project: detected again, or made from areas or an image."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.annotations.files import parse_annotations
from pipeline.annotations.frames import frame_of_store, on_slide
from pipeline.annotations.shapes.objects import IGNORED_ENDING, AnnotationFile
from pipeline.annotations.shapes.region import Region, check_regions
from pipeline.annotations.shapes.repair import labelled_regions
from pipeline.bounded import Limits, within
from pipeline.errors import BadAnnotationError, NoTissueError
from pipeline.ingest.tissue.given import MAX_PNG_BYTES, is_png, mask_grid, mask_of_png, mask_of_regions
from pipeline.ingest.tissue.missing import find_stored_tissue
from pipeline.settings.config import TissueConfig
from pipeline.store.layers.tissue_origin import mask_origin, outdated_models, replace_tissue
from pipeline.store.reading.reader import StoreReader
from training.foundation.reading import read_regular

MAX_ANNOTATION_BYTES = 2**28
NO_CLASS = "no class"


@dataclass(frozen=True)
class NewTissue:
    """Outcome for a slide's mask."""

    slide_id: str
    fraction: float
    """Share of the slide that is tissue now."""
    fraction_before: float
    is_new: bool
    """False: the mask is what it was before."""
    text: str
    """Origin of the mask, for people."""
    outdated: tuple[str, ...]
    """Models whose predictions were made with another mask."""
    dropped: tuple[str, ...] = ()
    """Parts of a file that could not be imported, one sentence each."""


def find_again(reader: StoreReader, config: TissueConfig) -> NewTissue:
    """Find the tissue in a slide's stored pixels with these settings.

    Raises:
        NoTissueError: there is none; the mask stays. UnreadableError, DiskFullError, LockedError: the store.
        BadRecipeError: the mask would take too much memory.
    """
    mask_grid(reader, config)
    tissue = find_stored_tissue(reader, config)
    return _put(reader, tissue.mask_yx, tissue.mpp, made="found", settings=config.model_dump(mode="json"))


def from_regions(
    reader: StoreReader, regions: Sequence[Region], config: TissueConfig, *, classes: Sequence[str]
) -> NewTissue:
    """Use areas that were drawn in the project, in level-0 pixels.

    Raises:
        BadAnnotationError: there are none, or they are outside the slide. NoTissueError, …: as `find_again`.
    """
    if not regions:
        raise BadAnnotationError(
            f"slide {reader.slide_id}: no area of class {' or '.join(map(repr, classes))} has been drawn on it. "
            "Draw one in the app, or name another class."
        )
    check_regions(regions, reader.size_wh_px0)
    mask_yx, mpp = mask_of_regions(reader, regions, config)
    return _put(reader, mask_yx, mpp, made="drawn", classes=tuple(classes), areas=len(regions))


def from_file(
    reader: StoreReader,
    path: Path,
    config: TissueConfig,
    *,
    classes: Sequence[str] = (),
    counts_from: str = "scanned",
    allow_other_mpp: bool = False,
) -> NewTissue:
    """Use the areas of an annotation file (GeoJSON and the other formats), or a PNG of the whole slide.

    Args:
        classes: classes of an annotation file whose areas are tissue; empty: all areas.
        counts_from: where QuPath's coordinates begin, as in `[tile] qupath_counts_from`.
        allow_other_mpp: accept an annotation file that states another pixel size than the slide has.

    Raises:
        BadAnnotationError: the file cannot be used, or belongs to another slide. NoTissueError, …: as `find_again`.
    """
    data = _read(path)
    sha256 = hashlib.sha256(data).hexdigest()
    if is_png(data):
        if classes:
            raise BadAnnotationError(f"{path}: is an image, which has no classes. Leave --class out.")
        mask_yx, mpp = mask_of_png(reader, data, path, config)
        return _put(reader, mask_yx, mpp, made="imported", file_format="png", file_sha256=sha256)
    with within(Limits.for_file(len(data)), str(path)):
        file = parse_annotations(data, path)
    frame = frame_of_store(reader.attributes).as_set(counts_from, allow_other_mpp=allow_other_mpp)
    regions, dropped = _tissue_areas(on_slide(file, frame), path, classes)
    check_regions(regions, reader.size_wh_px0)
    mask_yx, mpp = mask_of_regions(reader, regions, config)
    new = _put(
        reader, mask_yx, mpp, made="imported", file_format=file.format, file_sha256=sha256, classes=tuple(classes),
        areas=len(regions),
    )  # fmt: skip
    return replace(new, dropped=dropped)


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, max_bytes=max(MAX_PNG_BYTES, MAX_ANNOTATION_BYTES))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadAnnotationError(f"{path}: cannot be read ({why}). Name a GeoJSON file or a PNG.") from error


def _tissue_areas(file: AnnotationFile, path: Path, classes: Sequence[str]) -> tuple[list[Region], tuple[str, ...]]:
    """The areas that are tissue, valid, and what could not be imported."""
    areas = [area for area in file.objects if area.is_area and area.object_type == "annotation"]
    unknown = sorted(set(classes) - {area.class_name for area in areas if area.class_name})
    if unknown:
        known = sorted({area.class_name or NO_CLASS for area in areas})
        raise BadAnnotationError(
            f"{path}: has no area of class {', '.join(map(repr, unknown))}; its areas are of "
            f"{', '.join(known) or 'no class: there are none'}."
        )
    chosen = [area for area in areas if not classes or (area.class_name or NO_CLASS) in classes]
    # Classes that QuPath ignores, such as Region*, are tissue all the same.
    named = tuple(
        replace(area, class_name=(area.class_name or "").rstrip(IGNORED_ENDING) or NO_CLASS) for area in chosen
    )
    regions, report = labelled_regions(replace(file, objects=named))
    if not regions:
        raise BadAnnotationError(f"{path}: has no area that could be tissue: lines, points and cells do not count.")
    return regions, (*report.dropped, *file.notes)


def _put(reader: StoreReader, mask_yx: NDArray[np.bool_], mpp: float, **origin: Any) -> NewTissue:
    if not mask_yx.any():
        raise NoTissueError(
            f"slide {reader.slide_id}: the new mask has no tissue at all. The old mask was kept; check the "
            "settings, or the file."
        )
    before = float(reader.attributes.ingest.get("tissue_fraction", 0.0))
    is_new = replace_tissue(reader, mask_yx, mpp, **origin)
    known = mask_origin(reader.path)
    return NewTissue(
        slide_id=reader.slide_id,
        fraction=float(mask_yx.mean()),
        fraction_before=before,
        is_new=is_new,
        text=str(known) if known else "found by ingest",
        outdated=tuple(outdated_models(reader.path)),
    )
