"""Log of a rank's current work, in a file that outlives the rank: it shows which rank died, and what it was doing.

`runs/ranks/<run_id>/rank-00003.log` has a line for each action of the step under way: UTC time, number of the step,
action. A new step empties the file. A rank that succeeds removes its file.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from training.foundation.publish import explain_unwritable

FOLDER = "ranks"
BEFORE_STEPS = -1
"""Used in place of a step's number."""
_TAIL_BYTES = 4096


class RankLog:
    """The file of one rank. It can serve as the engine's `watch`."""

    def __init__(self, runs_dir: Path, run_id: str, rank: int) -> None:
        """Create the file.

        Raises:
            DiskFullError: no space, or not writable.
        """
        self.path = log_path(runs_dir, run_id, rank)
        with explain_unwritable(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._step = BEFORE_STEPS
        self.last = "starting"
        """Last action that this rank began."""

    def __call__(self, step: int, what: object) -> None:
        """Log what comes next.

        Raises:
            DiskFullError: no space.
        """
        self.last = str(what) if step == BEFORE_STEPS else f"step {step}, {what}"
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with explain_unwritable(self.path):
            if step != self._step:
                os.ftruncate(self._file, 0)
                self._step = step
            os.write(self._file, f"{now} {self.last}\n".encode())

    def close(self, *, ended_well: bool) -> None:
        """Stop writing; the file of a rank that has ended well is removed."""
        os.close(self._file)
        if ended_well:
            with suppress(OSError):  # removed already, or other ranks still write beside it
                self.path.unlink()
                self.path.parent.rmdir()


def log_path(runs_dir: Path, run_id: str, rank: int) -> Path:
    """Path of a rank's file."""
    return runs_dir / FOLDER / run_id / f"rank-{rank:05}.log"


def last_words(path: Path) -> str | None:
    """The last line of a rank's file; None if there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None
