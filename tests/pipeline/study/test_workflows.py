"""The examples for workflow programs run a real study to its end with their local executors."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.project import Project
from tests.pipeline.study.small_study import make_project, tasks_done_twice, with_protocol

WORKFLOWS = Path(__file__).parents[3] / "docs" / "workflows"
SNAKEMAKE = "snakemake==9.27.1"


@pytest.fixture
def project(small_project, gemslide, tmp_path) -> Project:
    """Project with a study, in a folder whose name has to be quoted."""
    folder = tmp_path / "Ada's study"
    folder.mkdir()
    return with_protocol(make_project(small_project, folder, slides=("a",)), small_project, gemslide)


def run(command: list[object], folder: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def check_ended(project: Project, status: Path, verified: Path) -> None:
    slides = json.loads(status.read_text())["slides"]
    assert {state: number for state, number in slides.items() if number} == {"done": 1, "unreadable": 1, "excluded": 1}
    assert json.loads(verified.read_text())["findings"] == []
    assert tasks_done_twice(project) == []


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_the_snakemake_example_runs_a_study_to_its_end(project, tmp_path):
    # A separate environment: Snakemake requires an earlier SQLAlchemy than the ledger.
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", SNAKEMAKE]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"{SNAKEMAKE} cannot be installed: {installed.stderr.strip()[-500:]}")
    out = tmp_path / "out"
    out.mkdir()
    begin = [tmp_path / "venv/bin/snakemake", "-s", WORKFLOWS / "Snakefile", "--cores", 2, "--config"]
    run([*begin, f"project={project.root}", "study=s", "workers=2"], out)
    check_ended(project, out / "s.status.json", out / "s.verified.json")


@pytest.mark.prove
@pytest.mark.timeout(1200)
def test_the_nextflow_example_runs_a_study_to_its_end(project, tmp_path):
    if not shutil.which("nextflow"):
        pytest.skip("nextflow is not installed (https://www.nextflow.io; it needs Java)")
    out = tmp_path / "out"
    out.mkdir()
    begin = ["nextflow", "-q", "run", WORKFLOWS / "main.nf", "--project", project.root, "--study", "s", "--workers", 2]
    run([*begin, "--out", out], out)
    check_ended(project, out / "status.json", out / "verified.json")
