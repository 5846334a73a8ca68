"""Taking tasks and returning them: each is held by one worker at a time, and completed once.

A lease lapses when its owner's count of heartbeats has stood still for `lease_s` by the *watcher's* own monotonic
clock: no two clocks are ever compared, so one that steps cannot break it. While the database is unavailable nobody can
beat, and the watch starts again. On the same machine a dead owner is noticed at once. Each taking increments the
task's token; a worker that comes back with an earlier token is refused (a fencing token).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal

from sqlalchemy import Connection, Row, and_, select, update

from pipeline.ledger.chain import Change, append, utc_now
from pipeline.ledger.database import LedgerUnavailableError
from pipeline.ledger.ledger import Ledger, found
from pipeline.ledger.rows import row_sha256, slide_subject, task_subject
from pipeline.ledger.tables import audit, slide, task
from pipeline.study.stages.registry import due_state
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import Owner
from pipeline.study.work.patients import Patients, free_tasks
from pipeline.study.work.statements import SLIDE_ROW, UPDATE_SLIDE, UPDATE_TASK, next_task, slide_of_row, tasks_from

_RESULT = {"done": "task done", "again": "task to be tried again"}
RESULTS = (*_RESULT.values(), "task ended")
"""Actions with which an owner's own result enters the log."""
SET_ASIDE = "set_aside"
"""Code of a slide on which workers died, or that failed, as often as the study allows."""
LOST_WORKER = "lost_worker"
"""Code of a task whose worker died or went silent; it is retried."""


@dataclass(frozen=True)
class Lease:
    """A task held by this worker."""

    study_id: str
    slide_id: str
    position: int
    stage: str
    token: int
    attempts: int


@dataclass(frozen=True)
class Ended:
    """End of a task.

    After `done` the slide's next task follows; `again` means that it may succeed later, so it is retried; every other
    state ends the slide.
    """

    state: Literal["done", "again", "no_tissue", "qc_failed", "refused", "unreadable", "failed"]
    code: str | None = None
    message: str | None = None
    seconds: float = 0.0
    output_sha256: str | None = None
    source_sha256: str | None = None
    measures: str | None = None
    """Canonical JSON, for the study's report."""


