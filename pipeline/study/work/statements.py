"""A worker's statements, made once: to put one together takes SQLAlchemy longer than the database to carry it out.

Parameters name the row that is meant (`of_study`, `of_slide`, `of_position`); all others are the new values of columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import BindParameter, Connection, Float, Row, Select, bindparam, case, exists, or_, select, update

from pipeline.ledger.tables import slide, study, task
from pipeline.study.work.limits import MOST_DOUBLINGS, Limits


class OfSlide(Protocol):
    """A lease, or a row of a slide or a task."""

    @property
    def study_id(self) -> str: ...
    @property
    def slide_id(self) -> str: ...


class OfTask(OfSlide, Protocol):
    @property
    def position(self) -> int: ...


def slide_of_row(of: OfSlide | Row[Any]) -> dict[str, str]:
    """The parameters that name its slide."""
    return {"of_study": of.study_id, "of_slide": of.slide_id}


_OF_SLIDE = (slide.c.study_id == bindparam("of_study"), slide.c.slide_id == bindparam("of_slide"))
SLIDE_ROW = select(slide).where(*_OF_SLIDE)
UPDATE_SLIDE = update(slide).where(*_OF_SLIDE)
_TASKS_OF_SLIDE = (task.c.study_id == bindparam("of_study"), task.c.slide_id == bindparam("of_slide"))
_TASKS_FROM = (
    select(task)
    .where(*_TASKS_OF_SLIDE, task.c.position >= bindparam("of_position"))
    .order_by(task.c.position)
    .with_for_update()
)
UPDATE_TASK = update(task).where(*_TASKS_OF_SLIDE, task.c.position == bindparam("of_position"))


def tasks_from(connection: Connection, of: OfTask | Row[Any]) -> Sequence[Row[Any]]:
    """A task as it is now, and the slide's later ones; nobody else changes them before the transaction ends."""
    return connection.execute(_TASKS_FROM, {**slide_of_row(of), "of_position": of.position}).all()


def next_task(limits: Limits, version: int | None = None) -> Select[Any]:
    """The task that is taken next, for a study `of_study` that is running, at the time of day `now`.

    Args:
        version: of the protocol that the caller works by: after an amendment there is no task for it.
    """
    most = min(limits.max_attempts, MOST_DOUBLINGS)
    waits = [(task.c.attempts <= attempts, limits.wait_s(attempts)) for attempts in range(1, most + 1)]
    longest_s = case(*waits, else_=limits.wait_s(limits.max_attempts))
    now = bindparam("now", type_=Float)
    # A time further ahead than the task's own back-off was written by a clock that has stepped since.
    is_due = or_(task.c.not_before.is_(None), task.c.not_before <= now, task.c.not_before > now + longest_s)
    of_study: BindParameter[str] = bindparam("of_study")
    runs = exists().where(study.c.study_id == of_study, study.c.state == "running")
    if version is not None:
        runs = runs.where(study.c.version == version)
    return (
        select(task)
        .where(task.c.study_id == of_study, task.c.state == "ready", is_due, runs)
        .order_by(task.c.priority.desc(), task.c.position.desc(), task.c.ordinal)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
