"""A worklist of many slides is as quick as one of few."""

from __future__ import annotations

from pathlib import Path

from tests.attacks.web_many import attack


def test_a_long_worklist_is_quick_and_keeps_nothing_open(tmp_path: Path) -> None:
    findings, _ = attack(500, 1, tmp_path)
    assert findings == []
