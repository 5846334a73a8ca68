"""Each form that starts a run, as first shown: its defaults start a run that succeeds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from pathology_app.jobs.record import job_path
from pathology_app.jobs.state import JobState, status_of
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.project.served import PROJECT_VARIABLE
from pipeline.project import Project
from tests.conftest import Done
from tests.pathology_app.opened import open_page
from tests.small_trained_project import TISSUE_TOML, SmallProject, make_slide, write_recipe

pytestmark = pytest.mark.xdist_group("run_forms")


@pytest.fixture(scope="module")
def project(
    small_project: SmallProject, gemslide: Callable[..., Done], tmp_path_factory: pytest.TempPathFactory
) -> Project:
    """Project with input for every form: slides, tiles, a model, a manifest, a study, a recipe for two ranks."""
    root = tmp_path_factory.mktemp("forms")
    for name in ("slides", "tiles", "models"):
        shutil.copytree(small_project.project.root / name, root / name)
    (root / "gemslide.toml").write_text(TISSUE_TOML)
    (root / "accounts.toml").write_text("[roles]\n")
    write_recipe(root / "small.toml", strategy="master", num_stages=2, steps=2)
    (root / "incoming").mkdir()
    make_slide(root / "incoming" / "new.tiff", 7)
    (root / "incoming" / "cohort.csv").write_text("path,slide_id,patient_id\nnew.tiff,S-9,P-9\n")
    cohort = root / "incoming" / "cohort.csv"
    made = gemslide(
        "study",
        "init",
        "s",
        "--cohort",
        cohort,
        "--model",
        small_project.model_id,
        "--question",
        "?",
        "--project",
        root,
    )
    assert made.code == 0, made.err
    return Project(root)


@pytest.mark.parametrize("form", ["ingest", "train", "infer", "study"])
def test_a_forms_defaults_start_a_run_that_ends_well(
    project: Project, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(project.root))
    page = open_page(page="runs", new=form)

    next(button for button in page.button if button.label == "Start now").click().run(timeout=60)

    job_id = _run_shown(page)
    while (status := status_of(project, job_id)) and status.runs:
        time.sleep(0.1)
    close_study_ledgers()
    log = job_path(project, job_id, "log").read_text()
    assert status is not None
    assert status.state is JobState.DONE, log[-2000:]


def _run_shown(page: AppTest) -> str:
    assert not page.exception
    run = dict(page.query_params).get("run")
    assert run, [error.value for error in page.error]
    return run[0] if isinstance(run, list) else run
