"""Waits for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, seconds: float) -> None:
    """Poll a condition; raise AssertionError at the deadline."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, "waited in vain"
        time.sleep(0.02)