class Leases:
    """One worker's side of a study's tasks.

    Args:
        actor: named in the log.
        patients: whose slides wait for each other; after an amendment of the manifest or protocol that they are of,
            this worker is given no task.
        wall, clock: the time of day, and one that never steps.
    """

    def __init__(
        self,
        ledger: Ledger,
        owner: Owner,
        limits: Limits,
        *,
        actor: str,
        patients: Patients = Patients(),
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = ledger.database
        self._owner = str(owner)
        self._limits = limits
        self._actor = actor
        self._patients = patients
        self._wall, self._clock = wall, clock
        self._next = next_task(limits, patients.version)
        self._watched: dict[tuple[str, str, int], tuple[int, int, float]] = {}
        self._away_at = -inf
        """Time at which the database was last found to be unavailable."""

    def take(self, study_id: str) -> Lease | None:
        """Take the next task; None if nothing can be done now (or the study is paused).

        Raises:
            BadManifestError: no such study.
        """
        with self._database.write() as connection:
            lease, changes = self._take(connection, study_id)
            append(connection, study_id, changes)
            return lease

    def beat(self, lease: Lease) -> bool:
        """Record a heartbeat; returns False if the task is no longer this worker's."""
        mine = self._mine(lease)
        with self._report_unavailable(), self._database.write() as connection:
            changed = connection.execute(update(task).where(mine).values(beat=task.c.beat + 1, beat_utc=utc_now()))
            return changed.rowcount == 1

    def finish(self, lease: Lease, ended: Ended, *, take_next: bool = False) -> tuple[bool, Lease | None]:
        """Record how a task ended, and take the next one in the same transaction.

        Returns:
            whether the result counted (a worker whose lease was stolen comes too late), and the next task.
        """
        with self._database.write() as connection:
            counts, changes = self._finish(connection, lease, ended)
            following, taking = self._take(connection, lease.study_id) if take_next else (None, [])
            append(connection, lease.study_id, [*changes, *taking])
            return counts, following

    def _finish(self, connection: Connection, lease: Lease, ended: Ended) -> tuple[bool, list[Change]]:
        still = tasks_from(connection, lease)
        if not still:  # stolen, finished, and its slide erased since: the log must not name it again
            return False, []
        row, *rest = still
        if (row.state, row.token) == ("leased", lease.token):
            return True, self._end(connection, row, rest, ended)
        if self._was_written(connection, lease):
            return True, []
        subject = task_subject(lease.slide_id, lease.stage)
        details = {"token": lease.token, "owner": self._owner, "state": ended.state}
        return False, [Change(self._actor, "late result refused", subject, details=details)]

    def release(self, lease: Lease, why: str) -> None:
        """Return a task whose work was stopped through no fault of its own: the attempt does not count."""
        with self._database.write() as connection:
            row = connection.execute(select(task).where(self._mine(lease)).with_for_update()).one_or_none()
            if row is not None:
                values = {"state": "ready", "owner": None, "attempts": row.attempts - 1}
                change = self._change_task(connection, row, values, "task given back")
                append(connection, lease.study_id, [replace(change, why=why)])

    def _was_written(self, connection: Connection, lease: Lease) -> bool:
        """Whether this result is already written: a connection can be cut between a commit and its answer."""
        subject = task_subject(lease.slide_id, lease.stage)
        ends = select(audit.c.details).where(
            audit.c.study_id == lease.study_id, audit.c.subject == subject, audit.c.action.in_(RESULTS)
        )
        return any(json.loads(details)["token"] == lease.token for details in connection.scalars(ends))

    def free(self, study_id: str) -> int:
        """Make tasks ready that have waited for the patient's other slides. Returns their number."""
        return free_tasks(self._database, study_id, self._patients, actor=self._actor)

    def steal(self, study_id: str) -> int:
        """Return the tasks whose owners are gone, for others to take. Returns their number."""
        leased = select(task).where(task.c.study_id == study_id, task.c.state == "leased")
        with self._report_unavailable(), self._database.read() as connection:
            rows = connection.execute(leased).all()
        now = self._clock()
        seen = {}
        lapsed = []
        for row in rows:
            key = (row.study_id, row.slide_id, row.position)
            token, beat, since = self._watched.get(key, (row.token, row.beat, now))
            if (token, beat) != (row.token, row.beat):
                since = now
            seen[key] = (row.token, row.beat, since)
            owner = Owner.parse(row.owner or "")
            if now - max(since, self._away_at) > self._limits.lease_s or (owner is not None and owner.is_gone()):
                lapsed.append(row)
        self._watched = seen
        return sum(self._give_back(row) for row in lapsed)

    @contextmanager
    def _report_unavailable(self) -> Iterator[None]:
        try:
            yield
        except LedgerUnavailableError:
            self._away_at = self._clock()
            raise

    def _give_back(self, seen: Row[Any]) -> bool:
        with self._database.write() as connection:
            still = tasks_from(connection, seen)
            if not still or (still[0].state, still[0].token, still[0].beat) != ("leased", seen.token, seen.beat):
                return False  # finished meanwhile; its slide may even have been erased since
            row, *rest = still
            why = f"the worker that had it ({row.owner}) is gone or silent"
            lost = Ended("again", LOST_WORKER, why)
            append(connection, row.study_id, self._end(connection, row, rest, lost, action="lease lapsed"))
            return True

    def _take(self, connection: Connection, study_id: str) -> tuple[Lease | None, list[Change]]:
        """Take the next task; returns it, and the changes to log."""
        row = connection.execute(self._next, {"of_study": study_id, "now": self._wall()}).one_or_none()
        if row is None:
            found(connection, study_id)
            return None, []
        values = {
            "state": "leased",
            "attempts": row.attempts + 1,
            "token": row.token + 1,
            "beat": 0,
            "owner": self._owner,
            "not_before": None,
            "beat_utc": utc_now(),
            "started_utc": utc_now(),
            "ended_utc": None,
            "code": None,
            "message": None,
        }
        lease = Lease(study_id, row.slide_id, row.position, row.stage, row.token + 1, row.attempts + 1)
        return lease, [self._change_task(connection, row, values, "task taken")]

    def _end(
        self, connection: Connection, row: Row[Any], rest: Sequence[Row[Any]], ended: Ended, *, action: str = ""
    ) -> list[Change]:
        """Record how a task ended, and what that means for the slide. Returns the changes to log.

        Args:
            rest: the slide's later tasks.
        """
        if ended.state == "again" and row.attempts >= self._limits.max_attempts:
            message = f"set aside after {row.attempts} attempts; the last: {ended.message or ended.code}"
            ended = Ended("failed", SET_ASIDE, message, ended.seconds)
        states = {"done": "done", "again": "ready"}
        values = {
            "state": states.get(ended.state, "ended"),
            "owner": None,
            "not_before": self._wall() + self._limits.wait_s(row.attempts) if ended.state == "again" else None,
            "ended_utc": utc_now(),
            "seconds": ended.seconds,
            "code": ended.code,
            "message": ended.message,
            "output_sha256": ended.output_sha256,
            "measures": ended.measures,
        }
        changes = [self._change_task(connection, row, values, action or _RESULT.get(ended.state, "task ended"))]
        if ended.state != "again":
            changes += self._go_on(connection, row, rest, ended)
        return changes

    def _go_on(self, connection: Connection, row: Row[Any], rest: Sequence[Row[Any]], ended: Ended) -> list[Change]:
        """Continue after a finished task: the slide's next one is ready or waits for other slides, or the slide has
        ended."""
        if ended.state == "done" and rest:
            due = due_state(rest[0].stage)
            changes = [self._change_task(connection, rest[0], {"state": due}, "task ready")] if due == "ready" else []
            if ended.source_sha256 is None:
                return changes
            return changes + self._change_slide(connection, row, {"source_sha256": ended.source_sha256}, "slide read")
        changes = [self._change_task(connection, later, {"state": "ended"}, "task dropped") for later in rest]
        values = {
            "state": ended.state,
            "code": ended.code,
            "message": ended.message,
            "ended_utc": utc_now(),
            "source_sha256": ended.source_sha256,
        }
        return changes + self._change_slide(connection, row, values, "slide ended")

    def _change_task(self, connection: Connection, row: Row[Any], values: dict[str, Any], action: str) -> Change:
        # The message stays out of the log, which nothing is ever deleted from: it may name a patient's file.
        connection.execute(UPDATE_TASK, {**slide_of_row(row), "of_position": row.position, **values})
        before = dict(row._mapping)
        after = before | values
        return Change(
            self._actor,
            action,
            task_subject(row.slide_id, row.stage),
            "",
            row_sha256(task, before),
            row_sha256(task, after),
            {name: after[name] for name in ("state", "attempts", "token", "owner", "code", "output_sha256")},
        )

    def _change_slide(self, connection: Connection, row: Row[Any], values: dict[str, Any], action: str) -> list[Change]:
        before = dict(connection.execute(SLIDE_ROW, slide_of_row(row)).one()._mapping)
        values["source_sha256"] = values["source_sha256"] or before["source_sha256"]
        after = before | values
        if after == before:
            return []
        connection.execute(UPDATE_SLIDE, {**slide_of_row(row), **values})
        subject, hashes = slide_subject(row.slide_id), (row_sha256(slide, before), row_sha256(slide, after))
        details = {name: after[name] for name in ("state", "code", "source_sha256")}
        return [Change(self._actor, action, subject, "", *hashes, details)]

    def _mine(self, lease: Lease) -> Any:
        return and_(
            task.c.study_id == lease.study_id,
            task.c.slide_id == lease.slide_id,
            task.c.position == lease.position,
            task.c.state == "leased",
            task.c.token == lease.token,
        )
