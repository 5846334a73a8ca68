"""Target of a copy: it never overwrites anything, and gets its final name only when complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipeline.files import explain_unwritable, fsync_dir, lock_temporary
from pipeline.places.object_path import StorePath
from training.foundation.errors import BadRecipeError


def check_free(out: Path, store: StorePath) -> None:
    """Refuse a target that exists or is inside the store.

    Raises:
        BadRecipeError: either.
    """
    if out.exists() or out.is_symlink():
        raise BadRecipeError(f"{out}: already exists. An export never overwrites: delete it or choose another name.")
    if isinstance(store, Path) and store.resolve() in out.resolve().parents:
        raise BadRecipeError(f"{out}: is inside the store {store}. Choose a path outside it.")


@contextmanager
def new_file(final: Path) -> Iterator[BinaryIO]:
    """A file that takes its final name only when the block ends without an error.

    While being written it is `.<name>.partial` beside `final`, locked by the kernel as long as the writing process
    lives; the remains of a crashed run are overwritten.

    Raises:
        LockedError: another process is writing it. DiskFullError: no space, or not writable.
    """
    temporary = final.with_name(f".{final.name}.partial")
    with explain_unwritable(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        descriptor = lock_temporary(
            temporary, final, lambda: os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        )
        # Opened by name, because tifffile asks its file for one.
        with open(temporary, "r+b", opener=lambda *_: descriptor) as stream:
            try:
                stream.truncate(0)
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                temporary.rename(final)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        fsync_dir(final.parent)
