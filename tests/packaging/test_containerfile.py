"""Checks of the Containerfile without a container runtime, and a real run of its installation steps."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pathology_app.started_app import started_app

ROOT = Path(__file__).parents[2]
PREFIX = "/opt/gemslide"
"""Installation path of gemslide in the image."""


@dataclass(frozen=True)
class Step:
    """One instruction: its stage, its name, and the rest of the line."""

    stage: int
    name: str
    rest: str

    @property
    def copied(self) -> list[str]:
        """Sources of a COPY from the checkout; empty for any other instruction or a copy from another stage."""
        return [] if self.name != "COPY" or self.rest.startswith("--from=") else shlex.split(self.rest)[:-1]


def steps() -> list[Step]:
    lines = [line for line in (ROOT / "Containerfile").read_text().splitlines() if not line.startswith("#")]
    all_steps, stage = [], 0
    for line in filter(None, "\n".join(lines).replace("\\\n", " ").splitlines()):
        name, rest = line.split(maxsplit=1)
        stage += name == "FROM"
        all_steps.append(Step(stage, name, " ".join(rest.split())))
    return all_steps


def last(name: str) -> str:
    """Arguments of the instruction in effect: the last one of this name in the last stage."""
    last_stage = max(step.stage for step in steps())
    return [step.rest for step in steps() if step.name == name and step.stage == last_stage][-1]


def test_everything_that_is_copied_is_there_and_nothing_else_is_sent_to_the_builder():
    copied = {source for step in steps() for source in step.copied}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()

    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied
    assert next(line for line in ignored if not line.startswith("#")) == "*"


def test_the_image_runs_as_a_person_without_rights_who_owns_the_one_volume():
    names = [step.name for step in steps()]
    runs = [step.rest for step in steps() if step.name == "RUN"]
    user, volume = last("USER"), last("VOLUME")

    assert int(user) > 0, "by its number, so that a cluster can see that it is not root"
    assert names.count("USER") == 1
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    assert names.count("VOLUME") == 1
    assert any(f"useradd --create-home --uid {user} " in run and f"--owner {user} {volume}" in run for run in runs)
    assert last("WORKDIR") == volume


def test_the_image_keeps_no_secret_and_names_no_index():
    text = (ROOT / "Containerfile").read_text()

    assert not re.search(r"password|token=|://|_key\b|index-url|^ARG", text, re.IGNORECASE | re.MULTILINE)
    # pip's configuration may hold an index's password: it is mounted for one step, and is in no layer.
    assert [run for run in re.findall(r"^RUN.*", text, re.MULTILINE) if "secret" in run] == [
        "RUN --mount=type=secret,id=pip,target=/etc/pip.conf \\"
    ]


def test_the_image_and_its_page_say_research_use_only():
    assert "Research use only. Not for diagnosis." in (ROOT / "Containerfile").read_text()


def test_the_stage_that_builds_and_the_image_have_the_same_python_which_the_project_supports():
    bases = [step.rest.removesuffix(" AS build") for step in steps() if step.name == "FROM"]

    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert fnmatch.fnmatch(bases[0], "python:3.11-slim-*")


def default_command(project: Path, python: Path) -> tuple[list[str], int]:
    """Start command of the image, with another folder and any free port; and the port that the image names."""
    arguments = json.loads(last("CMD"))
    assert arguments.pop(0) == "gemslide"
    port = arguments.index("--port") + 1
    named, arguments[port] = int(arguments[port]), "0"
    return [str(python.with_name("gemslide")), *(str(project) if a == last("VOLUME") else a for a in arguments)], named


def check_default_command(python: Path, folder: Path) -> None:
    """Check that the app listens on all addresses, answers as localhost, and admits the holder of its link."""
    project = folder / "project"
    project.mkdir()
    command, port = default_command(project, python)

    with started_app(project, folder / "log.txt", command=command) as app:
        assert app.name == "localhost"
        assert f"http://localhost:{app.port}/?token=" in app.next_link()
    assert int(last("EXPOSE")) == port


def test_the_default_command_lets_the_host_reach_the_app_and_asks_everybody_to_sign_in(tmp_path):
    check_default_command(Path(sys.executable), tmp_path)


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_the_steps_that_install_give_an_environment_that_runs_without_the_checkout(tmp_path):
    """Run the first stage's COPY and RUN, with another folder for /opt/gemslide and the machine's pip configuration."""
    source, prefix = tmp_path / "source", tmp_path / "gemslide"
    source.mkdir()
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for step in steps():
        if step.stage > 1 or step.name not in ("COPY", "RUN"):
            continue
        if step.name == "COPY":
            copy(step, source)
        else:
            command = re.sub(r"--mount=\S+ ", "", step.rest).replace(PREFIX, str(prefix))
            command = re.sub(r"^python\b", shlex.quote(sys.executable), command)
            subprocess.run(["sh", "-euc", command], cwd=source, env=outside, check=True)
    shutil.rmtree(source)

    python = prefix / "bin/python"
    where = "import pathology_app as a, pipeline as p, training as t; print(a.__file__, p.__file__, t.__file__)"
    for command in ([python, "-m", "pip", "check"], [python, "-c", where], [prefix / "bin/gemslide", "doctor"]):
        done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert command[-1] != where or all(Path(file).is_relative_to(prefix) for file in done.stdout.split())
    assert not (prefix / "uv").exists()
    check_default_command(python, tmp_path)


def copy(step: Step, source: Path) -> None:
    """Copy as COPY does: the contents of folders, and files under their names."""
    target = source / shlex.split(step.rest)[-1]
    for path in (ROOT / name for name in step.copied):
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            target.mkdir(exist_ok=True)
            shutil.copy(path, target)
