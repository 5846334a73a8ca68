"""A worklist of many slides is as fast as one of few."""

from __future__ import annotations

from tests.attacks.web_many import attack


def test_a_long_worklist_is_quick_and_keeps_nothing_open() -> None:
    assert attack(200, 1).findings == []
