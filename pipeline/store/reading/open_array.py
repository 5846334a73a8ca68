"""Opens an array of a store, wherever its chunks are: in a folder, in the slide's file or in a bucket."""

from __future__ import annotations

from pipeline.places.bucket import ObjectState
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.links.source import OpenLink
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.linked_array import LinkedArrayReader
from pipeline.store.reading.object_array import ObjectArrayReader
from training.foundation.errors import UnreadableError


def open_array(path: StorePath, link: OpenLink | None, state: ObjectState | None, plane: int = 0) -> ArrayReader:
    """A level's array.

    Args:
        link: what the store points at, if it says that it is linked.
        state: of the root's metadata, for a store in a bucket.
        plane: number of a stack's focal plane.

    Raises:
        UnreadableError: as `ArrayReader.open`; or the array points at a slide's file, and the store says otherwise.
    """
    if isinstance(path, ObjectPath):
        assert state is not None  # as the root was opened
        return ObjectArrayReader.open_at(path, state, plane)
    array = ArrayReader.open(path, plane)
    if array.spec.link is None:
        return array
    if link is None:
        raise UnreadableError(f"{path}: points at a slide's file, and the store is not a linked one. {INGEST_AGAIN}")
    return LinkedArrayReader(path, array.spec, link, array.identity)
