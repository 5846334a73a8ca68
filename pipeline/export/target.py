"""Where a copy goes: never over something that is there, and under its name only when it is whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipeline.errors import BadRecipeError, LockedError
from pipeline.files import fsync_dir, unwritable_in_words


def check_free(out: Path, store: Path) -> None:
    """Refuse a target that exists or lies in the store itself.

    Raises:
        BadRecipeError: either.
    """
    if out.exists() or out.is_symlink():
        raise BadRecipeError(f"{out}: exists already. An export replaces nothing: delete it or choose another name.")
    if store.resolve() in out.resolve().parents:
        raise BadRecipeError(f"{out}: lies inside the store {store}. Choose a place outside it.")


@contextmanager
def new_file(final: Path) -> Iterator[BinaryIO]:
    """A file that takes its final name only when the block ends without an error.

    While it is being written it is `.<name>.partial` beside `final`, locked by the kernel for as long as the writing
    process lives; what a crashed run left is overwritten.

    Raises:
        LockedError: another process writes it now. DiskFullError: no space, or not writable.
    """
    aside = final.with_name(f".{final.name}.partial")
    with unwritable_in_words(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(aside, final)
        # Opened by name, because tifffile asks its file for one.
        with open(aside, "r+b", opener=lambda *_: descriptor) as stream:
            try:
                stream.truncate(0)
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                aside.rename(final)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
        fsync_dir(final.parent)


def _locked(aside: Path, final: Path) -> int:
    """Descriptor of the file aside, held by this process alone."""
    while True:
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise LockedError(
                f"{final.name}: another process is writing it now ({aside}). Wait for it to end, or stop it."
            ) from error
        if aside.exists() and os.stat(aside).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
        os.close(descriptor)  # we locked a file that its owner has renamed meanwhile
