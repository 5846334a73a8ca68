"""What every run record says of run, machine and versions; and a place for it that a full disk cannot take away."""

from __future__ import annotations

import errno
import json
import os
import platform
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from training.foundation.publish import TemporaryFile, explain_unwritable

_RESERVE_BYTES = 64 * 2**10
_LISTS = ("slides", "outputs", "epochs")
"""What is left out of a record that does not fit on a full disk."""


def new_run_id() -> str:
    """UTC time and six random hex digits."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of installed distributions."""
    found = {"python": platform.python_version()}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def host() -> dict[str, object]:
    """The machine, without its name: names of hospital computers can name people."""
    return {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()}


class RecordFile:
    """The file `runs/<run_id>.json` of a run that has begun. Its room on the disk is taken when the run begins.

    Raises:
        DiskFullError: there is none, or the folder is not writable.
    """

    def __init__(self, runs_dir: Path, run_id: str) -> None:
        self.path = runs_dir / f"{run_id}.json"
        with explain_unwritable(self.path):
            self._file = TemporaryFile(self.path, reserve_bytes=_RESERVE_BYTES)

    def write(self, record: dict[str, Any]) -> None:
        """Publish the record. On a full disk a long one is written without its lists, and says so.

        Raises:
            DiskFullError: not even that.
        """
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
