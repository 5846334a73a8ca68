"""Starters of a study's workers: on this machine, on a Dask cluster, or as SLURM jobs."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Callable
from importlib import import_module

from pipeline.batches.devices import named_devices
from pipeline.settings.config import StudyConfig
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.starting.local_pool import LocalPool, slots, worker_command, workers_that_fit
from pipeline.study.starting.monitor import StudyMonitor
from pipeline.study.starting.start_request import StartRequest
from pipeline.study.work.owner import machine_id
from pipeline.study.work.shutdown import restored_signals
from pipeline.study.work.study import Study
from training.foundation.errors import BadRecipeError

ON_DASK = ("dask", "slurm")
_ADDRESS = re.compile(r"(tcp|tls)://(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9_.-]+):(\d{1,5})")


def start_workers(
    study: Study, config: StudyConfig, *, on: str, workers: int | None, devices: str, tell: Callable[[str], None]
) -> None:
    """Start workers and wait until the study is over, or paused.

    Args:
        on: "local", "dask" (a cluster on this machine), "slurm", or the address of a Dask scheduler.
        workers: how many; None: as many as fit, one for each device that is not the CPU, or one for each present
            Dask worker.
        devices: of each worker; on this machine they are assigned to the workers one by one.
        tell: called with a line for each task that workers elsewhere have ended, and for other events there.

    Raises:
        BadRecipeError: no such place, Dask is not installed, or no number of jobs. UnreadableError: nobody answers.
        ProcessFailedError: workers kept ending at once; or the Dask scheduler is gone.
    """
    check_place(on)
    watching = StudyMonitor(study.ledger, study.study_id, tell)
    order = order_for(study, devices)
    most = max(1, study.ledger.counts(study.study_id).slides["pending"])
    if on == "local":
        own = slots(named_devices(devices), workers, fit=workers_that_fit())[:most]
        commands = [worker_command(order.study_id, order.project, device) for device in own]
        LocalPool(commands, watching.is_over).run()
        return
    with restored_signals():
        _check_installed(on)  # dask-jobqueue takes over Ctrl+C on import
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        from pipeline.study.starting.dask_clusters import run_on_dask

        run_on_dask(order, config, watching, on=on, workers=workers, most=most, tell=tell)


def _check_installed(on: str) -> None:
    for library in ("distributed", "dask_jobqueue"):
        try:
            import_module(library)
        except ImportError as error:
            raise BadRecipeError(
                f"--on {on}: {library} is not installed. Install gemslide with its extra `dask`: "
                "`pip install 'gemslide[dask]'`."
            ) from error


def check_place(on: str) -> None:
    """Check where to start workers. Raises BadRecipeError: no such place, and not the address of a Dask scheduler."""
    match = _ADDRESS.fullmatch(on)
    if on not in ("local", *ON_DASK) and not (match and 0 < int(match[3]) < 65_536):
        raise BadRecipeError(
            f"--on {on!r:.200}: give local, dask, slurm, or the address of a Dask scheduler, tcp://HOST:PORT or "
            "tls://HOST:PORT."
        )


def order_for(study: Study, devices: str) -> StartRequest:
    """Start request for each worker of a study."""
    return StartRequest(
        run_id=uuid.uuid4().hex,
        study_id=study.study_id,
        project=os.path.abspath(study.project.root),
        folder=os.path.abspath(study.folder),
        devices=devices,
        threads=None,
        has_ledger_variable=bool(os.environ.get(LEDGER_VARIABLE)),
        machine=machine_id() if study.ledger.database.is_sqlite else "",
    )
