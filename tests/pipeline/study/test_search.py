"""Slides are found by state, code and part of their names, a page at a time, on both databases."""

from __future__ import annotations

import pytest

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import NewSlide
from pipeline.study.outcomes.search import MAX_WORDS, NO_CODE, SlideSearch, find_slides
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process

NAMES = ("CRC-001-A", "CRC-002-B", "crc-003-a", "X_1", "X-1", "100%", "é-1")


@pytest.fixture
def searched(ledger):
    """Study whose first two slides were refused, the second of them without a code."""
    ledger.begin("s", {}, "0" * 64, [NewSlide(name) for name in NAMES], ("ingest",), actor="ada")
    ledger.begin("other", {}, "0" * 64, [NewSlide("CRC-001-A")], ("ingest",), actor="ada")
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    for code in ("locked", None):
        mine.finish(mine.take("s"), Ended("refused", code))
    return ledger


def names(ledger, wanted: SlideSearch, **page: int) -> list[str]:
    return [row.slide_id for row in find_slides(ledger, "s", wanted, **page).rows]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (SlideSearch(), list(NAMES)),
        (SlideSearch(text="crc a"), ["CRC-001-A", "crc-003-a"]),
        (SlideSearch(text="00 -B"), ["CRC-002-B"]),
        (SlideSearch(text="x_1"), ["X_1"]),
        (SlideSearch(text="0%"), ["100%"]),
        (SlideSearch(text="\\ ' \" ;"), []),
        (SlideSearch(text="é"), ["é-1"]),
        (SlideSearch(text="nobody"), []),
        (SlideSearch(text="\0"), list(NAMES)),
        (SlideSearch("refused"), ["CRC-001-A", "CRC-002-B"]),
        (SlideSearch("refused", "locked"), ["CRC-001-A"]),
        (SlideSearch("refused", NO_CODE), ["CRC-002-B"]),
        (SlideSearch("pending", text="x"), ["X_1", "X-1"]),
        (SlideSearch("done"), []),
    ],
)
def test_what_is_found(searched, wanted, found):
    assert names(searched, wanted) == found
    assert find_slides(searched, "s", wanted).total == len(found)


def test_pages_follow_each_other_in_the_manifests_order(searched):
    pages = [names(searched, SlideSearch(), skip=skip, limit=3) for skip in (0, 3, 6, 9)]
    assert pages == [list(NAMES[:3]), list(NAMES[3:6]), list(NAMES[6:]), []]
    assert find_slides(searched, "s", SlideSearch(), skip=3, limit=3).total == len(NAMES)


def test_a_search_of_any_length_is_answered(searched):
    assert names(searched, SlideSearch(text="x" * 100_000)) == []
    assert names(searched, SlideSearch(text="crc " * MAX_WORDS + "nobody")) == list(NAMES[:3])


def test_an_unknown_study_is_said(searched):
    with pytest.raises(BadManifestError, match="study nobody: not in this ledger, which has other, s"):
        find_slides(searched, "nobody", SlideSearch())


def test_one_slide_what_is_held_and_all_studies(searched):
    mine = Leases(searched, this_process(), Limits(), actor="worker")
    held = [mine.take("s").slide_id for _ in range(2)]
    assert [row.slide_id for row in searched.held("s")] == held
    assert [row.slide_id for row in searched.held("s", limit=1)] == held[:1]
    assert searched.slide("s", "CRC-001-A").code == "locked"
    with pytest.raises(BadManifestError, match="slide nobody: is not in study s"):
        searched.slide("s", "nobody")
    with pytest.raises(BadManifestError, match="study nobody: not in this ledger"):
        searched.slide("nobody", "CRC-001-A")
    assert [(row.study_id, dict(slides)) for row, slides in searched.studies()] == [
        ("other", {"pending": 1}),
        ("s", {"pending": 5, "refused": 2}),
    ]
    assert [row.slide_id for row in searched.tasks("s", "X_1", "CRC-002-B")] == ["CRC-002-B", "X_1"]


def test_a_history_is_read_from_its_end(searched):
    subjects = ("slide CRC-001-A", "task CRC-001-A/ingest")
    whole = searched.history("s", *subjects)
    assert [row.action for row in whole] == ["slide entered", "task taken", "task ended", "slide ended"]
    assert searched.history("s", *subjects, newest=2) == whole[2:]
    assert searched.history("s", *subjects, newest=2, before=whole[2].seq) == whole[:2]
    assert [row.action for row in searched.history("s", "slide CRC-001-A")] == ["slide entered", "slide ended"]
