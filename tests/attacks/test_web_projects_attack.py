"""Whatever the damage to a project, the web app shows the rest of it and reports the damage."""

from __future__ import annotations

from tests.attacks import web_projects


def test_a_damaged_slide_leaves_the_others_to_be_seen() -> None:
    result = web_projects.attack(8, 3)

    assert result.findings == []
    assert result.attempts == 8
