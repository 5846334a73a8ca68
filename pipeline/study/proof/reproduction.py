"""Reproduction of a sample of a study from the slide files, compared with the ledger."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from sqlalchemy import Row, select

from pipeline.errors import BadManifestError
from pipeline.ledger.chain import Change, append
from pipeline.ledger.rows import slide_subject
from pipeline.ledger.tables import slide, task
from pipeline.project import Project
from pipeline.study.stages.registry import kind_of, output_sha256
from pipeline.study.work.leases import Lease
from pipeline.study.work.stages import StudyStages
from pipeline.study.work.study import Study, stages_of
from training.foundation.progress import no_bar


@dataclass(frozen=True)
class Reproduced:
    """One reproduced slide."""

    slide_id: str
    differs: tuple[str, ...]
    """Stages whose output differs from the ledger."""


def sample(study: Study, share: float) -> list[str]:
    """Finished slides, drawn with the study's seed: at least one.

    Raises:
        BadManifestError: none is done yet.
    """
    of_study = (slide.c.study_id == study.study_id, slide.c.state == "done")
    with study.ledger.database.read() as connection:
        done = list(connection.scalars(select(slide.c.slide_id).where(*of_study).order_by(slide.c.ordinal)))
    if not done:
        raise BadManifestError(
            f"study {study.study_id}: none of its slides is done yet, so there is nothing to reproduce."
        )
    count = max(1, ceil(share * len(done)))
    return sorted(random.Random(study.protocol.study.seed).sample(done, count))


def reproduce(
    study: Study, slide_ids: list[str], *, actor: str, said: Callable[[Reproduced], None] = lambda results: None
) -> list[Reproduced]:
    """Run every stage of some slides again, in a temporary project, and log the result.

    Raises:
        GemslideError: a slide that now fails, a changed manifest, or a changed model.
    """
    with tempfile.TemporaryDirectory(prefix=".reproduce-", dir=study.project.root) as folder:
        elsewhere = replace(stages_of(study), project=Project(Path(folder)))
        results = []
        for slide_id in slide_ids:
            results.append(_reproduce_slide(study, elsewhere, slide_id))
            said(results[-1])
    entries = [
        Change(actor, "slide reproduced", slide_subject(outcome.slide_id), details={"differs": list(outcome.differs)})
        for outcome in results
    ]
    with study.ledger.database.write() as connection:
        append(connection, study.study_id, entries)
    return results


def _reproduce_slide(study: Study, elsewhere: StudyStages, slide_id: str) -> Reproduced:
    chosen = select(task).where(task.c.study_id == study.study_id, task.c.slide_id == slide_id)
    with study.ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(task.c.position)).all()
    differs = []
    for row in rows:
        for other in elsewhere.patients.unit(slide_id, row.stage).slides:
            if other != slide_id:
                _run_before(elsewhere, other, rows[: row.position])
        _run(elsewhere, slide_id, row)
        if output_sha256(elsewhere.project, slide_id, row.stage) != row.output_sha256:
            differs.append(row.stage)
    return Reproduced(slide_id, tuple(differs))


def _run_before(elsewhere: StudyStages, other: str, rows: Sequence[Row[Any]]) -> None:
    """Bring another slide of the patient to where the patient is predicted: its features, and what comes before."""
    for row in rows:
        if not kind_of(row.stage).of_models:
            _run(elsewhere, other, row)


def _run(elsewhere: StudyStages, slide_id: str, row: Row[Any]) -> None:
    elsewhere.stage_of(Lease(row.study_id, slide_id, row.position, row.stage, 0, 0)).run(no_bar)
