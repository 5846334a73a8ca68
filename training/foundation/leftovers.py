"""What killed runs have left: found, completed or removed by the next run; never what a live process writes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.foundation.locks import is_open_as, try_lock
from training.foundation.publish import RESUME_KEY, complete_swap, remove, temporary_folder

_SWAP = re.compile(r"\.(.+)\.swap")
_PARTIAL = re.compile(r"\..+\.partial")
_BY_PROCESS = re.compile(r"\..+\.(\d+)\.partial")
"""Temporary files of version 0.1 carried a process number and no lock."""
_OLD = re.compile(r"\.(.+)\.old(?:\.(\d+))?")
"""What a folder was before it was replaced; version 0.1 added a process number."""


def recover_folder(folder: Path) -> list[str]:
    """Complete or remove what dead runs left directly in a folder.

    What a killed ingest can go on with (a folder with its `.resume`) is kept. Where nothing may be written, nothing
    is done.

    Returns:
        in words, what was done.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.startswith("."))
    except OSError:
        return []
    done: list[str] = []
    # Swaps first: what they need is a leftover, too.
    for name in sorted(names, key=lambda name: not _SWAP.fullmatch(name)):
        try:
            done += _recover(folder / name)
        except OSError:
            continue  # another run was quicker, or nothing may be written here
    return done


def _recover(path: Path) -> Iterator[str]:
    if swap := _SWAP.fullmatch(path.name):
        final = path.with_name(swap[1])
        partial = temporary_folder(final)
        with _held(partial if partial.exists() else final) as is_ours:
            if is_ours:
                complete_swap(final)
                yield f"{final}: completed what a run that died had begun"
    elif old := _OLD.fullmatch(path.name):
        final = path.with_name(old[1])
        if path.with_name(f".{old[1]}.swap").exists() or _is_alive(old[2]):
            return
        if os.path.lexists(final):
            remove(path)
            yield f"{path}: removed"
        else:
            path.rename(final)
            yield f"{final}: put back; a run died while replacing it"
    elif _PARTIAL.fullmatch(path.name):
        by_process = _BY_PROCESS.fullmatch(path.name)
        if by_process and not path.is_dir() and _is_alive(by_process[1]):
            return
        with _held(path) as is_ours:
            if is_ours and not (path / RESUME_KEY).exists():
                remove(path)
                yield f"{path}: removed"


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Whether nobody writes a file or folder; nobody can begin to as long as the block lasts."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield try_lock(descriptor) and is_open_as(descriptor, path)
    finally:
        os.close(descriptor)


def _is_alive(process: str | None) -> bool:
    if process is None:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
