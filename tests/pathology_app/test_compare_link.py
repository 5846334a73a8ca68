"""Links to slides side by side."""

from __future__ import annotations

import pytest

from pathology_app.links.compare import COMPARE, CompareLink, CompareView


@pytest.mark.parametrize("text", ["", "S-1", "S-1~model-a,S-1~model-b", "S-1~,S-2,S.3~m_1,S-4"])
def test_a_link_says_again_what_it_said(text: str) -> None:
    assert CompareLink.of({COMPARE: text}).text == text


@pytest.mark.parametrize("text", ["../x", "S-1~../m", "S 1", "~m", ",,", "S-1~m~n", "<b>", "x" * 65])
def test_what_can_be_no_view_is_left_out(text: str) -> None:
    assert CompareLink.of({COMPARE: text}).views == ()


def test_no_more_than_four_are_shown() -> None:
    link = CompareLink.of({COMPARE: ",".join(f"S-{number}" for number in range(9))})
    assert len(link.views) == 4
    assert link.with_view(CompareView("S-9")) == link


def test_views_are_added_changed_and_taken_away() -> None:
    link = CompareLink(()).with_view(CompareView("S-1")).with_view(CompareView("S-2", "m"))
    assert link.with_model(0, "").text == "S-1~,S-2~m"
    assert link.without(0).text == "S-2~m"
