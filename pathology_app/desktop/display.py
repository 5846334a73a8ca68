"""The screen: whether a window can be opened on it, and the window's size and position in logical pixels."""

from __future__ import annotations

import os
import sys

from training.foundation.errors import GemslideError

Rectangle = tuple[int, int, int, int]
"""Left, top, width and height."""

FIRST_SHARE = 0.9
"""Of the screen, for a window that was never sized: a slide needs room, and the frame must fit as well."""
MOST_WH = (2200, 1500)
"""Of such a window: on a large screen, other windows remain in sight."""
LEAST_WH = (1000, 700)
"""Below this, napari's docks leave a slide no room; a smaller size was remembered by accident."""


class NoDisplayError(GemslideError):
    """There is no screen to open a window on."""

    code = "no_display"


def check_display() -> None:
    """Raise NoDisplayError where Qt could not open a window: Qt would end the process without a message."""
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise NoDisplayError(
            "no display (neither DISPLAY nor WAYLAND_DISPLAY is set). Run this on a desktop, "
            "or view the slide in a browser: gemslide app"
        )


def window_rectangle(screen: Rectangle, remembered_wh: tuple[int, int] | None) -> Rectangle:
    """Place a window in the middle of a screen: in its remembered size, as far as that is useful, and never beyond it.

    Args:
        screen: the part of the screen that the desktop leaves free.
        remembered_wh: None: the window was never sized.
    """
    left, top, *free_wh = screen
    sides = []
    for free, most, least, remembered in zip(free_wh, MOST_WH, LEAST_WH, remembered_wh or (None, None), strict=True):
        within = round(FIRST_SHARE * free)
        wanted = min(within, most) if remembered is None else max(remembered, least)
        sides.append(min(wanted, within))
    width, height = sides
    return left + (free_wh[0] - width) // 2, top + (free_wh[1] - height) // 2, width, height
