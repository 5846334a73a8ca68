"""Quality control of a slide's store."""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, cast

import numpy as np

from pipeline.files import sha256_of
from pipeline.jobs.stage import Stage
from pipeline.settings.config import QualityConfig
from pipeline.store.layers.qc_scores import QUALITY, read_quality, stored_summary
from pipeline.store.reading.reader import StoreReader
from pipeline.study.stages.hashes import folder_sha256
from pipeline.study.stages.kind import Output, StageKind, Work
from training.foundation.errors import UnreadableError


class Qc(StageKind):
    """Its output is the quality scores; its measures are verdict, reasons and scores, with `stored_sha256` of the
    layer's files and `root_sha256` of the store's own metadata, which has the verdict."""

    name = section = "qc"
    settings: ClassVar = QualityConfig

    def stage(self, work: Work) -> Stage:
        from pipeline.qc.stage import QcStage

        return QcStage(work.output.slide_id, work.output.project, cast(QualityConfig, work.settings))

    def output_sha256(self, output: Output) -> str:
        quality = read_quality(output.store)
        if quality is None:
            raise UnreadableError(f"slide {output.slide_id}: has no quality scores. Run `gemslide qc` on the slide.")
        digest = hashlib.sha256(repr((quality.names, quality.scores_cyx.shape, quality.cell_px0)).encode())
        scores = np.where(np.isnan(quality.scores_cyx), np.float16(np.nan), quality.scores_cyx)
        digest.update(scores.astype("<f2").tobytes())
        return digest.hexdigest()

    def measures(self, output: Output) -> dict[str, Any]:
        summary = stored_summary(StoreReader(output.store)) or {}
        kept = {name: summary.get(name) for name in ("verdict", "reasons", "scores")}
        store = output.store
        return kept | {
            "stored_sha256": folder_sha256(store / QUALITY),
            "root_sha256": sha256_of(store / "zarr.json"),
        }


QC = Qc()
