"""Check whether a window can be opened on this computer."""

from __future__ import annotations

import os
import sys

from training.foundation.errors import GemslideError


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
