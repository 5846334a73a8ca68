"""Real runs of real ranks that are killed, stopped, restarted, or spread over two torchrun agents."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.models.launch import train
from tests.free_ports import free_ports
from tests.slurm import cluster, missing_programs
from tests.small_trained_project import Way, share_tiles
from tests.waiting import wait_until

GEMSLIDE = Path(sys.executable).parent / "gemslide"
SBATCH_SCRIPT = Path(__file__).parents[2] / "docs" / "workflows" / "train.sbatch"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
WAYS = {1: Way("single"), 2: Way("master", num_stages=2)}
"""Ways by number of ranks; their results are the same."""
GRACE_S = 30.0
"""Time that torchrun waits for ranks after SIGTERM."""

pytestmark = pytest.mark.xdist_group("faults")


def write(folder: Path, way: Way = WAYS[2], *, parallel: str = "") -> Path:
    recipe = way.write(folder / "r.toml", steps=40)
    text = recipe.read_text().replace("timeout_s = 120.0", f"timeout_s = 120.0\n{parallel}")
    recipe.write_text(text + "[checkpoint]\nevery_steps = 4\n")
    return recipe


@pytest.fixture(scope="module")
def unbroken(small_project, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    share_tiles(small_project.project, folder)
    return train(write(folder), folder, 2)


@contextmanager
def running(command: list[object], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process whose output goes to a file; its child processes end with the block."""
    with (folder / "said.txt").open("a") as output:
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=output, text=True, env={**os.environ, **environment}
        )
        family: list[psutil.Process] = []
        try:
            yield process
        finally:
            if process.poll() is None:
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for one in family:
                one.kill()
            process.wait()


def rank_process(number: int, parent: int) -> psutil.Process | None:
    for child in psutil.Process(parent).children(recursive=True):
        try:
            if child.environ().get("RANK") == str(number) and "training.train" in child.cmdline():
                return child
        except psutil.Error:
            continue
    return None


def wait_for_checkpoint(folder: Path) -> None:
    wait_until(lambda: any(folder.glob("checkpoints/*/step-*/manifest.json")), seconds=240)


def models_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "models").iterdir()}


def said_by(folder: Path) -> str:
    return (folder / "said.txt").read_text()


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_killed_rank_ends_the_run_by_name_and_the_same_command_goes_on_to_the_same_weights(
    small_project, unbroken, tmp_path, num_ranks
):
    share_tiles(small_project.project, tmp_path)
    recipe, last = write(tmp_path, WAYS[num_ranks]), num_ranks - 1
    command = [GEMSLIDE, "train", recipe, "--project", tmp_path, "--nproc", num_ranks]
    with running(command, tmp_path) as process:
        wait_for_checkpoint(tmp_path)
        victim = rank_process(last, process.pid)
        assert victim is not None
        victim.kill()
        killed_s = time.monotonic()
        assert process.wait(120) == 1
        assert time.monotonic() - killed_s < GRACE_S + 10

    output = " ".join(said_by(tmp_path).split())
    assert f"error [lost_peer]: rank {last} was ended by signal 9 (Killed)" in output
    assert "It was last in: 20" in output
    assert "Started again, the run resumes from its last checkpoint" in output
    assert "Traceback" not in output
    (log,) = tmp_path.glob(f"runs/ranks/*/rank-{last:05}.log")
    assert str(log) in output
    assert not (tmp_path / "models").exists()

    assert train(recipe, tmp_path, num_ranks) == unbroken
    assert not list(tmp_path.glob("checkpoints/*"))


def test_torchrun_starts_the_ranks_again_and_they_go_on_by_themselves(small_project, unbroken, tmp_path):
    share_tiles(small_project.project, tmp_path)
    command = [
        *TORCHRUN, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "-m", "training.train", write(tmp_path),
        "--project", tmp_path,
    ]  # fmt: skip
    with running(command, tmp_path, OMP_NUM_THREADS="1") as process:
        wait_for_checkpoint(tmp_path)
        victim = rank_process(0, process.pid)
        assert victim is not None
        victim.kill()
        assert process.wait(240) == 0, said_by(tmp_path)

    assert models_of(tmp_path) == {unbroken.best, unbroken.last}


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def agent(folder: Path, recipe: Path, nodes: str, port: int, restarts: int = 0) -> list[object]:
    return [
        *TORCHRUN, "--nnodes", nodes, "--nproc-per-node", 1, "--max-restarts", restarts, "--rdzv-backend", "c10d",
        "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test", "--local-addr", "127.0.0.1",
        "-m", "training.train", recipe, "--project", folder,
    ]  # fmt: skip


def test_two_agents_train_one_model_together(small_project, unbroken, tmp_path):
    share_tiles(small_project.project, tmp_path)
    command = agent(tmp_path, write(tmp_path), "2", free_ports(1)[0])
    with (
        running(command, tmp_path, OMP_NUM_THREADS="1") as one,
        running(command, tmp_path, OMP_NUM_THREADS="1") as other,
    ):
        assert (one.wait(240), other.wait(240)) == (0, 0), said_by(tmp_path)

    assert models_of(tmp_path) == {unbroken.best, unbroken.last}


@pytest.mark.prove
def test_two_nodes_of_a_slurm_cluster_train_one_model_together(small_project, unbroken, tmp_path):
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: slurm-wlm and munge)")
    share_tiles(small_project.project, tmp_path)
    search_path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [
        "sbatch", "--wait", "--gpus-per-node=0", "--cpus-per-task=1", "--output", tmp_path / "said.txt", SBATCH_SCRIPT,
        write(tmp_path), tmp_path,
    ]  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="slurm-") as folder,
        cluster(Path(folder), cores=1, search_path=search_path) as environment,
        running(command, tmp_path, **environment, RANKS_PER_NODE="1", OMP_NUM_THREADS="1") as process,
    ):
        assert process.wait(300) == 0, said_by(tmp_path)

    assert models_of(tmp_path) == {unbroken.best, unbroken.last}


@pytest.mark.prove
def test_when_a_machine_goes_the_other_goes_on_alone_to_the_same_weights(small_project, unbroken, tmp_path):
    share_tiles(small_project.project, tmp_path)
    port = free_ports(1)[0]
    command = agent(tmp_path, write(tmp_path, parallel="elastic = true"), "1:2", port, restarts=5)
    with running(command, tmp_path, OMP_NUM_THREADS="1") as one:
        wait_until(lambda: listens(port), seconds=240)  # the agents meet at the first one, whose machine has to stay
        with running(command, tmp_path, OMP_NUM_THREADS="1") as other:
            wait_for_checkpoint(tmp_path)
            for victim in (*psutil.Process(other.pid).children(recursive=True), psutil.Process(other.pid)):
                victim.kill()
            assert one.wait(500) == 0, said_by(tmp_path)

    assert models_of(tmp_path) == {unbroken.best, unbroken.last}


@pytest.mark.prove
def test_a_rank_that_stands_still_is_found_by_the_timeout(small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = write(tmp_path)
    recipe.write_text(recipe.read_text().replace("timeout_s = 120.0", "timeout_s = 5.0"))
    command = [GEMSLIDE, "train", recipe, "--project", tmp_path, "--nproc", 2]
    with running(command, tmp_path) as process:
        wait_for_checkpoint(tmp_path)
        victim = rank_process(1, process.pid)
        assert victim is not None
        victim.send_signal(signal.SIGSTOP)
        assert process.wait(5 + GRACE_S + 60) == 1

    output = " ".join(said_by(tmp_path).split())
    assert "error [lost_peer]: rank 0 in (" in output
    assert "Rank 1 was last in: 20" in output
    assert not victim.is_running()
