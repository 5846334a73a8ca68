"""Check that a store's files are inside the store: a symbolic link that leads elsewhere would show another slide."""

from __future__ import annotations

import os

from pipeline.places.object_path import ObjectPath, StorePath
from training.foundation.errors import UnreadableError

INGEST_AGAIN = "The store is damaged; delete it and ingest the slide again."


def real_store_of(store: StorePath) -> str:
    """The store's folder with links resolved, for `check_inside`; in a bucket there are no links."""
    return str(store) if isinstance(store, ObjectPath) else os.path.realpath(store)


def check_inside(path: StorePath | str, real_store: str) -> None:
    """Check that a path below a store stays there.

    Args:
        real_store: the store's folder, resolved; it may itself be reached by a link.

    Raises:
        UnreadableError: a symbolic link leads out of the store.
    """
    if isinstance(path, ObjectPath):
        return  # its parts lead nowhere else
    real = os.path.realpath(path)
    if not real.startswith(f"{real_store}{os.sep}"):
        raise UnreadableError(f"{path}: a symbolic link leads out of the store, to {real}. {INGEST_AGAIN}")
