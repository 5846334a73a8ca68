"""All-or-nothing writing: a temporary beside the target, fsync, rename.

The temporary is `.<name>.partial` (a folder) or `.<name>.w<random>.partial` (a file), locked by the kernel for as long
as the writing process lives. An existing folder is exchanged for the new one, so that a reader always finds one or the
other. Where the file system cannot exchange two names, a journal `.<name>.swap` records that the swap was begun, and
`training.foundation.leftovers` completes it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from training.foundation.errors import DiskFullError
from training.foundation.locks import is_open_as, lock_temporary, try_lock

RESUME_KEY = ".resume"
SHORT_WRITE_S = 60.0
"""Time that a writer of small outputs waits for another writer of the same outputs."""
_LOOKED_AT_S = 0.5
"""Time to wait for a run that looks for leftovers: it holds a lock briefly, but does not write."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EFBIG, errno.ELOOP}
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def fsync_dir(path: Path) -> None:
    """Make a rename inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def explain_unwritable(target: Path, *, besides: int | None = None) -> Iterator[None]:
    """Turn "no space left" and "not writable" into an error that says where, and what to do.

    Args:
        besides: number of a system error that is left to the caller.

    Raises:
        DiskFullError: no space, a read-only disk, no permission, or not a folder.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            existing = next(parent for parent in [target, *target.parents] if parent.exists())
            free_bytes = shutil.disk_usage(existing).free
            raise DiskFullError(
                f"{target}: no space left while writing ({free_bytes / 2**20:.0f} MiB free). "
                "Free space or choose another --project; nothing half-written was kept."
            ) from error
        if error.errno not in _UNWRITABLE or error.errno == besides:
            raise
        raise DiskFullError(
            f"{target}: cannot be written ({error.strerror}: {error.filename or 'while writing'}). Make the project "
            "folder writable or choose another --project; nothing half-written was kept."
        ) from error


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old file or the new one, never part of it.

    Raises:
        DiskFullError: no space, or not writable.
    """
    with explain_unwritable(path):
        replace_file(path, data, mode=0o666)


def write_text_atomic(path: Path, text: str) -> None:
    """`write_bytes_atomic` for UTF-8 text."""
    write_bytes_atomic(path, text.encode())


def write_new_text(path: Path, text: str) -> None:
    """Write a UTF-8 text to `path`, which must not exist yet; of several concurrent writers, one succeeds.

    Raises:
        FileExistsError: `path` exists. DiskFullError: no space, or not writable.
    """
    with explain_unwritable(path, besides=errno.EEXIST), TemporaryFile(path) as file:
        file.publish(text.encode(), is_new=True)


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """`write_bytes_atomic` with the system's own errors; the file has its mode from the start."""
    with TemporaryFile(path, mode=mode) as file:
        file.publish(data)


