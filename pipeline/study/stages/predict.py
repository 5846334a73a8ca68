"""Prediction by a slide-level model: what it says of a slide or a patient, from the features of all slides of these.

Each of a patient's slides has a task. The first one predicts the patient and publishes the results of all the slides;
the others find them finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from pipeline.errors import DamagedStoreError
from pipeline.files import sha256_of
from pipeline.jobs.stage import Stage
from pipeline.ledger.chain import digest
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.slide_level.record import ATTENDED, RECORD, find_records, read_record
from pipeline.store.layers.attention import attention_path, read_attention
from pipeline.study.stages.hashes import folder_sha256
from pipeline.study.stages.kind import Output, StageKind, Work


class Predict(StageKind):
    """Its output is the answers and the map of attention; its measures are a hash of the slides that it rests on, the
    number of their tiles and the answers for each target, with `stored_sha256` of the layer's files and `files`: the
    SHA-256 of those beside the store."""

    name = "predict"
    section = "infer"
    settings: ClassVar = InferConfig
    of_models = True
    joins = True

    def outputs(self, project: Project, slide_id: str) -> Iterator[Path]:
        """Also those of the patient's other slides: they rest on this slide, and name it."""
        for model_id, other in find_records(project, slide_id):
            yield project.result_dir(other, model_id)
            yield attention_path(project.store_path(other), model_id)

    def stage(self, work: Work) -> Stage:
        from pipeline.slide_level.stage import PredictUnit

        output, config = work.output, cast(InferConfig, work.settings)
        package = work.packages[output.network_id]
        # On the CPU whatever the worker has: the patient's next slide, on another worker, must find the same results.
        return PredictUnit(work.unit, work.slide_ids, package, output.project, require_qc=config.require_qc)

    def output_sha256(self, output: Output) -> str:
        answers = {name: target["values"] for name, target in _record(output)["targets"].items()}
        map_yx = read_attention(output.store, output.network_id).times_average_yx
        # One bit pattern for "no tile", whatever wrote it.
        values = np.where(np.isnan(map_yx), np.float16(np.nan), map_yx).astype("<f2")
        return digest([answers, list(values.shape), values.tobytes().hex()])

    def measures(self, output: Output) -> dict[str, Any]:
        record, results = _record(output), output.project.result_dir(output.slide_id, output.network_id)
        return {
            "slides_sha256": slides_sha256(record["slides"]),
            "tiles": record["tiles"],
            "answers": record["targets"],
            "stored_sha256": folder_sha256(attention_path(output.store, output.network_id)),
            "files": {name: sha256_of(results / name) for name in (ATTENDED, RECORD)},
        }


def slides_sha256(slide_ids: Iterable[str]) -> str:
    """SHA-256 of the slides that a prediction rests on; their ids would outlast an erasure of one of them."""
    return digest(sorted(slide_ids))


def _record(output: Output) -> dict[str, Any]:
    folder = output.project.result_dir(output.slide_id, output.network_id)
    record = read_record(folder)
    if record is None or output.slide_id not in record["slides"]:
        raise DamagedStoreError(
            f"{folder / RECORD}: is missing, damaged, or of other slides. Make it again with `gemslide infer`."
        )
    return record


PREDICT = Predict()
