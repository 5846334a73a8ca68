"""Outlines made to cost gigabytes and minutes are answered or refused in seconds, while tiles are still served."""

from __future__ import annotations

import pytest

from tests.attacks.web_geometry import attack


@pytest.mark.parametrize("times", [5, pytest.param(330, marks=pytest.mark.prove)])
def test_hostile_shapes_are_refused_while_tiles_keep_coming(times: int) -> None:
    assert attack(times, seed=1).findings == []
