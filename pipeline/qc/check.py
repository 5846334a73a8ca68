"""The quality control workflow: from a slide's pixels to scores, a verdict and the slide's stain."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import NoTissueError
from pipeline.jobs.key import is_finished
from pipeline.project import Project
from pipeline.qc.artefacts import find_artefacts
from pipeline.qc.focus import blur_score
from pipeline.qc.scan import QualityGrid, Scan, quality_grid, scan_slide, tissue_on
from pipeline.qc.stain import fit_stain
from pipeline.qc.thumbnail import write_thumbnail
from pipeline.run_record import versions
from pipeline.settings.config import QualityConfig
from pipeline.store.layers.labels import mask_fingerprint, read_tissue
from pipeline.store.layers.qc_scores import SCORE_NAMES, Quality, read_quality, stored_summary, write_quality
from pipeline.store.layers.tissue_origin import mask_origin
from pipeline.store.reading.reader import StoreReader
from training.foundation.progress import Advance, no_bar

COARSEST_FOR_FOCUS_MPP = 2.5
"""At coarser resolution, slides in and out of focus look alike."""
METHOD_VERSION = 1
"""Number of changes to the rules that gave other scores for the same settings."""


@dataclass(frozen=True)
class QualityReport:
    """Outcome of quality control of one slide."""

    slide_id: str
    source_sha256: str
    verdict: str
    reasons: tuple[str, ...]
    shares: dict[str, float | None]
    """Per score, the share of the tissue's cells above its threshold; None: could not be judged."""
    image: Path
    skipped: bool
    seconds: float


def check_quality(
    slide_id: str, project: Project, config: QualityConfig, *, advance: Advance = no_bar
) -> QualityReport:
    """Score a slide's tissue, fit its stain and draw it; skipped if already done with the same settings.

    Raises:
        UnreadableError: no such store. NoTissueError: nothing to check. LockedError, DiskFullError: the target.
    """
    start = time.perf_counter()
    reader = StoreReader(project.store_path(slide_id), config.plane_um)
    image = project.quality_dir(slide_id) / "quality.png"
    key = qc_key(reader, config)
    summary = stored_summary(reader)
    skipped = summary is not None and is_finished(stored_key(summary, reader), key)
    if summary is None or not skipped:
        summary = _check(reader, config, key, image, advance)
    elif not image.exists():
        quality = read_quality(reader.path)
        assert quality is not None
        write_thumbnail(image, reader, quality, summary)
    seconds = round(time.perf_counter() - start, 3)
    shares = {name: entry["share_above"] for name, entry in summary["scores"].items()}
    return QualityReport(
        slide_id=slide_id,
        source_sha256=reader.source_sha256,
        verdict=summary["verdict"],
        reasons=tuple(summary["reasons"]),
        shares=shares,
        image=image,
        skipped=skipped,
        seconds=seconds,
    )


def qc_key(reader: StoreReader, config: QualityConfig) -> dict[str, Any]:
    """Key of everything that a slide's scores depend on."""
    return {
        "source_sha256": reader.source_sha256,
        "settings": config.model_dump(mode="json", exclude={"plane_um"}),
        "method": METHOD_VERSION,
        "mask": mask_fingerprint(reader.path),
        **({} if reader.plane_um is None else {"plane_um": reader.plane_um}),
    }


def stored_key(summary: Mapping[str, Any], reader: StoreReader) -> dict[str, Any]:
    """Key that a stored summary was made from; older ones name no mask, and were made with ingest's."""
    made_from = dict(summary["made_from"])
    if "mask" not in made_from and mask_origin(reader.path) is None:
        made_from["mask"] = mask_fingerprint(reader.path)
    return made_from


