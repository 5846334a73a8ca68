"""Leftovers of killed runs: found, completed or removed by the next run; never what a live process is writing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from training.foundation.locks import is_open_as, try_lock
from training.foundation.publish import RESUME_KEY, complete_swap, journal, remove, temporary_folder

_FILE = re.compile(r"\..+\.w[0-9a-f]{8}\.partial")
_SWAP = re.compile(r"\.(.+)\.swap")
_FOLDER = re.compile(r"\..+\.partial")
_OLD = re.compile(r"\.(.+)\.old(?:\.(\d+))?")
"""Name of a replaced folder's old version; version 0.1 added a process number."""
_OLD_FILE = re.compile(r"\..+\.(\d+)\.partial|\.\d{8}T\d{6}Z-[0-9a-f]{6}\.json\.partial")
"""Temporary files of version 0.1 carried a process number, or were run records; and no lock."""


def recover_folder(folder: Path) -> list[str]:
    """Complete or remove what dead runs left directly in a folder of a project.

    A folder from which a killed ingest can resume (one with its `.resume`) is kept. In a read-only folder nothing is
    done.

    Returns:
        messages about what was done.
    """
    # Swaps first: what they need is itself a leftover.
    names = sorted(_hidden(folder), key=lambda name: (not _SWAP.fullmatch(name), name))
    return _run_attempts(_recover(folder / name) for name in names)


def recover_files(folder: Path) -> list[str]:
    """`recover_folder` for a folder that others also use: only files named as no other program would."""
    return _run_attempts(_remove_unheld(folder / name) for name in sorted(_hidden(folder)) if _FILE.fullmatch(name))


def _hidden(folder: Path) -> list[str]:
    """Names that begin with a dot. A link is not followed: it may lead out of the project."""
    try:
        return [] if folder.is_symlink() else [entry.name for entry in os.scandir(folder) if entry.name.startswith(".")]
    except OSError:
        return []


def _run_attempts(attempts: Iterable[Iterator[str]]) -> list[str]:
    done: list[str] = []
    for attempt in attempts:
        # Another run was faster, or the folder is read-only.
        with suppress(OSError):
            done += attempt
    return done


def _recover(path: Path) -> Iterator[str]:
    if path.is_symlink():
        return
    is_folder = path.is_dir()
    if not is_folder and (swap := _SWAP.fullmatch(path.name)):
        yield from _complete(path.with_name(swap[1]))
    elif is_folder and (old := _OLD.fullmatch(path.name)):
        yield from _restore(path, path.with_name(old[1]), old[2])
    elif is_folder and _FOLDER.fullmatch(path.name):
        yield from () if (path / RESUME_KEY).exists() else _remove_unheld(path)
    elif (not is_folder and _FILE.fullmatch(path.name)) or (
        not is_folder and (own := _OLD_FILE.fullmatch(path.name)) and not _is_alive(own[1])
    ):
        yield from _remove_unheld(path)


def _complete(final: Path) -> Iterator[str]:
    partial = temporary_folder(final)
    old = final.with_name(f".{final.name}.old")
    with _locked(next((path for path in (partial, final, old) if path.exists()), journal(final))) as is_ours:
        if is_ours:
            complete_swap(final)
            yield f"{final}: completed a replacement begun by a run that died"


def _restore(path: Path, final: Path, process: str | None) -> Iterator[str]:
    """Restore a replaced folder if no new one took its place; otherwise remove it."""
    if journal(final).exists() or _is_alive(process):
        return
    if os.path.lexists(final):
        remove(path)
        yield f"{path}: removed"
    else:
        path.rename(final)
        yield f"{final}: restored; a run died while replacing it"


def _remove_unheld(path: Path) -> Iterator[str]:
    with _locked(path) as is_ours:
        if is_ours:
            remove(path)
            yield f"{path}: removed"


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Whether no process is writing a file or folder; none can start to while the block lasts."""
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
