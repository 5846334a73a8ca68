"""The documents are correct: the tutorial's commands run, links resolve, the demonstration does what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOCKS = ("requirements.lock", "requirements-torch.lock")
NAMES_A_FILE = re.compile(r"^# file: (\S+)$", re.MULTILINE)


def blocks(path: Path) -> list[tuple[str, str]]:
    """(language, text) of every fenced block."""
    matches = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [(language, text) for language, text in matches]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str) -> list[tuple[str, str, int]]:
    """(package, version, number of hashes) for each pin of a lock file."""
    text = (ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ")
    matches = re.findall(r"^([A-Za-z][\w.-]*)==(\S+)(.*)$", text, re.MULTILINE)
    return [
        (normal(name), version, len(re.findall(r"--hash=sha256:[0-9a-f]{64}", rest))) for name, version, rest in matches
    ]


def commands_of(document: str) -> str:
    """Shell script of a page: the files that it names, and its blocks without a language."""
    shell = []
    for language, text in blocks(ROOT / document):
        named = NAMES_A_FILE.search(text)
        if named:
            shell.append(f"cat > {named.group(1)} <<'END_OF_FILE'\n{text}END_OF_FILE\n")
        elif not language:
            shell.append(text)
    return "".join(shell)


def run(script: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=folder, env={**os.environ, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_to_a_file_leads_there(path):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_every_page_a_person_reads_results_on_says_research_use_only():
    for name in ("README.md", "docs/tutorials/first_project.md", "docs/reference/training.md"):
        assert "Research use only. Not for diagnosis." in (ROOT / name).read_text(encoding="utf-8")


def test_the_lock_satisfies_what_the_project_asks_for():
    from packaging.requirements import Requirement

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    locked = {name: version for file in LOCKS for name, version, _ in pins(file)}
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        version = locked[re.sub(r"[-_.]+", "-", requirement.name).lower()]
        assert requirement.specifier.contains(version), (text, version)
    assert locked["torch"] == "2.13.0"


def test_every_locked_package_but_torch_has_hashes_and_none_says_where_it_comes_from():
    assert [name for name, _, num_hashes in pins("requirements.lock") if not num_hashes] == []
    assert [name for name, _, _ in pins("requirements-torch.lock")] == ["torch"]
    assert not any(re.search("://|index-url|find-links", (ROOT / file).read_text()) for file in LOCKS)


def test_every_locked_package_is_asked_for_by_the_project_or_by_another():
    from importlib.metadata import distribution

    from packaging.requirements import Requirement

    text = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = text["project"]["optional-dependencies"].values()
    lines = [
        *text["project"]["dependencies"],
        *text["build-system"]["requires"],
        *(t for extra in extras for t in extra),
    ]
    waiting, needed = [Requirement(line) for line in lines], set()
    while waiting:
        requirement = waiting.pop()
        known = {(normal(requirement.name), extra) for extra in ("", *requirement.extras)}
        if not known <= needed:
            needed |= known
            dependencies = [Requirement(line) for line in distribution(requirement.name).requires or []]
            waiting += [
                r for r in dependencies if r.marker is None or any(r.marker.evaluate({"extra": e}) for _, e in known)
            ]

    # hatchling requires editables to build; zoneinfo needs tzdata if the system has no time zones.
    unasked = {name for file in LOCKS for name, _, _ in pins(file)} - {name for name, _ in needed}
    assert unasked == {"editables", "tzdata"}


def test_the_engine_page_s_example_draws_a_schedule(tmp_path):
    (command,) = (t for _, t in blocks(ROOT / "docs/explanation/engine.md") if t.startswith("python -c"))

    assert "B0" in run(command, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_command_of_the_tutorial_and_of_training_runs_and_the_demonstration_reaches_its_accuracy(tmp_path):
    output = run(commands_of("docs/tutorials/first_project.md"), tmp_path)
    trained = run(commands_of("docs/reference/training.md"), tmp_path)
    tuned = [
        path for path in (tmp_path / "study/models").glob("tuned-*/card.md") if "It starts from" in path.read_text()
    ]
    assert tuned
    assert "guide-" in trained

    (report,) = (tmp_path / "demo/results").glob("*/evaluation_demo_test.json")
    evaluation = json.loads(report.read_text())
    by_method = evaluation["by_method"]
    assert by_method["this model"]["accuracy"] >= 0.9
    assert by_method["this model"]["auc"] >= 0.9
    assert set(by_method) == {"this model", "untrained network", "mean colour (logistic regression)"}
    html = report.with_suffix(".html").read_text()
    assert "It says nothing about diagnosis" in html
    assert "Research use only. Not for diagnosis." in html
    _check_what_the_demo_prints(output)
    _check_that_a_negative_slide_has_few_hotspots(tmp_path / "demo", evaluation["model_id"])


def _check_what_the_demo_prints(output: str) -> None:
    for name in ("store", "model", "heatmap", "GeoJSON", "report"):
        (path,) = re.findall(rf"^{name} +(\S+)$", output, re.MULTILINE)
        assert path.startswith("demo/")
    assert "gemslide app --project demo" in output
    assert "accuracy" in output
    figures = re.findall(
        r"^(this model, mean over the tile|lite0 \(linear probe\)) +(\S+) +(\S+)$", output, re.MULTILINE
    )
    assert len(figures) == 2, "no probe: is the extra `encoders` missing?"
    for _, accuracy, auc in figures:
        assert float(accuracy) >= 0.8
        assert float(auc) >= 0.8
    assert re.search(r"^on \d+ larger tiles \(112 µm\) ", output, re.MULTILINE)


def _check_that_a_negative_slide_has_few_hotspots(project: Path, model_id: str) -> None:
    folder = project / "results" / model_id
    counts = {
        name: sum(spot["area_um2"] for spot in json.loads((folder / name / "hotspots.json").read_text())["hotspots"])
        for name in ("demo-test-positive", "demo-test-negative")
    }
    assert counts["demo-test-negative"] < 0.1 * counts["demo-test-positive"]
