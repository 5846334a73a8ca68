"""No outline makes an operation on shapes take gigabytes or minutes, in the app or on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.hostile_shapes import FAMILIES
from tests.limited_geometry import WORKS

SINGLE = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize(("corners", "longest_s"), [(700, 5.0), pytest.param(20_000, 20.0, marks=pytest.mark.prove)])
def test_hostile_shapes_are_worked_through_or_refused_within_2_gib(corners: int, longest_s: float) -> None:
    command = [sys.executable, "-m", "tests.limited_geometry", "2048", str(corners)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=SINGLE)

    assert done.returncode == 0, done.stderr
    ended = json.loads(done.stdout.splitlines()[-1])
    assert len(ended) == len(WORKS) * len(FAMILIES)
    assert {what: outcome for what, outcome in ended.items() if outcome[0] > longest_s} == {}
    outcome = ended["joining a star"][1]
    assert "area 0: the outlines cross" in outcome
    assert "the limit is 40,000" in outcome
    assert "simplify" in outcome
