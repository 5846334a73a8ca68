"""Nobody, with or without a session, gets more than they have a right to."""

from __future__ import annotations

import pytest

from tests.attacks.web_insiders import attack


@pytest.mark.parametrize("times", [30, pytest.param(200, marks=pytest.mark.prove)])
def test_nobody_gets_more_than_is_theirs(times: int) -> None:
    assert attack(times, seed=1).findings == []