class TemporaryFile:
    """A locked temporary beside `final`; removed at the end of the block unless it was published.

    Args:
        reserve_bytes: disk space reserved at once, so that content up to this length fits when the disk is full.

    Raises:
        OSError: it cannot be created.
    """

    def __init__(self, final: Path, *, mode: int = 0o666, reserve_bytes: int = 0) -> None:
        self._final = final
        final.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._descriptor = self._make(mode)
        try:
            self._reserve(reserve_bytes)
        except OSError:
            self.close()
            raise

    def _make(self, mode: int) -> tuple[Path, int]:
        while True:
            path = self._final.with_name(f".{self._final.name}.w{secrets.token_hex(4)}.partial")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
            # A run that looks for leftovers may have locked and removed it before we could lock it.
            if try_lock(descriptor) and is_open_as(descriptor, path):
                return path, descriptor
            os.close(descriptor)

    def _reserve(self, count: int) -> None:
        if count and hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._descriptor, 0, count)
            except OSError as error:
                if error.errno not in _NO_EXCHANGE:  # not supported by the file system: no guarantee there
                    raise

    def publish(self, data: bytes, *, is_new: bool = False) -> None:
        """Write the content and give the file its name. After an error it can be retried with less content.

        Args:
            is_new: whether the name must not exist yet.

        Raises:
            OSError: it could not be written; the old file, if any, is unchanged.
        """
        view = memoryview(data)
        at = 0
        while at < len(view):
            at += os.pwrite(self._descriptor, view[at:], at)
        os.ftruncate(self._descriptor, len(view))
        os.fsync(self._descriptor)
        if is_new:
            self._link()
        else:
            self._path.replace(self._final)
        fsync_dir(self._final.parent)

    def _link(self) -> None:
        """Take the name if it is free."""
        try:
            os.link(self._path, self._final)
        except OSError as error:
            if error.errno not in (errno.EPERM, *_NO_EXCHANGE):
                raise
            os.close(os.open(self._final, os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # a file system without links
            self._path.replace(self._final)

    def close(self) -> None:
        """Remove what was not published."""
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)

    def __enter__(self) -> TemporaryFile:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def temporary_folder(final: Path) -> Path:
    """Path at which a folder is written before it gets its final name."""
    return final.with_name(f".{final.name.removesuffix('.ome.zarr')}.partial")


@contextmanager
def new_folder(
    final: Path,
    *,
    resume_key: str | None = None,
    wait_s: float = _LOOKED_AT_S,
    before_swap: Callable[[], None] = lambda: None,
) -> Iterator[Path]:
    """A folder that takes its final name only when the block ends without an error. An existing one is replaced.

    Args:
        resume_key: what the content depends on. What a killed or interrupted run left under the same key is kept, all
            else is cleared. An error clears everything.
        wait_s: how long to wait for another writer of the same folder.
        before_swap: called when everything is on disk, just before the old folder is replaced; if it raises, the old
            one is kept.

    Raises:
        LockedError: another process is writing the same output. DiskFullError: no space, or not writable.
    """
    partial = temporary_folder(final)
    with explain_unwritable(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock(partial, final, wait_s)
    try:
        with explain_unwritable(final):
            _prepare(partial, resume_key)
            yield partial
            _publish(partial, final, before_swap)
    except BaseException as error:
        # Once the journal marks the new folder as whole, the swap is completed and the folder is not discarded.
        if (resume_key is None or isinstance(error, Exception)) and not journal(final).exists():
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _lock(partial: Path, final: Path, wait_s: float) -> int:
    """Lock the temporary, after completing any swap left by a run that died."""

    def take() -> int:
        return lock_temporary(partial, final, lambda: _make_and_open(partial), wait_s=wait_s)

    descriptor = take()
    if not journal(final).exists():
        return descriptor
    try:
        with _old_locked(final):
            complete_swap(final)
    finally:
        os.close(descriptor)
    return take()


def _make_and_open(partial: Path) -> int:
    while True:
        partial.mkdir(exist_ok=True)
        try:
            return os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its owner published or removed it between the two calls


def _prepare(partial: Path, resume_key: str | None) -> None:
    """Keep what an earlier run with the same key finished; clear everything else."""
    key_file = partial / RESUME_KEY
    if resume_key is not None and key_file.is_file() and key_file.read_text(encoding="utf-8") == resume_key:
        for temporary in partial.rglob(".*.partial"):
            remove(temporary)
        return
    for child in partial.iterdir():
        remove(child)
    if resume_key is not None:
        write_text_atomic(key_file, resume_key)


def _publish(partial: Path, final: Path, before_swap: Callable[[], None]) -> None:
    for folder, _, _ in os.walk(partial):
        fsync_dir(Path(folder))
    # Last: a run killed while folders are flushed keeps what it finished.
    (partial / RESUME_KEY).unlink(missing_ok=True)
    fsync_dir(partial)
    if os.path.lexists(final):
        _swap(partial, final, before_swap)
    else:
        partial.rename(final)
        fsync_dir(final.parent)


def _swap(partial: Path, final: Path, before_swap: Callable[[], None]) -> None:
    with _old_locked(final):
        before_swap()
        if exchange(partial, final):
            fsync_dir(final.parent)  # before any part of the old one is removed
            remove(partial)
        else:
            journal(final).touch()
            fsync_dir(final.parent)
            complete_swap(final)


@contextmanager
def _old_locked(final: Path) -> Iterator[None]:
    """Lock the old folder, which gets the temporary's name: no other run must write into it before it is removed."""
    if final.is_symlink() or not final.exists():
        yield
        return
    descriptor = lock_temporary(
        final, final, lambda: os.open(final, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), wait_s=SHORT_WRITE_S
    )
    try:
        yield
    finally:
        os.close(descriptor)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names in one step (Linux's renameat2); False where the system or file system cannot.

    Raises:
        OSError: any other failure.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), ctypes.c_uint(_RENAME_EXCHANGE)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), str(other))


def journal(final: Path) -> Path:
    """The file that marks the temporary folder as whole and due to replace `final`."""
    return final.with_name(f".{final.name}.swap")


def complete_swap(final: Path) -> None:
    """Complete the swap of a journal, from wherever a run that died left it."""
    partial, old = temporary_folder(final), final.with_name(f".{final.name}.old")
    if partial.exists() and any(partial.iterdir()):
        if os.path.lexists(final):
            remove(old)
            final.rename(old)
        partial.rename(final)
    elif old.exists() and not os.path.lexists(final):
        old.rename(final)
    fsync_dir(final.parent)
    remove(old)
    journal(final).unlink(missing_ok=True)
    fsync_dir(final.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder. What cannot be removed is left for the next run to find."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
