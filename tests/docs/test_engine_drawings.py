"""The drawings in docs/images/engine match the code's output."""

import pytest

from benchmarks.draw_schedules import FOLDER, drawings

REMEDY = "run `python -m benchmarks.draw_schedules` and commit what it writes"


@pytest.mark.parametrize("name", drawings())
def test_a_committed_drawing_is_what_the_code_draws(name):
    assert (FOLDER / name).read_text(encoding="utf-8") == drawings()[name], REMEDY


def test_no_drawing_is_left_from_before():
    assert {path.name for path in FOLDER.iterdir()} == set(drawings()), REMEDY
