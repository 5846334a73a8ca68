"""The Dask clusters that a study's workers can be started on: one on this machine, one by its address, one on SLURM."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import dask.config
from distributed import Client, LocalCluster, Security, rpc
from distributed.utils import silence_logging_cmgr

from pipeline.settings.config import StudyConfig
from pipeline.study.starting.dask_slurm import slurm_cluster
from pipeline.study.starting.dask_starter import DaskStarter
from pipeline.study.starting.dask_task import IgnoreCtrlC
from pipeline.study.starting.local_pool import workers_that_fit
from pipeline.study.starting.monitor import StudyMonitor
from pipeline.study.starting.start_request import StartRequest
from training.foundation.errors import BadRecipeError, UnreadableError

CONNECT_S = 10.0
_SPAWN_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
"""Dask's setting for the environment of the processes that it starts."""


def run_on_dask(
    order: StartRequest,
    config: StudyConfig,
    watching: StudyMonitor,
    *,
    on: str,
    workers: int | None,
    most: int,
    tell: Callable[[str], None],
) -> None:
    """Start workers on a Dask cluster and wait until the study is over, or paused.

    Args:
        on: "dask" (a cluster on this machine), "slurm", or the address of a scheduler.
        workers: how many; None: as many as fit, or one for each present Dask worker.
        most: upper limit; more would have nothing to do.

    Raises:
        BadRecipeError, UnreadableError, ProcessFailedError: as `start_workers`.
    """
    mend: Callable[[], None] = lambda: None  # noqa: E731
    resources = config.dask.resources
    with ExitStack() as stack:
        if on == "dask":
            number = min(workers or workers_that_fit(), most)
            order = replace(order, threads=max(1, len(os.sched_getaffinity(0)) // number))
            client, resources = stack.enter_context(local_cluster(number)), {}
        elif on == "slurm":
            if not workers:
                raise BadRecipeError("--on slurm: give the number of jobs with --workers.")
            number, resources = min(workers, most), {}
            order = replace(order, threads=config.slurm.cores)
            jobs = slurm_cluster(config.slurm, order.study_id, Path(order.folder), number, tell)
            client, mend = stack.enter_context(jobs)
        else:
            client = stack.enter_context(cluster_at(on))
            number = min(workers or max(1, len(client.nthreads())), most)
        DaskStarter(client, on, order, number, watching, resources, tell, mend).run()


@contextmanager
def local_cluster(workers: int) -> Iterator[Client]:
    """A cluster on this machine alone; other people on it cannot use it."""
    # Dask's processes write to this terminal, and a closing connection means a traceback; what matters is reported.
    quiet = {f"{_SPAWN_ENVIRONMENT}.DASK_LOGGING__DISTRIBUTED": "critical"}
    with (
        dask.config.set(quiet),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=True,
            dashboard_address="127.0.0.1:0",
            memory_limit=None,  # a study worker is a separate process
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(IgnoreCtrlC())
        yield client


@contextmanager
def cluster_at(address: str) -> Iterator[Client]:
    """A cluster whose scheduler is already running. Raises UnreadableError: no scheduler answers there."""
    with ExitStack() as stack:
        # When a scheduler goes away, Dask prints a traceback whenever it notices; what matters is reported.
        for logger in ("distributed", "distributed.client"):
            stack.enter_context(silence_logging_cmgr(logging.CRITICAL, logger))
        yield stack.enter_context(_connected(address))


def _connected(address: str) -> Client:
    try:
        # Dask's own client waits forever for a stranger who accepts the connection and says nothing.
        asyncio.run(asyncio.wait_for(_greet(address), CONNECT_S))
        return Client(address, timeout=CONNECT_S)
    except Exception as error:  # whatever Dask raises on a stranger's reply
        raise UnreadableError(
            f"{address}: no Dask scheduler answered there within {CONNECT_S:.0f} s. Check the address, that it is "
            f"running, and that its Python, dask and distributed match this environment. ({_first_line(error)})"
        ) from error


async def _greet(address: str) -> None:
    security = Security().get_connection_args("client")
    async with rpc(address, timeout=CONNECT_S, connection_args=security) as scheduler:
        peer = await scheduler.identity(n_workers=0)
    if peer["type"] != "Scheduler":
        raise ValueError(f"a Dask {peer['type']}, not a scheduler")


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200].rstrip(": ")
