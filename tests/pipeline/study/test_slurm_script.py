"""The script of a SLURM job array: valid, quoted, and one of its jobs works on a real study until it must stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.ledger.opening import open_ledger
from pipeline.settings.config import load_settings
from pipeline.settings.starters import SlurmConfig
from pipeline.study.proof.verify import verify_log
from pipeline.study.starting.slurm import array_script
from pipeline.study.starting.start_request import StartRequest
from tests.pipeline.study.fake_slurm import fake_slurm
from tests.pipeline.study.small_study import entries, make_project, status, tasks_done_twice, with_protocol
from training.foundation.errors import BadRecipeError

HOSTILE = 'a study\'s "best" $(touch owned) `touch owned` ; touch owned # %j \\ é'
ORDER = StartRequest("run", "s", f"/{HOSTILE}/p", f"/{HOSTILE}/p/studies/s", "cpu", None, True, "")


@pytest.fixture
def calls(tmp_path, monkeypatch) -> Path:
    """File with the requests to the fake SLURM programs."""
    return fake_slurm(tmp_path, monkeypatch)


def options_of(script: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH ")]


def test_the_script_asks_for_what_the_settings_say(tmp_path):
    (tmp_path / "gemslide.toml").write_text(
        '[study.slurm]\npartition = "gpu"\naccount = "pathology"\nwalltime = "1-00:00:00"\ncores = 8\nmemory_gb = 24\n'
        'gpus = 1\nextra = ["--qos=long", "--exclusive"]\n'
    )
    script = array_script(ORDER, load_settings(tmp_path / "gemslide.toml").study.slurm, 12)
    assert options_of(script) == [
        "--job-name=gemslide-s", "--partition=gpu", "--account=pathology", "--time=1-00:00:00", "--ntasks=1",
        "--cpus-per-task=8", "--mem=24G", "--gres=gpu:1", "--qos=long", "--exclusive", "--array=1-12",
        "--output=gemslide-s-%A_%a.out", "--open-mode=append", "--requeue", "--signal=B:USR1@90",
    ]  # fmt: skip
    assert not any(HOSTILE in option for option in options_of(script))
    assert "Research use only" in script


@pytest.mark.parametrize(
    "setting",
    ['partition = "a b"', 'account = "x\\n#SBATCH --output=/etc/passwd"', 'walltime = "soon"', "cores = 0",
     'extra = ["--output=/home/ada/.ssh/authorized_keys"]', 'extra = ["--qos=long --wrap=x"]', 'extra = ["rm -rf ~"]',
     'prologue = ["rm -rf ~"]'],
)  # fmt: skip
def test_a_project_s_settings_name_no_file_and_no_program(tmp_path, setting):
    (tmp_path / "gemslide.toml").write_text(f"[study.slurm]\n{setting}\n")
    with pytest.raises(BadRecipeError, match=r"\[study.slurm\]"):
        load_settings(tmp_path / "gemslide.toml")


@pytest.mark.parametrize("has_ledger_variable", [True, False])
def test_the_script_is_valid_whatever_the_project_is_called(tmp_path, has_ledger_variable):
    order = replace(ORDER, has_ledger_variable=has_ledger_variable)
    script = array_script(order, SlurmConfig(), 2)
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert ("GEMSLIDE_LEDGER" in script) == has_ledger_variable


def run_job(script: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    """Run a job as SLURM would: in the submission's folder, with its variables."""
    given = {**os.environ, "SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2", **environment}
    (folder / "job.sh").write_text(script)
    return subprocess.Popen(["bash", "job.sh"], cwd=folder, env=given, stdout=-1, stderr=subprocess.STDOUT, text=True)


def test_without_the_ledgers_url_a_job_says_what_to_export_and_ends(tmp_path, monkeypatch):
    monkeypatch.delenv("GEMSLIDE_LEDGER", raising=False)
    done = run_job(array_script(ORDER, SlurmConfig(), 1), tmp_path)
    output, _ = done.communicate()
    assert done.returncode != 0
    assert "export GEMSLIDE_LEDGER before sbatch" in output


def test_a_worker_that_ends_at_once_is_started_five_times(tmp_path):
    order = replace(ORDER, project=str(tmp_path / "nowhere"), folder=str(tmp_path / "s"), has_ledger_variable=False)
    script = array_script(order, SlurmConfig(), 1)
    command = next(line.strip() for line in script.splitlines() if " study work " in line)
    done = run_job(script.replace(command, f"echo began >> {tmp_path}/count; false &"), tmp_path)
    done.communicate(timeout=60)
    assert done.returncode == 1
    assert (tmp_path / "count").read_text().split() == ["began"] * 5


def test_a_job_gives_its_task_back_at_the_time_limit_is_queued_again_and_ends_the_study(
    small_project, gemslide, tmp_path, calls
):
    folder = tmp_path / HOSTILE.replace("/", "")
    folder.mkdir()
    project = with_protocol(make_project(small_project, folder, slides=("a",)), small_project, gemslide)
    script = ("study", "script", "s", "--workers", 3, "--project", project.root)
    assert "study s: not in this ledger" in gemslide(*script).err
    for _ in range(2):
        begun = gemslide("study", "begin", "s", "--project", project.root)
        assert (begun.code, "2 of 3 slides are to be done" in begun.out) == (0, True)
    printed = gemslide(*script)
    assert printed.code == 0, printed.err
    assert "SQLite" in printed.err
    job = run_job(printed.out, tmp_path)
    ledger = open_ledger(project)
    while not ledger.counts("s").tasks["ingest"]["leased"]:
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGTERM, output
    assert calls.read_text() == "requeue 77_2\n"
    assert not ledger.counts("s").tasks["ingest"]["leased"]
    assert entries(project, "task given back") == ["task a/ingest"]

    job = run_job(printed.out, tmp_path)
    output, _ = job.communicate(timeout=120)
    log = project.root / "studies/s/logs/slurm-77_2.log"
    assert job.returncode == 0, output + log.read_text()
    assert str(log) in output
    states = {state: number for state, number in status(gemslide, project)["slides"].items() if number}
    assert states == {"done": 1, "unreadable": 1, "excluded": 1}
    assert tasks_done_twice(project) == []
    assert verify_log(ledger.database, "s").findings == ()
    ledger.database.close()
    assert "a: ingest: done" in log.read_text()
    assert not list(tmp_path.rglob("owned"))
    assert calls.read_text() == "requeue 77_2\n"


def test_the_script_is_written_to_a_file_on_request(small_project, gemslide, tmp_path):
    project = with_protocol(make_project(small_project, tmp_path, slides=("a",)), small_project, gemslide)
    out = tmp_path / "my job.sh"
    gemslide("study", "begin", "s", "--project", project.root)
    done = gemslide("study", "script", "s", "--workers", 2, "--out", out, "--project", project.root)
    assert (done.code, done.out) == (0, "")
    assert f"sbatch '{out}'" in done.err
    assert "--array=1-2" in out.read_text()
