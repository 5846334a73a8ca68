"""Record of a run, in one JSON file whose space on the disk is reserved when the run begins.

A record names inputs by id and SHA-256, never by path: slide file names can name patients.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from training.foundation.process import requests_to_stop_held
from training.foundation.publish import TemporaryFile, explain_unwritable

_RESERVE_BYTES = 64 * 2**10
RUN_ID_VARIABLE = "GEMSLIDE_RUN_ID"
"""Environment variable with the name of the first run that a process records, chosen by the starting process."""
_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}")
_LISTS = ("slides", "outputs", "epochs")
"""Entries omitted from a record that does not fit on a full disk."""


def new_run_id() -> str:
    """UTC time and six random hex digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def is_run_id(text: str) -> bool:
    """Whether a text has the form of a name from `new_run_id`."""
    return text.isascii() and _RUN_ID.fullmatch(text) is not None


def own_run_id() -> str:
    """The run name given by the process that started this one, once; otherwise a new one."""
    given = os.environ.pop(RUN_ID_VARIABLE, "")
    return given if is_run_id(given) else new_run_id()


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of installed distributions."""
    return {"python": platform.python_version(), **{name: _version(name) for name in names}}


@cache
def _version(name: str) -> str:
    """Installed version, read once per process: loaded code does not change, and each slide states it often."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def host() -> dict[str, object]:
    """The machine, without its name: names of hospital computers can name people."""
    return {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()}


@dataclass
class RunRecord:
    """Record that a run fills in as it proceeds; `recorded` writes it when the run ends, however it ends."""

    verb: str
    settings: dict[str, Any]
    run_id: str = field(default_factory=own_run_id)
    inputs: list[dict[str, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """Entries that only this verb's record has."""
    versioned: tuple[str, ...] = ()
    """Distributions whose versions can change the result."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a block to `seconds[name]`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add_seconds(name, time.perf_counter() - start)

    def add_seconds(self, name: str, seconds: float) -> None:
        """Add to the time of a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def outcome(self) -> str:
        """Outcome of a run that reached its end: `done`, or `failed` where part of its work was not done."""
        return "done"

    def as_dict(self, outcome: str) -> dict[str, Any]:
        """The record as JSON."""
        return {
            "run_id": self.run_id,
            "verb": self.verb,
            "settings": self.settings,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "versions": versions_of(self.versioned),
            "host": host(),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "outcome": outcome,
            **self.extra,
        }


R = TypeVar("R", bound=RunRecord)


@contextmanager
def recorded(record: R, runs_dir: Path) -> Iterator[R]:
    """Write `record` to `runs_dir` at the end of the block; an error becomes its outcome, and is raised again.

    The outcome of an error is its `code`; without one it is `interrupted` (Ctrl+C and the like) or `failed`. Requests
    to stop that arrive meanwhile wait until the record is written, and are dropped if the run has ended with an error.

    Raises:
        DiskFullError: no space for it when the run begins, or no permission.
    """
    file, outcome, has_failed = RecordFile(runs_dir, record.run_id), "interrupted", True
    try:
        yield record
        outcome, has_failed = record.outcome(), False
    except Exception as error:
        outcome = str(getattr(error, "code", "failed"))
        raise
    finally:
        try:
            _finish(file, record, outcome, has_failed=has_failed)
        finally:
            _finish(
                file, record, outcome, has_failed=has_failed
            )  # a request to stop can come before the first call holds it off


def _finish(file: RecordFile, record: RunRecord, outcome: str, *, has_failed: bool) -> None:
    """Write the record unless that was begun already."""
    with requests_to_stop_held() as came:
        if not file.is_begun:
            file.write(record.as_dict(outcome))
    if came and not has_failed:
        signal.raise_signal(came[0])


class RecordFile:
    """The file `runs/<run_id>.json` of a run that has begun. Its disk space is reserved when the run begins.

    Raises:
        DiskFullError: no space, or the folder is not writable.
    """

    def __init__(self, runs_dir: Path, run_id: str) -> None:
        self.path = runs_dir / f"{run_id}.json"
        self.is_begun = False
        """Whether writing has begun."""
        with explain_unwritable(self.path):
            self._file = TemporaryFile(self.path, reserve_bytes=_RESERVE_BYTES)

    def write(self, record: dict[str, Any]) -> None:
        """Publish the record. On a full disk a long one is written without its lists, and says so.

        Raises:
            DiskFullError: even that does not fit.
        """
        self.is_begun = True
        with explain_unwritable(self.path), self._file as file:
            try:
                file.publish(_as_json(record))
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                short = {key: value for key, value in record.items() if key not in _LISTS}
                file.publish(_as_json({**short, "shortened": "the disk was full; lists are left out"}))


def _as_json(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, default=str) + "\n").encode()
