"""The tiling workflow: from stores and a manifest to one tile table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pipeline.annotations.files import read_annotations
from pipeline.annotations.frames import frame_of_store, on_slide
from pipeline.annotations.shapes.objects import AnnotationFile
from pipeline.annotations.shapes.region import Region, check_regions
from pipeline.annotations.shapes.repair import RepairReport, labelled_regions
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.cohort.split import assign_splits
from pipeline.errors import CorruptTileError, DamagedStoreError, LeakageError, WrongSlideError
from pipeline.files import sha256_of
from pipeline.grid import CoarseSlideError, tile_grid
from pipeline.naming.slides import find_slide_ids, included_in
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.layers.damaged import damaged_fraction
from pipeline.store.layers.labels import mask_fingerprint, tissue_share
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.labels import SlideLabel, TileLabels, class_order, label_slide, label_tiles
from pipeline.tiles.qc_filter import UncheckedSlideError, good_enough, tile_scores
from pipeline.tiles.table import TileTable, check_replaceable, write_table
from pipeline.tiles.unlabelled import count_by_class
from training.foundation.errors import EmptyTableError, GemslideError, UnreadableError
from training.foundation.progress import Advance, no_bar
from training.foundation.words.counts import counted
from training.foundation.words.names import is_name

OF_ONE_SLIDE = (
    CoarseSlideError, CorruptTileError, DamagedStoreError, UncheckedSlideError, UnreadableError, WrongSlideError,
)  # fmt: skip
"""Errors of one store, not of the manifest, its annotations or settings, which apply to all slides."""

LeaveOut = Callable[[str, GemslideError], None]
"""Called with the id of each slide that cannot be tiled, and the error."""


@dataclass(frozen=True)
class _Annotations:
    path: Path
    file: AnnotationFile
    regions: list[Region]
    """Positioned as in the file."""
    repairs: RepairReport


@dataclass(frozen=True)
class _SlideToTile:
    entry: SlideEntry
    reader: StoreReader
    regions: list[Region]
    annotations: dict[str, object] | None
    """Entry of the tile table on the annotation file: its SHA-256 and repairs, never its name."""


@dataclass(frozen=True)
class _TiledSlide:
    slide: _SlideToTile
    rows: pd.DataFrame
    stride_px0: int
    quality: dict[str, object]
    mask: str
    """Fingerprint of the tissue mask that tiles were chosen with."""
    outlined: dict[str, dict[str, object]]
    """Counts of each outlined class (`unlabelled.py`)."""


def make_tile_table(
    project: Project,
    tile_set: str,
    config: TileConfig,
    *,
    cohort: Cohort | None = None,
    slide_ids: Sequence[str] | None = None,
    leave_out: LeaveOut | None = None,
    advance: Advance = no_bar,
) -> TileTable:
    """Write `tiles/<tile_set>.parquet` from the project's stores.

    Splits, classes and annotations are those of the whole cohort, whatever slides are left out.

    Args:
        cohort: gives slides, patients, annotations and splits; None takes stores, unlabelled.
        slide_ids: without a cohort, these slides; None: all.
        leave_out: called for slides without a readable store or mask, or scanned too coarsely, which the table's
            metadata then names; None: the first error is raised.

    Raises:
        BadManifestError, BadAnnotationError, NoSlidesError, LeakageError, EmptyTableError, BadRecipeError.
    """
    target = project.tile_table_path(tile_set)
    check_replaceable(target, has_manifest=cohort is not None)
    entries = included_in(cohort) if cohort else _bare_entries(project, slide_ids)
    splits = assign_splits(entries, config.split)
    advance.expect(len(entries))
    annotated, classes = _annotations_and_classes(cohort, entries, config)
    left_out: dict[str, str] = {}
    slides: list[_SlideToTile] = []
    for entry in entries:
        with _left_out(entry.slide_id, left_out, leave_out):
            slides.append(_open(project, entry, annotated[entry.slide_id], config))
    _check_no_copy_in_another_split(slides, splits)
    tiled: list[_TiledSlide] = []
    for slide in slides:
        with _left_out(slide.entry.slide_id, left_out, leave_out):
            tiled.append(_rows(slide, config, classes))
        advance(1)
    advance(len(entries) - len(slides))
    if not tiled:
        raise EmptyTableError(
            f"{target.name}: none of {counted(len(entries), 'slide')} could be tiled. No table was written."
        )
    metadata = {
        "class_order": list(classes),
        "settings": config.model_dump(mode="json"),
        "manifest_sha256": sha256_of(cohort.path) if cohort else None,
        "left_out": left_out,
        **_by_slide(tiled),
    }
    frames = [done.rows.assign(split=splits[done.slide.entry.slide_id]) for done in tiled]
    table = TileTable(pd.concat(frames, ignore_index=True), metadata)
    write_table(target, table)
    return table


@contextmanager
def _left_out(slide_id: str, left_out: dict[str, str], report: LeaveOut | None) -> Iterator[None]:
    """Leave out a slide with an error of its own, and `report` it; without `report`, raise the error."""
    try:
        yield
    except OF_ONE_SLIDE as error:
        if report is None:
            raise
        left_out[slide_id] = error.code
        report(slide_id, error)


def _by_slide(tiled: Sequence[_TiledSlide]) -> dict[str, dict[str, object]]:
    """The table's metadata by slide."""
    by_id = {done.slide.entry.slide_id: done for done in tiled}
    heights = ((slide_id, done.slide.reader.plane_um) for slide_id, done in by_id.items())
    planes_um: dict[str, object] = {slide_id: height for slide_id, height in heights if height is not None}
    return {
        "stride_px0": {slide_id: done.stride_px0 for slide_id, done in by_id.items()},
        "sources": {slide_id: done.slide.reader.source_sha256 for slide_id, done in by_id.items()},
        "masks": {slide_id: done.mask for slide_id, done in by_id.items()},
        "scanners": {slide_id: _scanner(done.slide) for slide_id, done in by_id.items()},
        "quality": {slide_id: done.quality for slide_id, done in by_id.items()},
        "annotations": {s: done.slide.annotations for s, done in by_id.items() if done.slide.annotations},
        "outlined": {slide_id: done.outlined for slide_id, done in by_id.items() if done.outlined},
        **({"planes_um": planes_um} if planes_um else {}),
    }