def _check(
    reader: StoreReader, config: QualityConfig, key: dict[str, Any], image: Path, advance: Advance
) -> dict[str, Any]:
    grid = quality_grid(reader.size_wh_px0, reader.mpp0, config)
    mask_yx, mask_mpp = read_tissue(reader.path)
    tissue = tissue_on(grid, mask_yx, mask_mpp / reader.mpp0)
    cell_tissue = _per_cell(tissue, grid)
    if not (cell_tissue >= config.min_tissue).any():
        raise NoTissueError(
            f"slide {reader.slide_id}: no cell of {grid.cell_px0} level-0 pixels is at least {config.min_tissue:.0%} "
            "tissue. Look at the tissue mask in the viewer; change [ingest] tissue and ingest again if it is wrong."
        )
    scan = scan_slide(reader, grid, tissue, config.stain_pixels, advance)
    masks = find_artefacts(scan.overview, scan.lightest, tissue, grid.overview_mpp)
    scores = {"blur": _blur(scan, tissue, grid)} | {name: _share(mask, tissue, grid) for name, mask in masks.items()}
    scores_cyx = np.stack([scores[name] for name in SCORE_NAMES])
    scores_cyx[:, cell_tissue < config.min_tissue] = np.nan
    clean = ~np.logical_or.reduce(list(masks.values())).ravel()
    sample = scan.sample[clean[scan.sample_at]]
    stain = {**fit_stain(sample, config.stain), "mpp": grid.mpp, "versions": versions()}
    summary = {**summarise(scores_cyx, config, grid.mpp), "cell_px0": grid.cell_px0, "mpp": grid.mpp}
    summary |= {"made_from": key, "versions": versions()}
    attributes = {"made_from": key, "thresholds": {n: config.limit(n).threshold for n in SCORE_NAMES}}
    quality = Quality(SCORE_NAMES, scores_cyx.astype(np.float16), grid.cell_px0, attributes)
    write_thumbnail(image, reader, quality, summary)
    write_quality(reader.folder, quality, mpp0=reader.mpp0, summary=summary, stain=stain)
    return summary


def _blur(scan: Scan, tissue: NDArray[np.bool_], grid: QualityGrid) -> NDArray[np.float32]:
    if grid.mpp > COARSEST_FOR_FOCUS_MPP:
        return np.full((grid.rows, grid.columns), np.nan, np.float32)
    return blur_score(scan.sharp, scan.soft, _per_cell(tissue, grid) * grid.cell_px**2)


def _per_cell(values_yx: NDArray[np.bool_], grid: QualityGrid) -> NDArray[np.float32]:
    """Share of each cell that is set, float32 (rows, columns)."""
    c = grid.cell_side
    return np.asarray(values_yx.reshape(grid.rows, c, grid.columns, c).mean((1, 3)), np.float32)


def _share(mask: NDArray[np.bool_], tissue: NDArray[np.bool_], grid: QualityGrid) -> NDArray[np.float32]:
    """Share of each cell's tissue that the mask covers."""
    covered, whole = _per_cell(mask & tissue, grid), _per_cell(tissue, grid)
    return np.asarray(covered / np.maximum(whole, 1e-6), np.float32)


def summarise(scores_cyx: NDArray[np.float32], config: QualityConfig, mpp: float) -> dict[str, Any]:
    """Verdict on a slide: `review` when a score is above its threshold in too large a share of the tissue.

    Args:
        scores_cyx: float (scores, rows, columns) in the order of SCORE_NAMES; NaN = no tissue.
        mpp: microns per pixel that the scores were made at.
    """
    reasons, entries = [], {}
    for name, scores in zip(SCORE_NAMES, scores_cyx, strict=True):
        limit = config.limit(name)
        known = scores[np.isfinite(scores)]
        entry: dict[str, Any] = {"threshold": limit.threshold, "max_share": limit.max_share, "cells": len(known)}
        entry |= {"median": None, "p95": None, "share_above": None}
        if len(known):
            share = float((known > limit.threshold).mean())
            entry |= {"median": _rounded(np.median(known)), "p95": _rounded(np.percentile(known, 95))}
            entry["share_above"] = _rounded(share)
            if share > limit.max_share:
                reasons.append(
                    f"{name} above {limit.threshold:g} in {share:.1%} of the tissue (at most {limit.max_share:.1%})"
                )
        elif name == "blur":
            reasons.append(
                f"focus cannot be judged at {mpp:.3g} µm/px"
                if mpp > COARSEST_FOR_FOCUS_MPP
                else "no edges to judge focus by"
            )
        entries[name] = entry
    tissue_cells = int(np.isfinite(scores_cyx).any(0).sum())
    verdict = "review" if reasons else "ok"
    return {"verdict": verdict, "reasons": reasons, "scores": entries, "tissue_cells": tissue_cells}


def _rounded(value: float) -> float:
    return round(float(value), 4)
