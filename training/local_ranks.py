"""`python -m training.local_ranks --nproc-per-node N -m training.train …`: torchrun on this machine, without its pages.

Ranks say themselves what went wrong, in one message. torchrun then adds a summary and a traceback of its own; this
start leaves those out and gives the same exit code. Runs over several machines use torchrun itself.
"""

import os
import sys

os.environ.setdefault("LOGLEVEL", "ERROR")  # read by torch when it is imported

from torch.distributed import run
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

INTERRUPTED = 130


def main() -> int:
    try:
        # torch ships no types for its launcher.
        arguments = run.parse_args(["--standalone", *sys.argv[1:]])  # type: ignore[no-untyped-call]
        run.run(arguments)  # type: ignore[no-untyped-call]
    except ChildFailedError:
        return 1
    except SignalException:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
