"""A SLURM cluster of two nodes on this machine, for tests: the real controller, daemons and authentication."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.free_ports import free_ports
from tests.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
ADMINISTRATORS_PATH = "/usr/sbin:/sbin"
"""Directories of the daemons."""
KEY = "munge.key"
HOST = socket.gethostname().split(".")[0]
NODES = (HOST, f"{HOST}-second")
"""The ranks meet at the alphabetically first node, whose name has to resolve."""
CONFIGURATION = """
ClusterName=test
SlurmctldHost={nodes[0]}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
NodeName={nodes[0]} NodeHostname={nodes[0]} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores}
NodeName={nodes[1]} NodeHostname={nodes[0]} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing_programs() -> list[str]:
    search_path = f"{os.environ.get('PATH', '')}:{ADMINISTRATORS_PATH}"
    return [name for name in PROGRAMS if shutil.which(name, path=search_path) is None]


@contextmanager
def cluster(folder: Path, cores: int, search_path: str) -> Iterator[dict[str, str]]:
    """Run a cluster; yield the environment that `sbatch` and the like need. All its processes end with the block.

    Args:
        folder: folder of its own with a short path, because a socket is created in it.
        cores: number of cores that each node reports.
        search_path: PATH of jobs.
    """
    asking = {"PATH": f"{search_path}:{ADMINISTRATORS_PATH}", "SLURM_CONF": str(folder / "slurm.conf")}
    environment = {**os.environ, **asking}
    _write_configuration(folder, cores)
    options = {"socket": "munge.socket", "key-file": KEY, "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munge = [f"--{option}={folder / name}" for option, name in options.items()]
    with ExitStack() as running:
        running.enter_context(_daemon(folder, environment, "munged", "--force", "--foreground", *munge))
        wait_until((folder / "munge.socket").exists, seconds=240)
        running.enter_context(_daemon(folder, environment, "slurmctld", "-D"))
        for node in NODES:
            running.enter_context(_daemon(folder, environment, "slurmd", "-D", "-N", node))
        wait_until(lambda: _states(environment) == ["idle", "idle"], seconds=240)
        yield asking


def _write_configuration(folder: Path, cores: int) -> None:
    filled = CONFIGURATION.format(user=getpass.getuser(), folder=folder, nodes=NODES, cores=cores, ports=free_ports(3))
    (folder / "slurm.conf").write_text(filled)
    (folder / "state").mkdir()
    (folder / KEY).write_bytes(secrets.token_bytes(128))
    (folder / KEY).chmod(0o400)


def _states(environment: dict[str, str]) -> list[str]:
    command = ["sinfo", "--noheader", "--Node", "--format=%t"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.split()


@contextmanager
def _daemon(folder: Path, environment: dict[str, str], *command: str) -> Iterator[None]:
    with (folder / "daemons.said").open("a") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)
