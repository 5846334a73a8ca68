"""Slides that hide a name or a label: really ingested, with none of it in the project."""

import json

import pytest

from tests.attacks.leaks import planted, run
from tests.attacks.leaky_files import leaky_files
from tests.pipeline.identity_scan import scan

pytestmark = pytest.mark.xdist_group("leaks")  # the sources are written once


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("leaky")
    rows = ["path,slide_id,patient_id"]
    for number, file in enumerate(leaky_files()):
        file.write(folder / file.name)
        rows.append(f"{file.name},S-{number},P-1")
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_the_search_finds_what_is_hidden_in_every_source(sources):
    """Control: each file holds a secret that the search finds in the file's own bytes."""
    files_found = {line.split(":")[0] for line in scan(sources, planted())}

    assert {file.name for file in leaky_files()} <= files_found


def test_nothing_that_was_hidden_in_a_slide_is_in_the_project(gemslide, sources, tmp_path):
    done = gemslide("ingest", sources / "cohort.csv", "--project", tmp_path, "--json")

    assert done.code == 1
    (record,) = (json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*.json"))
    status = {outcome["slide_id"]: outcome["status"] for outcome in record["slides"]}
    for number, file in enumerate(leaky_files()):
        assert (status[f"S-{number}"] != "done") == file.is_refused, file.name
    assert len(list((tmp_path / "slides").iterdir())) == sum(not file.is_refused for file in leaky_files())
    assert scan(tmp_path, planted()) == []


def test_hidden_texts_in_any_combination_leave_the_honest_slide_byte_for_byte(tmp_path):
    assert run(times=12, seed=1, folder=tmp_path) == []
