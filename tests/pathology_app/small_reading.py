"""A project with predictions for three slides, and a study in which two readers read them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.progress import readings_of
from pipeline.study.reading.readings import Readings
from pipeline.study.work.leases import Ended
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID
from tests.pathology_app.small_study import take, worker

STUDY = "readers"
SLIDES = ("S-001", "S-002", "S-003")
READERS = ("r1", "r2")
STAGES = ("ingest", "qc", f"infer {MODEL_ID}")
QUESTIONS: list[dict[str, Any]] = [
    {"name": "diagnosis", "ask": "What is it?", "kind": "choice", "choices": ["benign", "atypical", "malignant"]},
    {"name": "sure", "ask": "How sure are you?", "kind": "score", "low": 0, "high": 100},
    {"name": "artefact", "ask": "Is an artefact in the way?", "kind": "yes_no", "required": False},
    {"name": "remarks", "ask": "Remarks", "kind": "text", "required": False},
]


def make_reading_study(small: Project, root: Path, *, slides: int = 3, laid_out: bool = True, **reading: Any) -> None:
    """Copy the small project's slide under several names, and begin a study in which all slides are done.

    Args:
        reading: settings that replace those of `[reading]`.
    """
    for name in SLIDES[:slides]:
        copy_slide(small, Project(root), name)
    begin_reading_study(root, SLIDES[:slides], laid_out=laid_out, **reading)


def begin_reading_study(
    root: Path, names: Sequence[str], *, laid_out: bool = True, models: Sequence[str] = (MODEL_ID,), **reading: Any
) -> None:
    """Begin a study of existing slides, all of them done."""
    design = {"readers": list(READERS), "arms": ["unassisted"], "adjudicators": ["chief"], "questions": QUESTIONS}
    protocol = {
        "study": {"title": "Do readers agree?", "question": "Do they?", "seed": 3},
        "models": [{"id": model, "sha256": "0" * 64, "config_sha256": "0" * 64} for model in models],
        "reading": design | reading,
    }
    with open_ledger(Project(root)) as ledger:
        ledger.begin(STUDY, protocol, "0" * 64, [NewSlide(name) for name in names], STAGES, actor="ada")
        mine = worker(ledger)
        for _ in range(len(names) * len(STAGES)):
            mine.finish(take(mine, STUDY), Ended("done", seconds=1, output_sha256="ab" * 32, source_sha256="cd" * 32))
        if laid_out:
            readings = of_study(ledger)
            readings.begin(lay_out(readings.config, names, 3), actor="ada")


def of_study(ledger: Any) -> Readings:
    readings = readings_of(ledger, STUDY)
    assert readings is not None
    return readings


def copy_slide(small: Project, project: Project, name: str) -> None:
    store, results = project.store_path(name), project.result_dir(name, MODEL_ID)
    shutil.copytree(small.store_path(SLIDE_ID), store)
    root = store / "zarr.json"
    root.write_text(root.read_text().replace(SLIDE_ID, name))
    shutil.copytree(small.result_dir(SLIDE_ID, MODEL_ID), results)


def read_one(readings: Readings, reader: str, diagnosis: str) -> str:
    """Read and sign the reading that is due. Return its slide."""
    row = readings.next_of(reader)
    assert row is not None
    at = (reader, row.session, row.position)
    if row.state == "open":
        readings.start(*at)
    readings.give(*at, "diagnosis", diagnosis)
    readings.give(*at, "sure", 80)
    readings.sign(*at, seconds=61.0)
    return str(row.slide_id)
