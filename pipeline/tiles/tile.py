"""The tiling workflow: stores and a manifest into one tile table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.annotations.files import read_annotations
from pipeline.annotations.geojson import qupath_origin_xy0
from pipeline.annotations.region import Region, check_regions, moved
from pipeline.annotations.repair import labelled_regions
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.cohort.split import assign_splits
from pipeline.config import TileConfig
from pipeline.errors import BadManifestError, LeakageError, UnreadableError
from pipeline.files import sha256_of
from pipeline.grid import tile_grid, tissue_fraction
from pipeline.progress import Advance, no_bar
from pipeline.project import Project
from pipeline.store.labels import read_tissue
from pipeline.store.reader import StoreReader
from pipeline.tiles.labels import TileLabels, class_order, label_tiles
from pipeline.tiles.qc_filter import good_enough, tile_scores
from pipeline.tiles.table import TileTable, check_replaceable, write_table
from training.foundation.names import is_name


@dataclass(frozen=True)
class _SlideToTile:
    entry: SlideEntry
    reader: StoreReader
    regions: list[Region]
    annotations: dict[str, object] | None
    """What the tile table says of the annotation file: its bytes and what was repaired, never its name."""


def make_tile_table(
    project: Project,
    tile_set: str,
    config: TileConfig,
    *,
    cohort: Cohort | None,
    advance: Advance = no_bar,
) -> TileTable:
    """Write `tiles/<tile_set>.parquet` from the project's stores.

    Args:
        cohort: says which slides, patients, annotations and splits; None takes every store, unlabelled.

    Raises:
        BadManifestError, BadAnnotationError, LeakageError, EmptyTableError, BadRecipeError.
    """
    target = project.tile_table_path(tile_set)
    check_replaceable(target, has_manifest=cohort is not None)
    entries = cohort.included if cohort else tuple(map(_bare_entry, filter(is_name, project.slide_ids())))
    if not entries:
        raise BadManifestError(f"{project.slides_dir}: no slides. Run `gemslide ingest` first.")
    splits = assign_splits(entries, config.split)
    advance.expect(len(entries))
    slides = [_open(project, cohort, entry, config) for entry in entries]
    _check_no_copy_in_another_split(slides, splits)
    regions = [region for slide in slides for region in slide.regions]
    classes = class_order(regions, config.classes, config.ignore_classes)
    frames, strides, quality = [], {}, {}
    for slide in slides:
        slide_id = slide.entry.slide_id
        frame, strides[slide_id], quality[slide_id] = _rows(slide, config, classes)
        frames.append(frame.assign(split=splits[slide_id]))
        advance(1)
    metadata = {
        "class_order": list(classes),
        "stride_px0": strides,
        "settings": config.model_dump(mode="json"),
        "manifest_sha256": sha256_of(cohort.path) if cohort else None,
        "sources": {slide.entry.slide_id: slide.reader.source_sha256 for slide in slides},
        "quality": quality,
        "annotations": {slide.entry.slide_id: slide.annotations for slide in slides if slide.annotations},
    }
    table = TileTable(pd.concat(frames, ignore_index=True), metadata)
    write_table(target, table)
    return table


def _check_no_copy_in_another_split(slides: Sequence[_SlideToTile], splits: Mapping[str, str | None]) -> None:
    """The same bytes under two names, in two splits, are one patient on both sides."""
    first: dict[str, str] = {}
    for slide in slides:
        slide_id, sha256 = slide.entry.slide_id, slide.reader.source_sha256
        other = first.setdefault(sha256, slide_id)
        if splits[other] != splits[slide_id]:
            raise LeakageError(
                f"slides {other} and {slide_id} are the same file (SHA-256 {sha256[:12]}…) but stand in the splits "
                f"{splits[other]} and {splits[slide_id]}. Exclude one of them in the cohort manifest."
            )


def _bare_entry(slide_id: str) -> SlideEntry:
    return SlideEntry(path=slide_id, slide_id=slide_id)


def _open(project: Project, cohort: Cohort | None, entry: SlideEntry, config: TileConfig) -> _SlideToTile:
    try:
        reader = StoreReader(project.store_path(entry.slide_id))
    except UnreadableError as error:
        raise UnreadableError(
            f"slide {entry.slide_id}: {error} Ingest it, or fill `exclude` in the manifest with the reason."
        ) from error
    annotations = cohort.annotations_path(entry) if cohort else None
    if annotations is None:
        return _SlideToTile(entry, reader, [], None)
    file = read_annotations(annotations)
    regions, repairs = labelled_regions(file)
    crops = file.format == "qupath" and config.qupath_counts_from == "scanned"
    moved_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0) if crops else (0, 0)
    regions = moved(regions, moved_xy0)
    check_regions(regions, reader.size_wh_px0)
    about = {"format": file.format, "sha256": sha256_of(annotations), "moved_xy0": moved_xy0, **repairs.as_dict()}
    return _SlideToTile(entry, reader, regions, about)


def _rows(
    slide: _SlideToTile, config: TileConfig, classes: Sequence[str]
) -> tuple[pd.DataFrame, int, dict[str, object]]:
    """A slide's rows, its stride in level-0 pixels, and what the table says of its quality."""
    reader = slide.reader
    grid = tile_grid(
        reader.size_wh_px0, reader.mpp0, tile_px=config.tile_px, mpp=config.mpp, overlap_px=config.overlap_px
    )
    mask_yx, mask_mpp = read_tissue(reader.path)
    corners_xy0 = grid.corners_xy0
    tissue = tissue_fraction(corners_xy0, grid.side_px0, mask_yx, mask_mpp / reader.mpp0)
    kept = tissue >= config.min_tissue
    scores, checked = tile_scores(reader, corners_xy0[kept], grid.side_px0)
    good = good_enough(scores, config.max_qc, checked=checked, slide_id=reader.slide_id)
    corners_xy0, tissue = corners_xy0[kept][good], tissue[kept][good]
    labels = label_tiles(
        slide.regions,
        corners_xy0,
        grid.side_px0,
        classes=classes,
        min_fraction=config.min_label_fraction,
        label_by=config.label_by,
    )
    frame = pd.DataFrame(
        {
            "slide_id": reader.slide_id,
            "patient_id": slide.entry.patient_id,
            "x_px0": corners_xy0[:, 0].astype(np.int32),
            "y_px0": corners_xy0[:, 1].astype(np.int32),
            "side_px0": np.int32(grid.side_px0),
            "tile_px": np.int32(config.tile_px),
            "mpp": config.mpp,
            "level": np.int8(reader.level_for_downsample(config.mpp / reader.mpp0)),
            "tissue": tissue,
            "label": _names(labels, classes),
            "label_fraction": labels.fraction,
        }
    )
    frame = pd.concat([frame, scores[good].reset_index(drop=True)], axis=1)
    return frame, grid.stride_px0, {"checked": checked, "left_out": int((~good).sum())}


def _names(labels: TileLabels, classes: Sequence[str]) -> list[str | None]:
    return [None if index < 0 else classes[index] for index in labels.class_index]
