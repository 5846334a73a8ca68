"""The ledger of a project's studies: their slides, tasks and progress. The single source of truth for these."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, func, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from pipeline.errors import BadManifestError, DamagedStoreError
from pipeline.ledger.chain import Change, append, canonical, digest, utc_now
from pipeline.ledger.database import Database
from pipeline.ledger.project_entries import append_to_project
from pipeline.ledger.reasons import check_reason
from pipeline.ledger.rows import (
    PROJECT_LOG,
    SLIDE_ENTERED,
    STUDY_BEGUN,
    STUDY_SUBJECT,
    new_task,
    new_tasks,
    row_sha256,
    slide_subject,
    study_subject,
)
from pipeline.ledger.tables import SLIDE_STATES, TASK_STATES, audit, slide, study, task
from training.foundation.reading import parse_json

_AT_ONCE = 5_000
"""Rows per insert."""
_IS_STUDY = study.c.study_id != PROJECT_LOG


@dataclass(frozen=True)
class NewSlide:
    """A slide of the cohort as it enters a study."""

    slide_id: str
    site: str | None = None
    scanner: str | None = None
    excluded: str | None = None
    """Reason why it is in the cohort but not processed."""
    priority: int = 0


@dataclass(frozen=True)
class Counts:
    """Numbers of slides and tasks in each state; the slides add up to the cohort."""

    slides: Mapping[str, int]
    tasks: Mapping[str, Mapping[str, int]]
    """By stage, then state."""

    @property
    def total(self) -> int:
        return sum(self.slides.values())

    @property
    def is_over(self) -> bool:
        """Whether every slide has ended."""
        return not self.slides["pending"]


@dataclass(frozen=True)
class StudyRow:
    """A study's row in the ledger."""

    study_id: str
    state: str
    version: int
    protocol: str
    protocol_sha256: str
    manifest_sha256: str

    def frozen(self) -> dict[str, Any]:
        """The protocol whose hash is in this row.

        Raises:
            DamagedStoreError: the text does not match the hash: one of them was changed.
        """
        is_text = isinstance(self.protocol, str)  # SQLite does not enforce it
        if not is_text or hashlib.sha256(self.protocol.encode()).hexdigest() != self.protocol_sha256:
            raise DamagedStoreError(
                f"study {self.study_id}: its protocol in the ledger is not the one that was frozen (SHA-256 "
                f"{self.protocol_sha256!s:.12}…): somebody has changed it. `gemslide study verify {self.study_id}` "
                "lists what else was changed; restore the ledger from a backup."
            )
        try:
            raw = parse_json(self.protocol)
        except ValueError as error:
            raise DamagedStoreError(
                f"study {self.study_id}: its protocol in the ledger cannot be read ({error}): somebody has changed it. "
                f"`gemslide study verify {self.study_id}` lists what else was changed; restore the ledger from a "
                "backup."
            ) from error
        return raw if isinstance(raw, dict) else {}


_BEGUN = (
    "study {}: has already begun; somebody else may have begun it just now. See `gemslide study status`; change it "
    "with `gemslide study amend` and a reason."
)


