"""A patient's slides, whose predictions by a slide-level model need all of them.

Such a task waits until the patient's other slides have come as far, or have ended. They are made ready one at a time:
the first predicts the patient and publishes the results of all slides, the others find them finished.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, and_, select

from pipeline.cohort.manifest import Cohort
from pipeline.ledger.chain import Change, append
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import found
from pipeline.ledger.rows import change_task
from pipeline.ledger.tables import task
from pipeline.study.protocol import Protocol
from pipeline.study.stages.registry import kind_of

_AT_ONCE = 500
"""Patients per transaction: workers wait meanwhile."""


class Unit(NamedTuple):
    """What a task is about."""

    name: str
    """The slide's or patient's id."""
    slides: tuple[str, ...]
    """Sorted."""


@dataclass(frozen=True)
class Patients:
    """The slides of each patient, by a study's manifest."""

    joined: frozenset[str] = frozenset()
    """Tasks that wait for others."""
    of_patients: frozenset[str] = frozenset()
    """Those of models that predict patients; the other models predict each slide by itself."""
    patient_of: Mapping[str, str] = field(default_factory=dict)
    """By slide."""
    slides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By patient, without excluded slides."""
    version: int | None = None
    """Of the study's protocol and manifest; None: any."""

    @classmethod
    def of(cls, protocol: Protocol, cohort: Cohort, version: int | None = None) -> Patients:
        slides: defaultdict[str, list[str]] = defaultdict(list)
        for entry in cohort.included:
            slides[entry.patient_id or entry.slide_id].append(entry.slide_id)
        return cls(
            frozenset(stage for stage in protocol.stages if kind_of(stage).joins),
            frozenset(model.task for model in protocol.of_patients),
            {slide_id: patient for patient, own in slides.items() for slide_id in own},
            {patient: tuple(sorted(own)) for patient, own in slides.items()},
            version,
        )

    def unit(self, slide_id: str, stage: str) -> Unit:
        """The slides that a task needs: its own, or all of the patient."""
        patient = self.patient_of.get(slide_id)
        if stage not in self.of_patients or patient is None:
            return Unit(slide_id, (slide_id,))
        return Unit(patient, self.slides[patient])


def free_tasks(database: Database, study_id: str, patients: Patients, *, actor: str) -> int:
    """Make the tasks ready that have waited for others, where these have come as far. Returns their number."""
    if not patients.joined:
        return 0
    with database.read() as connection:
        rows = connection.execute(_waiting(study_id, patients.joined)).all()
    units = sorted({(row.position, patients.unit(row.slide_id, row.stage).slides) for row in rows})
    freed = 0
    for start in range(0, len(units), _AT_ONCE):
        with database.write() as connection:
            changes = [
                change
                for position, slides in units[start : start + _AT_ONCE]
                for change in _free(connection, study_id, position, slides, actor, patients.version)
            ]
            append(connection, study_id, changes)
            freed += len(changes)
    return freed


def ended_before(connection: Connection, study_id: str, slides: Sequence[str], position: int) -> int:
    """How many slides have ended before they came to a position."""
    rows = connection.execute(_tasks_at(study_id, slides, position - 1)).all()
    return sum(row.state == "ended" for row in rows)


def _waiting(study_id: str, stages: frozenset[str]) -> Any:
    """Joined tasks whose own slide has come as far."""
    before = task.alias()
    is_before = and_(
        before.c.study_id == task.c.study_id,
        before.c.slide_id == task.c.slide_id,
        before.c.position == task.c.position - 1,
    )
    return (
        select(task.c.slide_id, task.c.position, task.c.stage)
        .join(before, is_before)
        .where(
            task.c.study_id == study_id, task.c.state == "blocked", task.c.stage.in_(stages), before.c.state == "done"
        )
    )


def _free(
    connection: Connection, study_id: str, position: int, slides: Sequence[str], actor: str, version: int | None
) -> list[Change]:
    pairs = _pairs(connection, study_id, slides, position)
    # Not before the tasks are locked: an amendment may be changing them, and which slides the patient has.
    if version is not None and found(connection, study_id).version != version:
        return []
    if any(own.state in ("ready", "leased") for _, own in pairs):
        return []
    waiting = [(before, own) for before, own in pairs if own.state == "blocked"]
    if not waiting or any(before.state != "done" for before, _ in waiting):
        return []
    _, first = waiting[0]
    return [change_task(connection, first, {"state": "ready"}, actor=actor, action="task ready")]


def _pairs(
    connection: Connection, study_id: str, slides: Sequence[str], position: int
) -> list[tuple[Row[Any], Row[Any]]]:
    """The task before a position and the one at it, of each slide; nobody else changes them before the transaction
    ends. A slide that was erased since has none."""
    by_slide: defaultdict[str, list[Row[Any]]] = defaultdict(list)
    for row in connection.execute(_tasks_at(study_id, slides, position - 1, position).with_for_update()):
        by_slide[row.slide_id].append(row)
    return [(own[0], own[1]) for own in by_slide.values()]


def _tasks_at(study_id: str, slides: Sequence[str], *positions: int) -> Select[Any]:
    return (
        select(task)
        .where(task.c.study_id == study_id, task.c.slide_id.in_(slides), task.c.position.in_(positions))
        .order_by(task.c.slide_id, task.c.position)
    )
