"""The desktop window's size: useful on every screen, and never beyond it."""

from __future__ import annotations

import pytest

from pathology_app.desktop.display import Rectangle, window_rectangle

LAPTOP, LARGE = (0, 30, 1366, 738), (1366, 0, 3840, 2160)


@pytest.mark.parametrize(
    ("screen", "remembered", "expected"),
    [
        (LAPTOP, None, (1229, 664)),
        (LARGE, None, (2200, 1500)),
        (LARGE, (1600, 1100), (1600, 1100)),
        (LARGE, (3840, 2160), (3456, 1944)),
        (LAPTOP, (3000, 1900), (1229, 664)),
        (LARGE, (320, 200), (1000, 700)),
        ((0, 0, 800, 600), (320, 200), (720, 540)),
    ],
)
def test_a_window_is_neither_tiny_nor_beyond_its_screen(
    screen: Rectangle, remembered: tuple[int, int] | None, expected: tuple[int, int]
) -> None:
    left, top, width, height = window_rectangle(screen, remembered)
    assert (width, height) == expected
    assert screen[0] <= left <= left + width <= screen[0] + screen[2]
    assert screen[1] <= top <= top + height <= screen[1] + screen[3]
