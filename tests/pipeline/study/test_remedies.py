"""There is a remedy for every way a slide can end, and slides without a result are grouped by remedy."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.opening import open_ledger
from pipeline.project import Project
from pipeline.run_record import INTERNAL_ERROR
from pipeline.study.outcomes.failures import Failures, failures_of
from pipeline.study.outcomes.remedies import OTHER, REMEDIES, remedies_of, remedy_of
from pipeline.study.work.leases import LOST_WORKER, SET_ASIDE, Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.worker import MAY_HEAL
from training.foundation.errors import GemslideError

ROOT = Path(__file__).parents[3]


def codes() -> set[str]:
    """Codes of every error class in the workers' code, from the source."""
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
    """Study in which S-1 and S-2 are unreadable with one code, S-4 without any."""
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
    text = " ".join(gemslide("study", "status", "s", "--project", tmp_path).out.split())
    assert "What to do about them" in text
    assert "Look it up in the scanner's settings" in text
    summary = json.loads(gemslide("study", "status", "s", "--project", tmp_path, "--json").out)
    assert summary["remedies"] == {code: REMEDIES[code] for code in ("locked", "missing_mpp")}
    assert [(failure["code"], failure["slides"], failure["example"]) for failure in summary["failures"]] == [
        ("locked", 1, "S-2"),
        ("missing_mpp", 1, "S-1"),
    ]
