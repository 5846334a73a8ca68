"""What a stage's output says, as one SHA-256: equal where a rerun gave the same, whatever the time and the machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from pipeline.errors import UnreadableError
from pipeline.export.cells import fingerprint
from pipeline.project import Project
from pipeline.store.checksums import list_digest
from pipeline.store.overlays import read_predictions
from pipeline.store.qc_scores import read_quality


def output_sha256(project: Project, slide_id: str, stage: str) -> str:
    """Hash of what a finished stage has left: a store's files, a slide's quality scores, or its predictions.

    Raises:
        UnreadableError: it is not there, or damaged.
    """
    store = project.store_path(slide_id)
    if stage == "ingest":
        return list_digest(store)
    if stage == "qc":
        return _of_quality(store, slide_id)
    return fingerprint(read_predictions(store, stage.removeprefix("infer ")))


def _of_quality(store: Path, slide_id: str) -> str:
    quality = read_quality(store)
    if quality is None:
        raise UnreadableError(f"slide {slide_id}: has no quality scores. Run `gemslide qc` on the slide.")
    digest = hashlib.sha256(repr((quality.names, quality.scores_cyx.shape, quality.cell_px0)).encode())
    digest.update(
        np.where(np.isnan(quality.scores_cyx), np.float16(np.nan), quality.scores_cyx).astype("<f2").tobytes()
    )
    return digest.hexdigest()
