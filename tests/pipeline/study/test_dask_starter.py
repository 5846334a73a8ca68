"""Study workers on real Dask clusters whose workers, schedulers and starters die; and dead addresses."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipeline.errors import ProcessFailedError
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.settings.starters import SlurmConfig
from pipeline.study.proof.verify import verify_log
from pipeline.study.starting import dask_clusters, dask_slurm
from pipeline.study.starting.dask_slurm import StudyCluster
from pipeline.study.work.owner import Owner
from tests.pipeline.study.fake_slurm import fake_slurm
from tests.pipeline.study.small_study import entries, make_project, status, tasks_done_twice, with_protocol

GEMSLIDE = [sys.executable, "-c", "from pipeline.cli import main; main()"]


@pytest.fixture
def begun(small_project, gemslide, tmp_path) -> Project:
    """Study of two slides and a file that is not a slide."""
    return with_protocol(make_project(small_project, tmp_path, slides=("a", "b")), small_project, gemslide)


@pytest.fixture
def ledger(begun) -> Iterator[Ledger]:
    with open_ledger(begun) as opened:
        yield opened


@contextmanager
def starter(
    project: Project, *options: object, environment: dict[str, str] | None = None
) -> Iterator[subprocess.Popen]:
    """Run `gemslide study run` in a process that ends with the block."""
    command = [*GEMSLIDE, "study", "run", "s", "--project", project.root, *options]
    process = subprocess.Popen(
        [*map(str, command)], stdout=-1, stderr=-1, text=True, start_new_session=True, env=environment
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def wait_for(what: Callable[[], object], process: subprocess.Popen, *, seconds: float = 120) -> object:
    give_up = time.monotonic() + seconds
    while not (result := what()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return result


def owners(ledger: Ledger) -> list[Owner]:
    """Owners of the tasks that are held now."""
    if "s" not in ledger.study_ids():
        return []
    rows = [row for name in ("a", "b", "bad") for row in ledger.tasks("s", name) if row.state == "leased"]
    return [owner for row in rows if (owner := Owner.parse(row.owner))]


def check_whole(project: Project, ledger: Ledger, gemslide) -> None:
    """Check that every slide is in one terminal state, nothing was done twice, and the log verifies."""
    states = {state: number for state, number in status(gemslide, project)["slides"].items() if number}
    assert states == {"done": 2, "unreadable": 1, "excluded": 1}
    assert tasks_done_twice(project) == []
    assert verify_log(ledger.database, "s").findings == ()
    assert owners(ledger) == []


def test_a_dask_worker_killed_in_the_middle_costs_nothing(begun, ledger, gemslide):
    with starter(begun, "--on", "dask", "--workers", 2) as running:
        first = wait_for(lambda: owners(ledger), running)[0]
        study_worker = psutil.Process(first.pid)
        study_worker.parent().kill()
        assert study_worker.wait(60) != 0
        out, err = running.communicate(timeout=200)
    assert running.returncode == 1, err  # one slide cannot be read
    assert "Research use only" in out
    assert "Traceback" not in err
    assert "b: ingest: done" in err
    assert "bad: ingest: ended (unreadable)" in err
    assert entries(begun, "task given back") or entries(begun, "lease lapsed")
    check_whole(begun, ledger, gemslide)


def silent(connection: socket.socket) -> None:
    time.sleep(60)


def no_scheduler(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def listening(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Port on which another program answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return
                threading.Thread(target=behave, args=(kept[-1],), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


@pytest.mark.parametrize("behave", [silent, no_scheduler, None])
def test_where_no_scheduler_answers_there_is_one_error_in_bounded_time(begun, gemslide, monkeypatch, behave):
    monkeypatch.setattr(dask_clusters, "CONNECT_S", 1.0)
    with listening(behave or silent) as port:
        address = f"tcp://127.0.0.1:{port if behave else 1}"
        start = time.monotonic()
        done = gemslide("study", "run", "s", "--on", address, "--project", begun.root)
    assert done.code == 1
    assert time.monotonic() - start < 20
    assert f"error [unreadable]: {address}: no Dask scheduler answered there" in done.err


@pytest.mark.parametrize(
    "place",
    ["cloud", "tcp://", "tcp://host", "tcp://:80", "tcp://a b:1", "tcp://host:99999", "tcp://host:0", "udp://a:1"],
)
def test_a_place_that_is_none_is_refused_before_the_study_begins(begun, ledger, gemslide, place):
    done = gemslide("study", "run", "s", "--on", place, "--project", begun.root)
    assert done.code == 1
    assert "give local, dask, slurm, or the address of a Dask scheduler" in done.err
    assert ledger.study_ids() == []


def test_without_dask_the_extra_is_named(begun, gemslide, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    done = gemslide("study", "run", "s", "--on", "dask", "--project", begun.root)
    assert done.code == 1
    assert "distributed is not installed" in done.err
    assert "gemslide[dask]" in done.err


def test_slurm_needs_sbatch_and_a_number_of_jobs(begun, gemslide, monkeypatch, tmp_path):
    without = gemslide("study", "run", "s", "--on", "slurm", "--project", begun.root)
    assert "give the number of jobs with --workers" in without.err
    monkeypatch.setenv("PATH", str(tmp_path))
    done = gemslide("study", "run", "s", "--on", "slurm", "--workers", 1, "--project", begun.root)
    assert (without.code, done.code) == (1, 1)
    assert "there is no `sbatch` here" in done.err


def test_a_job_that_sbatch_refuses_is_told_in_its_words(begun, gemslide, monkeypatch, tmp_path):
    fake_slurm(tmp_path, monkeypatch, sbatch="echo 'sbatch: error: invalid partition specified: gpu' >&2; exit 1")
    done = gemslide("study", "run", "s", "--on", "slurm", "--workers", 1, "--project", begun.root)
    assert done.code == 1
    assert "--on slurm: sbatch: error: invalid partition specified: gpu. See [study.slurm]" in done.err
    assert not list((begun.root / "studies/s").glob(".tls-*"))


def test_jobs_go_to_the_study_and_ask_for_what_the_settings_say(begun, gemslide, monkeypatch, tmp_path):
    """Every path in a job's script is quoted, and the credentials of its worker are readable by its owner alone."""
    calls = fake_slurm(tmp_path, monkeypatch)
    folder = tmp_path / "Ada's study $(touch owned)" / "s"
    folder.mkdir(parents=True)
    cluster = StudyCluster(SlurmConfig(partition="gpu", walltime="60", gpus=1, extra=("--qos=long",)), "s", folder)
    try:
        cluster.submit(1)
        script = calls.with_suffix(".101.sh").read_text()
        keys = list(folder.glob(".tls-*/*.pem"))
        assert {key.parent.stat().st_mode & 0o777 for key in keys} == {0o700}
    finally:
        cluster.close()
        cluster.remove_keys()
    assert cluster.job_script().splitlines()[:12] == script.splitlines()[:12]
    options = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
    assert options == [
        "--job-name=gemslide-s", "--partition=gpu", "--time=60", "--ntasks=1", "--cpus-per-task=4", "--mem=8G",
        "--gres=gpu:1", "--qos=long", "--output=gemslide-s-%j.out",
    ]  # fmt: skip
    assert f"cd -- {shlex.quote(str(folder))} && " in script
    assert len(keys) == 3
    assert f"--tls-key {keys[0].parent.name}/key.pem" in script
    assert "tls://" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    assert not list(tmp_path.rglob("owned"))
    assert not list(folder.glob(".tls-*"))


