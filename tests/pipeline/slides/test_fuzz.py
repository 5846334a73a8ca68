"""A few damaged slide files; `make prove` tries two thousand and `make fuzz` any number."""

from __future__ import annotations

from tests.pipeline.slides.fuzz import run

CASES = 60


def test_damaged_files_end_in_the_right_pixels_or_in_one_clear_error(tmp_path):
    """Also no crash, hang, memory blow-up or leftovers: see `fuzz.py`."""
    findings = run(tmp_path, seed=0, cases=CASES)

    assert findings.wrong == []
    assert findings.outcomes.total() == CASES
    assert CASES // 10 < findings.outcomes["done"] < CASES * 2 // 3, findings
