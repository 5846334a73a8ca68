"""`python -m training.local_ranks --nproc-per-node N -m training.train …`: the ranks of a run on this machine.

A substitute for torchrun on one machine, without restarts: it starts in a tenth of a second instead of more than one,
since it does not import torch. The ranks meet in a file. When one fails, the others, which would wait for it, are asked
to stop. Ranks report their own errors, in one message; for killed ranks this process reports which, during what, and
where the log is. Runs over several machines use torchrun itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from training.foundation.process import die_with_parent
from training.foundation.run_record import RUN_ID_VARIABLE, new_run_id
from training.machine.rank_log import last_words, log_path

MEETING_VARIABLE = "GEMSLIDE_RANKS_MEET_IN"
"""Environment variable with the file through which the ranks meet; torchrun's ranks have an address instead."""
INTERRUPTED, REFUSED = 130, 2
"""Exit codes of a rank that was asked to stop, and of one that found, as all others do, that the run cannot start."""
GRACE_S = 30.0
"""Time for ranks that were asked to stop."""
POLL_S = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m training.local_ranks", allow_abbrev=False)
    parser.add_argument("--nproc-per-node", type=int, required=True)
    options, arguments = parser.parse_known_args()
    run_id = os.environ.setdefault(RUN_ID_VARIABLE, new_run_id())
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="gemslide-ranks-") as folder:
        ranks = _start(options.nproc_per_node, arguments, Path(folder) / "meeting")
        try:
            codes = _wait(ranks)
        except KeyboardInterrupt:
            _stop(ranks)
            return INTERRUPTED
        _stop(ranks)
    for rank, code in codes.items():
        if code < 0:
            sys.stderr.write(_kill_message(rank, -code, log_path(_project() / "runs", run_id, rank)))
    return 1 if any(codes.values()) else 0


def _start(num_ranks: int, arguments: Sequence[str], meeting: Path) -> list[subprocess.Popen[bytes]]:
    here = {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks), MEETING_VARIABLE: str(meeting)}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, **here, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            preexec_fn=die_with_parent,
        )
        for rank in range(num_ranks)
    ]


def _wait(ranks: Sequence[subprocess.Popen[bytes]]) -> dict[int, int]:
    """Exit codes by rank: of all, or of those that have ended when the first one fails."""
    refused_s = None
    while True:
        codes = {rank: code for rank, process in enumerate(ranks) if (code := process.poll()) is not None}
        if len(codes) == len(ranks) or set(codes.values()) - {0, REFUSED}:
            return codes
        if REFUSED in codes.values():  # the others are about to find the same, and one of them reports it
            refused_s = refused_s or time.monotonic()
            if time.monotonic() - refused_s > GRACE_S:
                return codes
        time.sleep(POLL_S)


def _stop(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    end_s = time.monotonic() + GRACE_S
    for process in ranks:
        process.terminate()
    for process in ranks:
        try:
            process.wait(max(end_s - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _kill_message(rank: int, number: int, log: Path) -> str:
    by_memory = " The system also does that when memory runs out." if number == signal.SIGKILL else ""
    return (
        f"error [lost_peer]: rank {rank} was ended by signal {number} ({signal.strsignal(number)}).{by_memory} It was "
        f"last in: {last_words(log) or 'nothing yet'} (its log: {log}). Started again, the run resumes from its last "
        "checkpoint.\n"
    )


def _project() -> Path:
    """The project of the run, from its arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--project", type=Path, default=Path())
    project: Path = parser.parse_known_args()[0].project
    return project


if __name__ == "__main__":
    sys.exit(main())
