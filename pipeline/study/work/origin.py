"""Origin of a result: a file beside every slide's results names the study and the protocol that made them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from pipeline.files import write_text_atomic
from pipeline.ledger.chain import utc_now
from pipeline.project import Project
from pipeline.run_record import versions
from pipeline.study.stages.registry import kind_of, output_of
from pipeline.units import RESEARCH_USE


@dataclass(frozen=True)
class Origin:
    """A study as it was frozen when a result was made."""

    study_id: str
    version: int
    """Of the protocol; each amendment counts one."""
    protocol_sha256: str
    manifest_sha256: str


def origin_file(study_id: str) -> str:
    """Name of the file in a folder of results."""
    return f"study_{study_id}.json"


def write_origin(project: Project, slide_id: str, stage: str, origin: Origin, output_sha256: str) -> None:
    """Say beside a model's results on a slide where they come from. Other stages leave no results for people.

    Raises:
        DiskFullError: cannot be written.
    """
    if not kind_of(stage).of_models:
        return
    model_id = output_of(project, slide_id, stage).network_id
    said = {**asdict(origin), "slide_id": slide_id, "model_id": model_id, "predictions_sha256": output_sha256}
    content = said | {"utc": utc_now(), "versions": versions(), "research_use": RESEARCH_USE}
    path = project.result_dir(slide_id, model_id) / origin_file(origin.study_id)
    write_text_atomic(path, json.dumps(content, indent=1) + "\n")
