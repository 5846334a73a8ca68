"""Sockets of one reader or of many strangers lock nobody out."""

from __future__ import annotations

import pytest

from tests.attacks.web_sockets import attack


@pytest.mark.parametrize("times", [250, pytest.param(400, marks=pytest.mark.prove)])
def test_sockets_without_number_keep_nobody_out(times: int) -> None:
    assert attack(times, seed=1).findings == []
