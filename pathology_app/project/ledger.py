"""The ledger of the project's studies, opened once for all who view it, and never created by viewing.

A slow answer is remembered for twenty times as long as it took: however many people view it, a study of a hundred
thousand slides takes a twentieth of one core.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from pathology_app.project.served import served_project
from pathology_app.project.verification import Verification
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import find_ledger, open_ledger
from pipeline.project import Project
from pipeline.study import verify_ledger
from pipeline.study.outcomes.progress import Progress, progress_of
from training.foundation.errors import GemslideError, UnreadableError

ANSWER_S = 10.0
"""A database that takes longer for one answer counts as unavailable."""
_REST = 20
_LONGEST_REST_S = 30.0

Answer = TypeVar("Answer")


class Remembered(Generic[Answer]):
    """An answer, or the error raised in its place, and how long it is valid."""

    def __init__(self, ask: Callable[[], Answer], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._clock = ask, clock
        self._lock = threading.Lock()
        self._answer: Answer | GemslideError
        self._until = float("-inf")

    def get(self) -> Answer:
        """The answer. Raises: as `ask`."""
        with self._lock:
            start = self._clock()
            if start >= self._until:
                self._answer = self._asked()
                end = self._clock()
                self._until = end + min(_REST * (end - start), _LONGEST_REST_S)
            if isinstance(self._answer, GemslideError):
                raise type(self._answer)(str(self._answer))
            return self._answer

    def forget(self) -> None:
        self._until = float("-inf")

    def _asked(self) -> Answer | GemslideError:
        try:
            return self._ask()
        except GemslideError as error:
            return error


class StudyLedger:
    """The ledger of one project, for every page and session of this process."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._lock = threading.Lock()
        self._opened: Ledger | None = None
        self._opening = Remembered(lambda: find_ledger(project, answer_s=ANSWER_S))
        self._names = Remembered(self._ask_names)
        self._progress: dict[str, Remembered[Progress]] = {}
        self._verified: dict[str, Verification] = {}

    def ledger(self) -> Ledger | None:
        """The ledger; None where the project has none.

        Raises:
            GemslideError: it is unavailable, damaged, or the project's settings cannot be read. OSError: its folder
                cannot.
        """
        with self._lock:
            if self._opened is None or not self._opened.database.is_in_place():
                self._close()
                self._opened = self._opening.get()
            return self._opened

    def made(self) -> Ledger:
        """The ledger for writing; created where there is none. Raises: as `ledger`."""
        existing = self.ledger()
        if existing is not None:
            return existing
        with self._lock:
            if self._opened is None:
                open_ledger(self.project).database.close()
                self._close()
                self._opened = find_ledger(self.project, answer_s=ANSWER_S)
            if self._opened is None:
                raise UnreadableError("The ledger was created and has disappeared. Try again.")
            return self._opened

    def names(self) -> list[str]:
        """Names of all studies. Raises: as `ledger`."""
        return self._names.get()

    def progress(self, ledger: Ledger, study_id: str) -> Progress:
        """Progress of a study that exists. Raises: as `ledger`."""
        with self._lock:
            if study_id not in self._progress:
                self._progress[study_id] = Remembered(lambda: progress_of(ledger, study_id))
            remembered = self._progress[study_id]
        return remembered.get()

    def findings(self, ledger: Ledger, study_id: str) -> int | None:
        """Number of findings in the last check of a study's log; None if none has ended yet."""
        with self._lock:
            if study_id not in self._verified:
                count = partial(_count_findings, ledger, study_id)
                self._verified[study_id] = Verification(count)
            verification = self._verified[study_id]
        return verification.findings()

    def forget(self) -> None:
        """Forget answers after a change: the next request gets a new one."""
        with self._lock:
            self._names.forget()
            self._progress.clear()

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.database.close()
            self._opened = None
        self._opening.forget()
        self._progress.clear()
        self._verified.clear()

    def _ask_names(self) -> list[str]:
        ledger = self.ledger()
        return ledger.study_ids() if ledger else []


def _count_findings(ledger: Ledger, study_id: str) -> int:
    return len(verify_ledger(ledger.database, study_id).findings)


_SHARED: dict[Path, StudyLedger] = {}
"""By project folder; one, in a process that serves one project."""


def current_study_ledger() -> StudyLedger:
    """The ledger of the project that this process serves."""
    return study_ledger_of(served_project())


def study_ledger_of(project: Project) -> StudyLedger:
    """The one ledger of a project in this process."""
    return _SHARED.setdefault(project.root, StudyLedger(project))


def close_study_ledgers() -> None:
    """Close all open ledgers when the process ends."""
    while _SHARED:
        _SHARED.popitem()[1].close()
