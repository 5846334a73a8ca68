"""Clients that disconnect in mid-request cause no traceback."""

from __future__ import annotations

import pytest

from tests.attacks.web_leavers import attack


@pytest.mark.parametrize("times", [44, pytest.param(300, marks=pytest.mark.prove)])
def test_callers_that_leave_make_no_traceback(times: int) -> None:
    assert attack(times, seed=1).findings == []