def _check_no_copy_in_another_split(slides: Sequence[_SlideToTile], splits: Mapping[str, str | None]) -> None:
    """The same bytes under two names, in two splits, are one patient on both sides."""
    first: dict[str, str] = {}
    for slide in slides:
        slide_id, sha256 = slide.entry.slide_id, slide.reader.source_sha256
        other = first.setdefault(sha256, slide_id)
        if splits[other] != splits[slide_id]:
            raise LeakageError(
                f"slides {other} and {slide_id} are the same file (SHA-256 {sha256[:12]}…) but are in the splits "
                f"{splits[other]} and {splits[slide_id]}. Exclude one of them in the cohort manifest."
            )


def _bare_entries(project: Project, slide_ids: Sequence[str] | None) -> tuple[SlideEntry, ...]:
    requested = find_slide_ids((), project) if slide_ids is None else slide_ids
    return tuple(SlideEntry(path=slide_id, slide_id=slide_id) for slide_id in requested if is_name(slide_id))


def _scanner(slide: _SlideToTile) -> str | None:
    """The scanner as the manifest names it, otherwise as the slide file did."""
    return slide.entry.scanner or slide.reader.attributes.scanner_model


def _annotations_and_classes(
    cohort: Cohort | None, entries: Sequence[SlideEntry], config: TileConfig
) -> tuple[dict[str, _Annotations | None], tuple[str, ...]]:
    """Each slide's annotations, whether or not it was ingested, and the classes of the tile set in order."""
    if config.label_by == "slide":
        labels = [SlideLabel(entry.label, entry.slide_id) for entry in entries if entry.label]
        annotated: dict[str, _Annotations | None] = {entry.slide_id: None for entry in entries}
        return annotated, class_order(labels, config.classes, config.ignore_classes)
    annotated = {entry.slide_id: _read_annotations(cohort, entry) for entry in entries}
    regions = [region for annotations in annotated.values() if annotations for region in annotations.regions]
    return annotated, class_order(regions, config.classes, config.ignore_classes)


