"""Whatever a slide ended with, there is a remedy for it; and slides without a result are grouped by it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline.errors import GemslideError
from pipeline.project import Project
from pipeline.run_record import INTERNAL_ERROR
from pipeline.study.failures import Failures, failures_of
from pipeline.study.leases import LOST_WORKER, SET_ASIDE, Ended, Leases
from pipeline.study.ledger import NewSlide
from pipeline.study.limits import Limits
from pipeline.study.opening import open_ledger
from pipeline.study.owner import this_process
from pipeline.study.remedies import OTHER, REMEDIES, remedies_of, remedy_of
from pipeline.study.worker import MAY_HEAL

ROOT = Path(__file__).parents[3]


def codes() -> set[str]:
    """Of every class of error in what workers run, as it stands in the source."""
    sources = [path for package in ("pipeline", "training") for path in (ROOT / package).rglob("*.py")]
    stated = re.compile(r'^    code = "(\w+)"$', re.MULTILINE)
    return {GemslideError.code}.union(*(stated.findall(path.read_text(encoding="utf-8")) for path in sources))


def test_every_code_has_a_remedy_and_every_remedy_a_code():
    assert len(codes()) > 20
    assert set(REMEDIES) == codes() | MAY_HEAL | {SET_ASIDE, LOST_WORKER, INTERNAL_ERROR}


def test_a_remedy_is_a_few_plain_sentences():
    for code, remedy in REMEDIES.items():
        assert remedy[0].isupper() or remedy.startswith("gemslide"), code
        assert remedy.endswith("."), code
        assert 60 < len(remedy) < 400, (code, len(remedy))
        assert "  " not in remedy, code


def test_a_code_of_a_sites_own_reader_and_none_have_the_general_remedy():
    assert remedy_of("their_code") == remedy_of(None) == remedy_of("") == OTHER
    assert remedies_of(["locked", None, "locked"]) == {"locked": REMEDIES["locked"], "": OTHER}


@pytest.fixture
def failed(begun):
    """S-1 and S-2 are unreadable with one code, S-4 without any."""
    end(begun, "s", "corrupt_tile", "corrupt_tile", None)
    return begun


def end(ledger, study_id: str, *ends: str | None) -> None:
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    for code in ends:
        lease = mine.take(study_id)
        mine.finish(lease, Ended("unreadable", code, f"slide {lease.slide_id}: says {code}"))


def test_slides_without_a_result_are_grouped_by_code_with_an_example(failed):
    assert failures_of(failed, "s") == [
        Failures("unreadable", "corrupt_tile", 2, "S-1", "slide S-1: says corrupt_tile"),
        Failures("unreadable", "", 1, "S-4", "slide S-4: says None"),
    ]
    assert failures_of(failed, "s")[0].remedy == REMEDIES["corrupt_tile"]


def test_a_study_without_failures_has_no_groups(begun):
    assert failures_of(begun, "s") == []


def test_status_says_what_to_do(tmp_path, gemslide, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with open_ledger(Project(tmp_path)) as ledger:
        ledger.begin("s", {}, "0" * 64, [NewSlide("S-1"), NewSlide("S-2")], ("ingest",), actor="ada")
        end(ledger, "s", "missing_mpp", "locked")
    said = " ".join(gemslide("study", "status", "s", "--project", tmp_path).out.split())
    assert "What to do about them" in said
    assert "Find that in the scanner's settings" in said
    found = json.loads(gemslide("study", "status", "s", "--project", tmp_path, "--json").out)
    assert found["remedies"] == {code: REMEDIES[code] for code in ("locked", "missing_mpp")}
    assert [(each["code"], each["slides"], each["example"]) for each in found["failures"]] == [
        ("locked", 1, "S-2"),
        ("missing_mpp", 1, "S-1"),
    ]
