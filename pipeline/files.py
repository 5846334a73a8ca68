"""Writing that is either whole or not there: write aside, fsync, rename."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import DiskFullError, LockedError

_RESUME_KEY = ".resume"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EFBIG}


def sha256_of(path: Path, stop: threading.Event | None = None) -> str:
    """SHA-256 of a file's bytes, as hexadecimal text; of some of them when `stop` is set meanwhile."""
    digest, piece = hashlib.sha256(), memoryview(bytearray(2**20))
    with path.open("rb", buffering=0) as stream:
        while (count := stream.readinto(piece)) and not (stop and stop.is_set()):
            digest.update(piece[:count])
    return digest.hexdigest()


def sha256_of_files(paths: Sequence[Path], stop: threading.Event | None = None) -> str:
    """SHA-256 of one file's bytes; of several, that of their sorted digests, whatever the files are called."""
    digests = sorted(sha256_of(path, stop) for path in paths)
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def fsync_dir(path: Path) -> None:
    """Make a rename inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a reader sees the old file or the new one, never half."""
    with unwritable_in_words(path):
        replace_file(path, data, mode=0o666)


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """`write_bytes_atomic` with the system's own errors; the file has its mode from the first byte on."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside.unlink(missing_ok=True)
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    fsync_dir(path.parent)


def write_text_atomic(path: Path, text: str) -> None:
    """`write_bytes_atomic` for UTF-8 text."""
    write_bytes_atomic(path, text.encode())


@contextmanager
def unwritable_in_words(target: Path) -> Iterator[None]:
    """Turn "no space left" and "may not be written" into an error that says where, and what to do.

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
        if error.errno not in _UNWRITABLE:
            raise
        raise DiskFullError(
            f"{target}: cannot be written ({error.strerror}: {error.filename or 'while writing'}). Make the project "
            "folder writable or choose another --project; nothing half-written was kept."
        ) from error


@contextmanager
def new_folder(final: Path, *, resume_key: str | None = None) -> Iterator[Path]:
    """A folder that takes its final name only when the block ends without an error.

    While it is being written it is `.<name without suffixes>.partial` beside `final`, locked by the kernel
    (the lock dies with the process). An existing `final` is replaced.

    Args:
        resume_key: what the content depends on. What a killed or interrupted run left under the same key is kept, all
            else is cleared. An error clears everything.

    Raises:
        LockedError: another process writes the same output now.
    """
    partial = final.with_name(f".{final.name.removesuffix('.ome.zarr')}.partial")
    with unwritable_in_words(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _lock_folder(partial, final)
    try:
        with unwritable_in_words(final):
            _make_ready(partial, resume_key)
            yield partial
            _publish(partial, final)
    except BaseException as error:
        if resume_key is None or isinstance(error, Exception):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def _make_ready(partial: Path, resume_key: str | None) -> None:
    """Keep what an earlier run of the same key finished; clear everything else."""
    key_file = partial / _RESUME_KEY
    if resume_key is not None and key_file.is_file() and key_file.read_text(encoding="utf-8") == resume_key:
        for aside in partial.rglob(".*.partial"):
            aside.unlink()
        return
    _clear(partial)
    if resume_key is not None:
        write_text_atomic(key_file, resume_key)


def _lock_folder(partial: Path, final: Path) -> int:
    def make_and_open() -> int:
        while True:
            partial.mkdir(exist_ok=True)
            try:
                return os.open(partial, os.O_RDONLY)
            except FileNotFoundError:
                continue  # its owner published or removed it between the two calls

    return lock_aside(partial, final, make_and_open)


def lock_aside(aside: Path, final: Path, make_and_open: Callable[[], int]) -> int:
    """Descriptor of a file or folder that is written aside, held by this process alone for as long as it is open.

    Raises:
        LockedError: another process writes the same output now.
    """
    while True:
        descriptor = make_and_open()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LockedError(
                f"{final.name}: another process is writing it now ({aside}). Wait for it to end, or stop it."
            ) from error
        if aside.exists() and os.stat(aside).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
        os.close(descriptor)  # we locked one that its owner has renamed meanwhile


def _clear(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()


def _publish(partial: Path, final: Path) -> None:
    for folder, _, _ in os.walk(partial):
        fsync_dir(Path(folder))
    # Last of all: a run killed while folders are flushed keeps what it finished.
    (partial / _RESUME_KEY).unlink(missing_ok=True)
    fsync_dir(partial)
    if final.exists():
        old = final.with_name(f".{final.name}.old.{os.getpid()}")
        final.rename(old)
        partial.rename(final)
        shutil.rmtree(old)
    else:
        partial.rename(final)
    fsync_dir(final.parent)