def test_jobs_that_end_before_their_workers_come_are_submitted_again_and_then_given_up(monkeypatch, tmp_path):
    calls = fake_slurm(tmp_path, monkeypatch)
    monkeypatch.setattr(dask_slurm, "LOOK_S", 0.0)
    monkeypatch.setattr(dask_slurm.sys, "executable", "/bin/false")
    messages: list[str] = []

    def wait() -> None:
        with dask_slurm.slurm_cluster(SlurmConfig(), "s", tmp_path, 2, messages.append) as (_, mend):
            for _ in range(100):
                time.sleep(0.1)
                mend()

    with pytest.raises(ProcessFailedError, match=r"jobs ended before their workers started.*/logs"):
        wait()
    assert "job 101 ended before its worker started; submitting another one." in messages
    assert calls.with_suffix(".103.sh").exists()


@contextmanager
def dask_cluster(folder: Path, workers: int, **environment: str) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """Start a scheduler and its workers as `dask` processes. Yield the address, then the scheduler and the workers."""
    scheduler_file = folder / "scheduler.json"
    given = {**os.environ, **environment}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": given, "cwd": folder}
    begin = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    processes = [
        subprocess.Popen([*begin, "--dashboard-address", "127.0.0.1:0", "--scheduler-file", scheduler_file], **quiet)
    ]
    try:
        give_up = time.monotonic() + 60
        while not scheduler_file.exists() or not scheduler_file.read_text().endswith("}"):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        address = json.loads(scheduler_file.read_text())["address"]
        for _ in range(workers):
            own = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-dashboard"]
            processes.append(subprocess.Popen([*own, "--nanny", "--death-timeout", "30"], **quiet))
        yield address, processes
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_on_an_existing_cluster_whole_dask_workers_may_die(begun, ledger, gemslide, tmp_path):
    with dask_cluster(tmp_path, 2) as (address, _), starter(begun, "--on", address, "--workers", 2) as running:
        study_worker = psutil.Process(wait_for(lambda: owners(ledger), running)[0].pid)
        dask_worker = study_worker.parent()
        dask_worker.parent().kill()  # its nanny, so that it is not restarted
        dask_worker.kill()
        _, err = running.communicate(timeout=300)
    assert running.returncode == 1, err
    assert "Traceback" not in err
    check_whole(begun, ledger, gemslide)


