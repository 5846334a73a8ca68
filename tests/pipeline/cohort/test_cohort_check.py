"""`gemslide cohort check` of many slides: as of few, in the manifest's order, and quick."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.ingest.cohort_check import AT_ONCE, FEW, check_entries
from tests.small_road import make_slide, write_annotations


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of some hundred slides; every seventh is missing, and one is no slide."""
    folder = tmp_path_factory.mktemp("many")
    make_slide(folder / "one.tiff", 1)
    write_annotations(folder / "one.geojson")
    (folder / "text.tiff").write_text("no slide")
    rows = ["path,slide_id,annotations,exclude"]
    for number in range(FEW + AT_ONCE):
        if number % 7:
            os.link(folder / "one.tiff", folder / f"{number}.tiff")
        rows.append(
            f"{number}.tiff,S-{number},{'one.geojson' if number == 9 else ''},{'blurred' if number == 3 else ''}"
        )
    rows.append("text.tiff,S-text,,")
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n")
    return folder / "cohort.csv"


def without_times(outcomes):
    return [replace(outcome, seconds=0.0) for outcome in outcomes]


def test_many_slides_are_checked_as_few_are_in_the_manifest_s_order(many, monkeypatch):
    in_processes = without_times(check_entries(load_cohort(many)))
    monkeypatch.setattr("pipeline.ingest.cohort_check.FEW", 10_000)

    assert in_processes == without_times(check_entries(load_cohort(many)))
    assert [o.slide_id for o in in_processes] == [e.slide_id for e in load_cohort(many).included]
    assert {o.slide_id for o in in_processes if o.status != "done"} == {
        "S-text", *(f"S-{n}" for n in range(0, FEW + AT_ONCE, 7)),
    }  # fmt: skip
    assert ["annotations: 2 regions" in o.message for o in in_processes].count(True) == 1


def test_a_process_that_dies_takes_no_slide_with_it(many):
    before = set(psutil.Process().children())
    outcomes = check_entries(load_cohort(many))
    first = next(outcomes)
    for child in set(psutil.Process().children()) - before:
        if "resource_tracker" not in " ".join(child.cmdline()):
            child.kill()

    rest = without_times(outcomes)

    assert [first.slide_id, *(o.slide_id for o in rest)] == [e.slide_id for e in load_cohort(many).included]
    assert not any("crashed" in o.message for o in rest)


def test_the_command_shows_how_far_it_is_and_lines_stay_clean(gemslide, many, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    done = gemslide("cohort", "check", many, "--json")

    assert [json.loads(line)["slide_id"] for line in done.out.splitlines()][-1] == "S-text"
    assert (done.code, "cohort check" in done.err) == (1, True)


def test_a_manifest_of_fifty_thousand_rows_is_read_in_seconds(tmp_path):
    rows = "".join(f"{number}.svs,p-{number},train\n" for number in range(50_000))
    (tmp_path / "cohort.csv").write_text(f"path,patient_id,split\n{rows}")
    start = time.process_time()

    assert len(load_cohort(tmp_path / "cohort.csv").included) == 50_000
    assert time.process_time() - start < 5