class Ledger:
    """Studies in one database; a context manager that closes its connections."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *exc: object) -> None:
        self.database.close()

    def begin(
        self,
        study_id: str,
        protocol: Mapping[str, Any],
        manifest_sha256: str,
        slides: Sequence[NewSlide],
        stages: Sequence[str],
        *,
        actor: str,
    ) -> None:
        """Freeze a study's protocol and create a task for every slide and stage.

        Raises:
            BadManifestError: it has already begun, or has no slides.
        """
        if not slides:
            raise BadManifestError(f"study {study_id}: its cohort has no slides.")
        row = {
            "study_id": study_id,
            "state": "running",
            "version": 1,
            "protocol": canonical(protocol),
            "protocol_sha256": digest(protocol),
            "manifest_sha256": manifest_sha256,
        }
        with self.database.write() as connection:
            if _find(connection, study_id):
                raise BadManifestError(_BEGUN.format(study_id))
            try:
                connection.execute(insert(study).values(row | {"audit_seq": 0, "audit_hash": "0" * 64}))
            except IntegrityError as error:  # on a server, two callers can find at once that it has not begun
                raise BadManifestError(_BEGUN.format(study_id)) from error
            begun = Change(
                actor, STUDY_BEGUN, STUDY_SUBJECT, after=row_sha256(study, row), details={"stages": list(stages)}
            )
            append(connection, study_id, [begun])
            enter_slides(connection, study_id, slides, stages, actor)
            # So that a study that vanishes with its whole log is missed.
            append_to_project(connection, [Change(actor, STUDY_BEGUN, study_subject(study_id))])

    def study(self, study_id: str) -> StudyRow:
        """A study's row; raises BadManifestError if there is no such study."""
        with self.database.read() as connection:
            return found(connection, study_id)

    def study_ids(self) -> list[str]:
        with self.database.read() as connection:
            return list(connection.scalars(select(study.c.study_id).where(_IS_STUDY).order_by(study.c.study_id)))

    def studies(self) -> list[tuple[StudyRow, Mapping[str, int]]]:
        """All studies by name, each with its slide counts by state."""
        columns = [study.c[name] for name in StudyRow.__dataclass_fields__]
        by_state = select(slide.c.study_id, slide.c.state, func.count()).group_by(slide.c.study_id, slide.c.state)
        with self.database.read() as connection:
            slides: dict[str, dict[str, int]] = {}
            for study_id, state, number in connection.execute(by_state):
                slides.setdefault(study_id, {})[state] = number
            chosen = select(*columns).where(_IS_STUDY).order_by(study.c.study_id)
            rows = [StudyRow(*row) for row in connection.execute(chosen)]
        return [(row, slides.get(row.study_id, {})) for row in rows]

    def counts(self, study_id: str) -> Counts:
        """A study's counts; raises BadManifestError if there is no such study."""
        by_state = select(slide.c.state, func.count()).where(slide.c.study_id == study_id).group_by(slide.c.state)
        by_stage = (
            select(task.c.stage, task.c.state, func.count())
            .where(task.c.study_id == study_id)
            .group_by(task.c.position, task.c.stage, task.c.state)
            .order_by(task.c.position)
        )
        with self.database.read() as connection:
            found(connection, study_id)
            slides = dict.fromkeys(SLIDE_STATES, 0) | {row[0]: row[1] for row in connection.execute(by_state)}
            tasks: dict[str, dict[str, int]] = {}
            for stage, state, count in connection.execute(by_stage):
                tasks.setdefault(stage, dict.fromkeys(TASK_STATES, 0))[state] = count
        return Counts(slides, tasks)

    def slides(
        self, study_id: str, *, state: str | None = None, after: int = -1, limit: int = 100
    ) -> Sequence[Row[Any]]:
        """A page of slides in manifest order.

        Args:
            after: `ordinal` of the previous page's last slide.
        """
        chosen = select(slide).where(slide.c.study_id == study_id, slide.c.ordinal > after)
        if state is not None:
            chosen = chosen.where(slide.c.state == state)
        return self._rows(chosen.order_by(slide.c.ordinal).limit(limit))

    def slide(self, study_id: str, slide_id: str) -> Row[Any]:
        """A slide's row; raises BadManifestError if there is no such study, or no such slide in it."""
        chosen = select(slide).where(slide.c.study_id == study_id, slide.c.slide_id == slide_id)
        with self.database.read() as connection:
            found(connection, study_id)
            row = connection.execute(chosen).one_or_none()
        if row is None:
            raise BadManifestError(f"slide {slide_id}: is not in study {study_id}.")
        return row

    def held(self, study_id: str, *, limit: int = 100) -> Sequence[Row[Any]]:
        """Tasks that workers hold now, longest held first."""
        held = select(task).where(task.c.study_id == study_id, task.c.state == "leased")
        return self._rows(held.order_by(task.c.started_utc, task.c.ordinal).limit(limit))

    def tasks(self, study_id: str, *slide_ids: str) -> Sequence[Row[Any]]:
        """The tasks of one or more slides, in stage order."""
        chosen = select(task).where(task.c.study_id == study_id, task.c.slide_id.in_(slide_ids))
        return self._rows(chosen.order_by(task.c.position, task.c.ordinal))

    def history(
        self, study_id: str, *subjects: str, newest: int | None = None, before: int | None = None
    ) -> Sequence[Row[Any]]:
        """The log entries of some subjects, oldest first.

        Args:
            subjects: as in `rows.py`: "study", "slide S-1", "task S-1/ingest".
            newest: at most this many of the latest entries; None: all.
            before: only entries before this number.
        """
        chosen = select(audit).where(audit.c.study_id == study_id, audit.c.subject.in_(subjects))
        if before is not None:
            chosen = chosen.where(audit.c.seq < before)
        return self._rows(chosen.order_by(audit.c.seq.desc()).limit(newest))[::-1]

    def set_state(self, study_id: str, state: str, *, actor: str, why: str) -> bool:
        """Pause or resume a study; returns whether that changed anything.

        Raises:
            BadManifestError: no reason, or no such study.
        """
        check_reason(why, "a pause" if state == "paused" else "resuming")
        with self.database.write() as connection:
            before = found(connection, study_id)
            if before.state == state:
                return False
            connection.execute(update(study).where(study.c.study_id == study_id).values(state=state))
            change = study_change(connection, study_id, before, actor, f"study {state}", why)
            append(connection, study_id, [change])
            return True

    def _rows(self, chosen: Select[Any]) -> Sequence[Row[Any]]:
        with self.database.read() as connection:
            return connection.execute(chosen).all()