@pytest.mark.prove
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_starter_ends_the_workers_and_they_give_their_tasks_back(begun, ledger, tmp_path, number):
    with dask_cluster(tmp_path, 1) as (address, _), starter(begun, "--on", address) as running:
        held = wait_for(lambda: owners(ledger), running)
        study_worker = psutil.Process(held[0].pid)
        running.send_signal(number)
        _, err = running.communicate(timeout=60)
        psutil.wait_procs([study_worker], timeout=60)
        assert not study_worker.is_running()
    assert running.returncode != 0
    assert "Traceback" not in err
    assert owners(ledger) == []
    assert entries(begun, "task given back")
    assert not ledger.counts("s").is_over


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_scheduler_that_goes_away_is_one_clear_error_and_leaves_no_task_held(begun, ledger, tmp_path):
    with dask_cluster(tmp_path, 1) as (address, processes), starter(begun, "--on", address) as running:
        study_worker = psutil.Process(wait_for(lambda: owners(ledger), running)[0].pid)
        processes[0].kill()
        _, err = running.communicate(timeout=120)
        psutil.wait_procs([study_worker], timeout=60)
        assert not study_worker.is_running()
    assert running.returncode == 1
    assert f"error [failed_process]: the Dask scheduler {address} is gone" in err
    assert "Traceback" not in err
    assert owners(ledger) == []


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_dask_worker_without_the_ledgers_url_is_one_clear_error_without_a_password(begun, postgres, tmp_path):
    url = postgres.new_database().replace("postgres@", "postgres:secret@")
    environment = {**os.environ, "GEMSLIDE_LEDGER": url}
    with (
        dask_cluster(tmp_path, 1) as (address, _),
        starter(begun, "--on", address, environment=environment) as running,
    ):
        out, err = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "GEMSLIDE_LEDGER is not set on" in err
    assert "secret" not in out + err


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_a_job_that_is_killed_in_the_middle_is_replaced(begun, ledger, gemslide, tmp_path, monkeypatch):
    calls = fake_slurm(tmp_path, monkeypatch)
    with starter(begun, "--on", "slurm", "--workers", 1) as running:
        study_worker = psutil.Process(wait_for(lambda: owners(ledger), running)[0].pid)
        os.killpg(int(calls.with_suffix(".101.pid").read_text()), signal.SIGKILL)
        psutil.wait_procs([study_worker], timeout=60)
        assert not study_worker.is_running()
        _, err = running.communicate(timeout=400)
    assert running.returncode == 1, err
    assert "1 job submitted" in err
    assert "Traceback" not in err
    assert calls.with_suffix(".102.sh").exists()
    assert not list((begun.root / "studies/s").glob(".tls-*"))
    check_whole(begun, ledger, gemslide)
