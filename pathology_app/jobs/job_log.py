"""Output of a job: its last lines, and the number of slides it has named; each read continues from the last one."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pathology_app.jobs.record import job_path
from pipeline.project import Project
from training.foundation.reading import open_regular, parse_json

TAIL_BYTES = 32 * 2**10
MAX_LINES = 200
READ_BYTES = 4 * 2**20
"""Read at most at once, so as not to hold up people who are viewing slides."""
MAX_KEPT = 1000
"""Slides whose outcomes are kept; further ones are only counted."""
MAX_STATES = 50
MAX_MESSAGE = 500
MAX_JOBS = 64
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROGRESS = re.compile(r"^(.{1,120}?): +(\d{1,9}) of (\d{1,9}) \(\d+%\) after ")
_RUN = "run"
"""Name of the whole run in a line (`pipeline.verbs.cli_output.report_errors`)."""
GOOD_STATES = ("done", "skipped")
"""States of a slide that has its result."""


@dataclass(frozen=True)
class Step:
    """Progress that a job reports: "ingest S-001", 3 of 10."""

    what: str
    done: int
    total: int


@dataclass(frozen=True)
class SlideEnd:
    """The end of a run's work on one slide.

    Attributes:
        code, message: reason, where it has no result.
    """

    slide_id: str
    state: str
    code: str = ""
    message: str = ""

    @property
    def is_good(self) -> bool:
        return self.state in GOOD_STATES


@dataclass
class Counted:
    """Slides that a log has named so far.

    Attributes:
        states: number of slides by outcome.
        ends: the end of each of the first `MAX_KEPT`, by slide; the last one where the log has several.
        is_whole: whether the log was read to its end.
    """

    states: Counter[str] = field(default_factory=Counter)
    ends: dict[str, SlideEnd] = field(default_factory=dict)
    is_whole: bool = True

    @property
    def bad(self) -> list[SlideEnd]:
        """Those that ended without a result."""
        return [end for end in self.ends.values() if not end.is_good]


class JobLog:
    """The log of one job, shared by everybody who views it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._at = 0
        self._rest = b""
        self._counted = Counted()

    def tail(self) -> list[str]:
        """The last lines, without control characters; the first one may lack its beginning.

        Raises:
            OSError: there is no log, or it cannot be read.
        """
        with open(open_regular(self._path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            stream.seek(max(0, size - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode(errors="replace")
        return [_ESCAPES.sub("", line) for line in text.splitlines()][-MAX_LINES:]

    def step(self, lines: list[str]) -> Step | None:
        """Progress from the last of the tail's lines that report it."""
        for line in reversed(lines):
            if match := _PROGRESS.match(line):
                return Step(match[1].strip(), int(match[2]), int(match[3]))
        return None

    def count(self) -> Counted:
        """Slides named in the part read so far: a long log takes several reads.

        Raises:
            OSError: as `tail`.
        """
        with self._lock, open(open_regular(self._path), "rb") as stream:
            if os.fstat(stream.fileno()).st_size < self._at:  # another file
                self._at, self._rest, self._counted = 0, b"", Counted()
            stream.seek(self._at)
            content = stream.read(READ_BYTES)
            self._at += len(content)
            *lines, self._rest = (self._rest + content).split(b"\n")
            self._rest = self._rest[-READ_BYTES:]
            for line in lines:
                if line.startswith(b'{"slide_id"'):
                    self._add(line)
            counted = self._counted
            is_whole = len(content) < READ_BYTES
            return Counted(counted.states.copy(), dict(counted.ends), is_whole)

    def _add(self, line: bytes) -> None:
        try:
            record: Any = parse_json(line)
        except ValueError:
            return
        if record.get("slide_id") == _RUN and record.get("status") == "refused" and not record.get("seconds"):
            return  # the run itself was refused: no slide was processed
        slide_id, status = str(record.get("slide_id"))[:100], str(record.get("status"))[:20]
        counted = self._counted
        if len(counted.states) > MAX_STATES and status not in counted.states:
            return
        counted.states[status] += 1
        if len(counted.ends) < MAX_KEPT or slide_id in counted.ends:
            # The message of a finished slide repeats what its page shows.
            reasons = ("", "") if status in GOOD_STATES else (record.get("code"), record.get("message"))
            code, message = (str(reason or "")[:MAX_MESSAGE] for reason in reasons)
            counted.ends[slide_id] = SlideEnd(slide_id, status, code, message)


@lru_cache(maxsize=MAX_JOBS)
def _log_at(path: Path) -> JobLog:
    return JobLog(path)


def log_of(project: Project, job_id: str) -> JobLog:
    """The one reader of a job's log in this process. Raises UnreadableError: not a valid job id."""
    return _log_at(job_path(project, job_id, "log"))
