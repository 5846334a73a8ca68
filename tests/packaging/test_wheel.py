"""A wheel holds all of gemslide: it runs without a checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

from pathology_app.viewer.bundle import bundle_path

ROOT = Path(__file__).parents[2]
PACKAGES = ("pathology_app", "pipeline", "training")
NOT_SHIPPED = {"__pycache__", "node_modules"}

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture(scope="module")
def names(wheel):
    with ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_every_file_of_the_three_packages_and_nothing_else(names):
    files = (path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    expected = {path.as_posix() for path in files if not NOT_SHIPPED.intersection(path.parts)}

    assert {name for name in names if ".dist-info/" not in name} == expected


@pytest.mark.parametrize(
    "name",
    [
        bundle_path().relative_to(ROOT).as_posix(),
        "pathology_app/viewer/frontend/THIRD_PARTY_LICENSES.md",
        "pathology_app/desktop/napari.yaml",
        "pathology_app/jobs/__init__.pyi",
        "pipeline/evaluation/report.html.j2",
        "pipeline/inference/results/slide_report.html.j2",
        "pipeline/study/report/report.html.j2",
        "pipeline/ledger/migrations/env.py",
        "pipeline/ledger/migrations/script.py.mako",
        "training/recipes/demo.toml",
        "training/recipes/resnet110_1024.toml",
        ".dist-info/licenses/LICENSE",
    ],
)
def test_the_wheel_holds_the_data_files_that_programs_open(name, names):
    assert [path for path in names if path.endswith(name)] != []


@pytest.mark.prove
def test_the_installed_wheel_runs_doctor_and_makes_a_ledger_without_the_checkout(wheel, tmp_path):
    """Use a clean virtual environment that borrows this one's libraries, but not its gemslide."""
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin/python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    (own,) = (environment / "lib").glob("python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]
    (own / "libraries.pth").write_text("\n".join(libraries) + "\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(*command: object) -> str:
        outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [*map(str, command)], cwd=elsewhere, env=outside, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = "import json, pathology_app, pipeline, training; "
    where += "print(json.dumps([m.__file__ for m in (pathology_app, pipeline, training)]))"
    assert all(Path(file).is_relative_to(own) for file in json.loads(run(python, "-c", where)))
    assert "zarr codec imagecodecs_jpeg2k" in run(environment / "bin/gemslide", "doctor")
    ledger = "from pipeline.ledger import open_ledger; from pipeline.project import open_project; "
    ledger += "from pathlib import Path; open_ledger(open_project(Path()))"
    run(python, "-c", ledger)
    assert (elsewhere / "gemslide.db").stat().st_size > 0
