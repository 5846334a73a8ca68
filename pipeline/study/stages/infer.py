"""Inference: one model's predictions of a slide, in its store and in files beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np

from pipeline.evaluation.stored import RULES, slide_scores
from pipeline.export.common.cells import fingerprint
from pipeline.files import sha256_of
from pipeline.jobs.stage import Stage
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import predictions_path, read_predictions
from pipeline.study.stages.hashes import folder_sha256
from pipeline.study.stages.kind import Output, StageKind, Work

_SAY_WHEN: Final = ("report", "dicom-seg", "dicom-pm")
"""Results whose files contain the time they were made: two runs, only one of which counts, leave different files."""


class Infer(StageKind):
    """Its output is the predictions; its measures are a slide's scores, with `stored_sha256` of the layer's files and
    `files`: the SHA-256 of each file of the slide's results that does not contain the time it was made."""

    name = section = "infer"
    settings: ClassVar = InferConfig
    of_models = True

    def outputs(self, project: Project, slide_id: str) -> Iterator[Path]:
        models = [folder for folder in project.results_dir.glob("*") if folder.is_dir() and not folder.is_symlink()]
        yield from (folder / slide_id for folder in models)

    def stage(self, work: Work) -> Stage:
        from pipeline.inference.stage import InferStage

        output, config = work.output, cast(InferConfig, work.settings)
        package = work.packages[output.network_id]
        return InferStage(output.slide_id, package, output.project, config, work.devices, work.source.path)

    def output_sha256(self, output: Output) -> str:
        return fingerprint(read_predictions(output.store, output.network_id))

    def measures(self, output: Output) -> dict[str, Any]:
        from pipeline.inference.results.files import FILE_OF, is_own_file

        predictions = read_predictions(output.store, output.network_id)
        results = output.project.result_dir(output.slide_id, output.network_id)
        others = {FILE_OF[kind] for kind in _SAY_WHEN}
        ours = [path for path in sorted(results.glob("*")) if is_own_file(path.name) and path.name not in others]
        return {
            "classes": list(predictions.class_names),
            "scores": {rule: [round(float(s), 6) for s in slide_scores(predictions, rule)] for rule in RULES},
            "cells": int(np.isfinite(predictions.probabilities_cyx[0]).sum()),
            "stored_sha256": folder_sha256(predictions_path(output.store, output.network_id)),
            "files": {path.name: sha256_of(path) for path in ours},
        }


INFER = Infer()