def found(connection: Connection, study_id: str) -> StudyRow:
    """A study's row; raises BadManifestError if there is no such study."""
    row = _find(connection, study_id)
    if row is None:
        names = select(study.c.study_id).where(_IS_STUDY).order_by(study.c.study_id)
        known = ", ".join(map(str, connection.scalars(names.limit(10))))
        raise BadManifestError(f"study {study_id}: not in this ledger, which has {known or 'none'}.")
    return row


def study_change(
    connection: Connection, study_id: str, before: StudyRow, actor: str, action: str, why: str, **details: Any
) -> Change:
    """The log entry for a study's row changed in this transaction."""
    now = found(connection, study_id)
    return Change(
        actor, action, STUDY_SUBJECT, why, row_sha256(study, vars(before)), row_sha256(study, vars(now)), details
    )


def _find(connection: Connection, study_id: str) -> StudyRow | None:
    columns = [study.c[name] for name in StudyRow.__dataclass_fields__]
    row = connection.execute(select(*columns).where(study.c.study_id == study_id)).one_or_none()
    return StudyRow(*row) if row else None


def enter_slides(
    connection: Connection,
    study_id: str,
    slides: Sequence[NewSlide],
    stages: Sequence[str],
    actor: str,
    *,
    first_ordinal: int = 0,
) -> None:
    """Enter slides in a study, new_slide with a task for every stage."""
    for start in range(0, len(slides), _AT_ONCE):
        rows, tasks, changes = [], [], []
        for ordinal, new_slide in enumerate(slides[start : start + _AT_ONCE], first_ordinal + start):
            row = _slide_row(study_id, new_slide, ordinal)
            own = [task_row(study_id, new_slide, ordinal, position, stage) for position, stage in enumerate(stages)]
            rows.append(row)
            tasks += own
            details = {"tasks": new_tasks(own)}
            subject = slide_subject(new_slide.slide_id)
            changes.append(Change(actor, SLIDE_ENTERED, subject, after=row_sha256(slide, row), details=details))
        connection.execute(insert(slide), rows)
        if start == 0:
            _count_rows(connection, "slide")
        connection.execute(insert(task), tasks)
        append(connection, study_id, changes)
    _count_rows(connection, "slide", "task", "audit")


def _count_rows(connection: Connection, *tables: str) -> None:
    """Tell PostgreSQL now how many rows there are. Otherwise it takes the tables to be nearly empty and, for every task
    that is entered, finds its slide by scanning all slides of the study."""
    if connection.dialect.name == "postgresql":
        for name in tables:
            connection.execute(text(f"ANALYZE {name}"))


def _slide_row(study_id: str, new_slide: NewSlide, ordinal: int) -> dict[str, Any]:
    return {
        "study_id": study_id,
        "slide_id": new_slide.slide_id,
        "ordinal": ordinal,
        "source_sha256": None,
        "site": new_slide.site,
        "scanner": new_slide.scanner,
        "priority": new_slide.priority,
        "state": "excluded" if new_slide.excluded else "pending",
        "code": None,
        "message": new_slide.excluded,
        "ended_utc": utc_now() if new_slide.excluded else None,
    }


def task_row(
    study_id: str, each: NewSlide, ordinal: int, position: int, stage: str, *, first: int | None = 0
) -> dict[str, Any]:
    """A new task.

    Args:
        first: position of the task that can be taken at once; the others wait.
    """
    waiting = "ready" if position == first else "blocked"
    return {
        "study_id": study_id,
        "slide_id": each.slide_id,
        "position": position,
        "ordinal": ordinal,
        "priority": each.priority,
        **new_task(stage, "ended" if each.excluded else waiting),
    }
