"""Request for a study worker, from a starter to the process that starts it."""

from __future__ import annotations

from dataclasses import dataclass

LOGS_DIR = "logs"
"""In the study's folder: output of workers started by Dask or SLURM."""


@dataclass(frozen=True)
class StartRequest:
    """A requested study worker. On some clusters it crosses the network in clear text: it holds no secret."""

    run_id: str
    study_id: str
    project: str
    """Absolute path, the same on all machines."""
    folder: str
    """Of the study, in the project."""
    devices: str
    threads: int | None
    """Of the worker; None: as its environment says."""
    has_ledger_variable: bool
    """Whether the environment names the ledger where the request was made."""
    machine: str
    """The only machine that reaches the ledger (`owner.machine_id`); empty: all do."""
