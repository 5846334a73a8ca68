"""`python -m training.local_ranks --nproc-per-node N -m training.train …`: torchrun on this machine, without its pages.

Ranks say themselves what went wrong, in one message; of those that were killed this start says it: which, in what, and
where its log is. torchrun's own summary and traceback are left out, its exit code is kept. Runs over several machines
use torchrun itself.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

os.environ.setdefault("LOGLEVEL", "ERROR")  # read by torch when it is imported

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from training.foundation.run_record import RUN_ID_VARIABLE, new_run_id
from training.rank_log import last_words, log_path

INTERRUPTED = 130


def main() -> int:
    run_id = os.environ.setdefault(RUN_ID_VARIABLE, new_run_id())
    try:
        # torch ships no types for its launcher.
        arguments = run.parse_args(["--standalone", *sys.argv[1:]])  # type: ignore[no-untyped-call]
        run.run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        killed = {rank: -failure.exitcode for rank, failure in sorted(error.failures.items()) if failure.exitcode < 0}
        for rank, number in killed.items():
            sys.stderr.write(_killed(rank, number, log_path(_project() / "runs", run_id, rank)))
        return 1
    except SignalException:
        return INTERRUPTED
    return 0


def _killed(rank: int, number: int, log: Path) -> str:
    by_memory = " The system does that, too, where memory runs out." if number == signal.SIGKILL else ""
    return (
        f"error [lost_peer]: rank {rank} was ended by signal {number} ({signal.strsignal(number)}).{by_memory} It was "
        f"last in: {last_words(log) or 'nothing yet'} (its log: {log}). Started again, the run goes on at its last "
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
