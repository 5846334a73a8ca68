"""A study whose database becomes unavailable while it runs: it waits, then continues."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger
from pipeline.project import Project
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.new_protocol import new_protocol
from pipeline.study.protocol import AboutStudy
from pipeline.study.work.study import begin_study
from tests.small_trained_project import TISSUE_TOML, make_slide
from tests.waiting import wait_until


def test_a_pool_and_workers_wait_for_a_database_that_is_away_and_go_on(small_project, tmp_path, postgres):
    project = new_study(tmp_path, small_project)
    url = postgres.new_database()
    with Ledger(Database(url)) as ledger:
        begin_study(project, "s", ledger, actor="ada")
    pool_said, worker_said = tmp_path / "pool", tmp_path / "worker"
    with process(pool_said, project, url, "run", "s", "--workers", "1") as pool, ExitStack() as later:
        wait_until(lambda: b"ingest: done" in pool_said.read_bytes(), seconds=120)
        (first,) = psutil.Process(pool.pid).children()
        with postgres.away():
            later.enter_context(process(worker_said, project, url, "work", "s"))
            first.kill()
            for output_file in (pool_said, worker_said):
                wait_until(lambda output_file=output_file: b"minutes at most" in output_file.read_bytes(), seconds=120)
        wait_until(lambda: first not in psutil.Process(pool.pid).children() != [], seconds=120)
        wait_until(lambda: b"qc: done" in worker_said.read_bytes(), seconds=120)
    assert b"Traceback" not in pool_said.read_bytes() + worker_said.read_bytes()


@contextmanager
def process(output_file: Path, project: Project, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `gemslide study …` in a process that ends with the block."""
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", "study", *arguments]
    environment = {**os.environ, LEDGER_VARIABLE: url}
    with output_file.open("wb") as output:
        started = subprocess.Popen(
            [*command, "--project", str(project.root)], stdout=output, stderr=output, env=environment
        )
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def new_study(folder: Path, small_project) -> Project:
    shutil.copytree(small_project.project.models_dir, folder / "p" / "models")
    project = Project(folder / "p")
    project.settings_path.write_text(TISSUE_TOML)
    names = ("a", "b", "c")
    for seed, name in enumerate(names):
        make_slide(folder / f"{name}.tiff", seed)
    manifest = folder / "cohort.csv"
    manifest.write_text(
        "\n".join(["path,slide_id,patient_id", *(f"{name}.tiff,{name},patient-{name}" for name in names)])
    )
    new_protocol(
        project, "s", AboutStudy(title="", question="How good is it?", cohort=str(manifest)), [small_project.model_id]
    )
    return project
