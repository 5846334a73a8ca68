"""What a study keeps of each finished stage's output, so that its report reads the ledger and no store."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.evaluation.stored import RULES, slide_scores
from pipeline.inference.slide_facts import tissue_mm2
from pipeline.project import Project
from pipeline.store.overlays import read_predictions
from pipeline.store.qc_scores import stored_summary
from pipeline.store.reader import StoreReader


def measures_of(project: Project, slide_id: str, stage: str) -> dict[str, Any]:
    """Of ingest: size and pixel; of quality control: verdict, reasons and scores; of inference: a slide's scores.

    Raises:
        UnreadableError: the output is not there, or damaged. EmptyTableError: nothing of the slide was predicted.
    """
    reader = StoreReader(project.store_path(slide_id))
    if stage == "ingest":
        return _of_store(reader)
    if stage == "qc":
        summary = stored_summary(reader) or {}
        return {name: summary.get(name) for name in ("verdict", "reasons", "scores")}
    predictions = read_predictions(reader.path, stage.removeprefix("infer "))
    return {
        "classes": list(predictions.class_names),
        "scores": {rule: [round(float(s), 6) for s in slide_scores(predictions, rule)] for rule in RULES},
        "cells": int(np.isfinite(predictions.probabilities_cyx[0]).sum()),
    }


def _of_store(reader: StoreReader) -> dict[str, Any]:
    return {
        "size_px0": list(reader.size_wh_px0),
        "mpp0": reader.mpp0,
        "mpp_source": reader.attributes.mpp_source,
        "scanner": reader.attributes.scanner_model,
        "tissue_mm2": tissue_mm2(reader),
    }
