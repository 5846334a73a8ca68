"""Start real processes that communicate over gloo, and collect their results.

Every rank is forked from a server that has only imported torch: importing torch takes two seconds of a core, a fork a
few milliseconds.
"""

import multiprocessing
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from training.engine.ranks import Ranks, connect_ranks

TIMEOUT_S = 240.0
PRELOADED = [
    "pytest",
    "torch._dynamo",  # imported by torch's first optimizer
    "tests.distributed.problem",
    "tests.training.engine.small_networks",
    "training.run.trainer",
    "pipeline.tiles.dataset",
]

multiprocessing.set_forkserver_preload(PRELOADED)


def run_ranks(num_ranks: int, task: Callable[..., Any], *args: Any, timeout_s: float = TIMEOUT_S) -> list[Any]:
    """Run `task(ranks, *args)` once per rank, each time in a new process.

    Args:
        task: a module-level function, so that the new processes can import it.
        timeout_s: timeout for every message between ranks.

    Returns:
        the result of each rank, or None for a rank that left without one. A rank that raises makes this call raise,
        with that rank's traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        # join=False and our own loop: the children end by themselves, at the latest after the message timeout.
        context = torch.multiprocessing.start_processes(
            _one_rank,
            (num_ranks, folder, timeout_s, task, args),
            nprocs=num_ranks,
            join=False,
            start_method="forkserver",
        )
        while not context.join():
            pass
        files = [Path(folder) / f"result{rank}" for rank in range(num_ranks)]
        return [pickle.loads(file.read_bytes()) if file.exists() else None for file in files]


def _one_rank(
    rank: int, num_ranks: int, folder: str, timeout_s: float, task: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    ranks: Ranks = connect_ranks(
        timeout_s=timeout_s, init_method=f"file://{folder}/meeting-point", rank=rank, num_ranks=num_ranks
    )
    result = task(ranks, *args)
    (Path(folder) / f"result{rank}").write_bytes(pickle.dumps(result))
    ranks.close()
