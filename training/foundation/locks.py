"""Kernel locks on files being written: they end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from training.foundation.errors import LockedError

_POLL_S = 0.02


def lock_temporary(temporary: Path, final: Path, make_and_open: Callable[[], int], *, wait_s: float = 0.0) -> int:
    """Descriptor of a temporary file or folder, held by this process alone for as long as it is open.

    Args:
        final: the name it will have, for the message.
        make_and_open: creates it if missing, and opens it.
        wait_s: how long to wait for another writer of the same output.

    Raises:
        LockedError: another process is writing the same output.
    """
    give_up = time.monotonic() + wait_s
    while True:
        descriptor = make_and_open()
        # Locked, but under another name: its owner has renamed or removed it meanwhile.
        if try_lock(descriptor) and is_open_as(descriptor, temporary):
            return descriptor
        os.close(descriptor)
        if time.monotonic() >= give_up:
            raise LockedError(
                f"{final.name}: another process is writing it now ({temporary}). Wait for it to end, or stop it."
            )
        time.sleep(_POLL_S)


def try_lock(descriptor: int) -> bool:
    """Whether the lock was free; if so, it is ours until the descriptor is closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_open_as(descriptor: int, path: Path) -> bool:
    """Whether a descriptor belongs to the file or folder that has this name now."""
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
