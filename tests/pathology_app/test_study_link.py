"""A link to the study pages names one page, and any other text falls back to an existing page."""

from __future__ import annotations

import pytest

from pathology_app.links.link import MAX_TEXT
from pathology_app.links.studies import StudyLink


@pytest.mark.parametrize(
    ("link", "query"),
    [
        (StudyLink(""), {"study": ""}),
        (StudyLink("s"), {"study": "s"}),
        (StudyLink("s", state="done", find="a b", page=2), {"study": "s", "state": "done", "find": "a b", "page": "2"}),
        (
            StudyLink("s", "failures", state="failed", code=""),
            {"study": "s", "view": "failures", "state": "failed", "code": ""},
        ),
        (StudyLink("s", slide="S-1", before=421), {"study": "s", "study_slide": "S-1", "before": "421"}),
    ],
)  # fmt: skip
def test_a_place_has_a_link_that_names_it(link: StudyLink, query: dict[str, str]) -> None:
    assert link.query() == query
    assert StudyLink.of(query) == link


@pytest.mark.parametrize(
    "query",
    [
        {"state": "<b>"}, {"state": ""}, {"view": "else"}, {"page": "0"}, {"page": "-1"}, {"page": "x"}, {"page": "٣"},
        {"page": "9" * 5000}, {"before": "1e9"}, {"before": "0"}, {"study_slide": ""}, {"slide": "S-1"}, {"x": "y"},
    ],
)  # fmt: skip
def test_what_cannot_mean_anything_is_left_out(query: dict[str, str]) -> None:
    assert StudyLink.of({"study": "s", **query}) == StudyLink("s")


def test_texts_are_as_long_as_names_can_be_and_hold_no_zero_byte() -> None:
    link = StudyLink.of({"study": "s\0" * 10_000, "find": "\0"})
    assert len(link.study) == MAX_TEXT
    assert "\0" not in link.study + link.find
