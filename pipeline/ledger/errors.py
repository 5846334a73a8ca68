"""Reasons why a ledger cannot be read or written, each as one sentence that says what to do, without any SQL."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from training.foundation.errors import DiskFullError, LockedError, UnreadableError

BUSY_S = 60.0
"""Longest time that one writer of a SQLite ledger waits for the others."""
LEAST_FREE_BYTES = 256 * 2**10
"""Space that SQLite needs for its write-ahead log and its index; with less on the disk, the next write fails."""
_BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
_UNWRITABLE = ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")
_CHANGED = ("no such table", "no such column", "no column named", "already exists", "Could not decode")
"""SQLite's and Python's wording for a ledger without one of its tables, columns or its version, or with other texts."""
_MOVED = "SQLITE_READONLY_DBMOVED"


class LedgerUnavailableError(UnreadableError):
    """The database is not answering; it may later."""


class LedgerFullError(DiskFullError, LedgerUnavailableError):
    """The ledger's disk is full; somebody may free space."""


class LedgerReadOnlyError(DiskFullError):
    """The ledger is read-only here."""


def explain_sqlite(path: Path, error: DBAPIError, reason: str) -> Exception:
    """Explain a SQLite error to the user of the ledger at `path`."""
    name = str(getattr(error.orig, "sqlite_errorname", ""))
    if name.startswith(_BUSY):
        return LockedError(f"{path}: other processes have been writing to the ledger for {BUSY_S:.0f} s. Try again.")
    if name.startswith(_DAMAGED):
        return UnreadableError(f"{path}: the ledger cannot be read: {reason}. Restore it from a backup.")
    if any(words in reason for words in _CHANGED):
        return UnreadableError(f"{path}: the ledger was changed or damaged: {reason}. Restore it from a backup.")
    if name == _MOVED:
        return UnreadableError(f"{path}: the ledger was moved or deleted while it was open. Put it back and try again.")
    if name == "SQLITE_FULL":
        return LedgerFullError(_full(path))
    return trouble_of(path) or (
        LedgerReadOnlyError(_read_only(path))
        if name.startswith(_UNWRITABLE)
        else LedgerUnavailableError(f"{path}: the ledger cannot be reached or written: {reason}.")
    )


def trouble_of(path: Path) -> LedgerFullError | LedgerReadOnlyError | None:
    """The reason why a SQLite ledger cannot be written now, found without writing; None if there is none."""
    folder = next((above for above in path.parents if above.exists()), path.parent)
    try:
        disk = os.statvfs(folder)
    except OSError:
        return None  # opening it will say why
    is_unwritable = bool(disk.f_flag & os.ST_RDONLY) or not os.access(folder, os.W_OK | os.X_OK)
    if is_unwritable or (path.exists() and not os.access(path, os.W_OK)):
        return LedgerReadOnlyError(_read_only(path))
    # Some file systems have no inodes; there, none can be missing.
    if disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES or (disk.f_files and not disk.f_favail):
        return LedgerFullError(_full(path))
    return None


def _full(path: Path) -> str:
    folder = next((above for above in path.parents if above.exists()), path.parent)
    free_kib = shutil.disk_usage(folder).free // 2**10
    return (
        f"{path}: the disk of the ledger is full ({free_kib:,} KiB free), so nothing can be recorded. Free some "
        "space; workers wait until then and continue. Nothing half-written was kept."
    )


def _read_only(path: Path) -> str:
    return (
        f"{path}: the ledger is read-only here: its file, folder or disk is not writable. Give this user write "
        "access to the file and its folder, or mount the disk read-write. Nothing was changed."
    )