def _read_annotations(cohort: Cohort | None, entry: SlideEntry) -> _Annotations | None:
    path = cohort.annotations_path(entry) if cohort else None
    if path is None:
        return None
    file = read_annotations(path)
    regions, repairs = labelled_regions(file)
    return _Annotations(path, file, regions, repairs)


def _open(project: Project, entry: SlideEntry, annotations: _Annotations | None, config: TileConfig) -> _SlideToTile:
    try:
        reader = StoreReader(project.stored_at(entry.slide_id), config.plane_um)
    except UnreadableError as error:
        raise UnreadableError(
            f"slide {entry.slide_id}: {error} Ingest it, or enter the reason under `exclude` in the manifest."
        ) from error
    if annotations is None:
        return _SlideToTile(entry, reader, [], None)
    frame = frame_of_store(reader.attributes).as_set(config.qupath_counts_from, allow_other_mpp=config.allow_other_mpp)
    file, regions, repairs = on_slide(annotations.file, frame), annotations.regions, annotations.repairs
    if file is not annotations.file:
        regions, repairs = labelled_regions(file)
    check_regions(regions, reader.size_wh_px0)
    sha256 = sha256_of(annotations.path)
    moved_xy0 = frame.origin_xy0(annotations.file)
    record = {"format": file.format, "sha256": sha256, "moved_xy0": moved_xy0, **repairs.as_dict()}
    return _SlideToTile(entry, reader, regions, record)


def _rows(slide: _SlideToTile, config: TileConfig, classes: Sequence[str]) -> _TiledSlide:
    """A slide's rows, its stride in level-0 pixels, and the table's record of its quality."""
    reader = slide.reader
    grid = tile_grid(
        reader.size_wh_px0, reader.mpp0, tile_px=config.tile_px, mpp=config.mpp, overlap_px=config.overlap_px
    )
    corners_xy0 = grid.corners_xy0
    mask = mask_fingerprint(reader.path)
    tissue = tissue_share(reader.path, reader.mpp0, corners_xy0, grid.side_px0)
    touches_damage = damaged_fraction(reader.path, corners_xy0, grid.side_px0) > 0
    kept = (tissue >= config.min_tissue) & ~touches_damage
    scores, checked = tile_scores(reader, corners_xy0[kept], grid.side_px0)
    good = good_enough(scores, config.max_qc, checked=checked, slide_id=reader.slide_id)
    corners_xy0, tissue = corners_xy0[kept][good], tissue[kept][good]
    labels = _labels(slide, corners_xy0, grid.side_px0, config, classes)
    frame = pd.DataFrame(
        {
            "slide_id": reader.slide_id,
            "patient_id": slide.entry.patient_id,
            "x_px0": corners_xy0[:, 0].astype(np.int32),
            "y_px0": corners_xy0[:, 1].astype(np.int32),
            "side_px0": np.int32(grid.side_px0),
            "tile_px": np.int32(config.tile_px),
            "mpp": config.mpp,
            "level": np.int8(reader.tile_level(config.read, mpp=config.mpp, side_px0=grid.side_px0)),
            "tissue": tissue,
            "label": _names(labels, classes),
            "label_fraction": labels.fraction,
        }
    )
    frame = pd.concat([frame, scores[good].reset_index(drop=True)], axis=1)
    quality: dict[str, object] = {
        "checked": checked,
        "left_out": int((~good).sum()),
        "damaged_tiles": int(touches_damage.sum()),
    }
    outlined = count_by_class(slide.regions, labels, classes)
    return _TiledSlide(slide, frame, grid.stride_px0, quality, mask, outlined)


def _labels(
    slide: _SlideToTile, corners_xy0: NDArray[np.int64], side_px0: int, config: TileConfig, classes: Sequence[str]
) -> TileLabels:
    if config.label_by == "slide":
        return label_slide(slide.entry.label, len(corners_xy0), classes)
    return label_tiles(
        slide.regions,
        corners_xy0,
        side_px0,
        classes=classes,
        min_fraction=config.min_label_fraction,
        label_by=config.label_by,
    )


def _names(labels: TileLabels, classes: Sequence[str]) -> list[str | None]:
    return [None if index < 0 else classes[index] for index in labels.class_index]
