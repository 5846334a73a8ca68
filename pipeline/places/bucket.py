"""Requests for objects in a bucket. Every error is an OSError, as of a file."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pipeline.places.connection import REPLACED, connected, url_of

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

MAX_KEYS = 2**20
"""Of objects that are listed below one folder."""
STATE_AGE_S = 5.0
"""How long a known state of an object is used again; reads compare its ETag each time."""


@dataclass(frozen=True)
class ObjectState:
    """Tells two versions of an object apart."""

    etag: str
    num_bytes: int


@dataclass(frozen=True)
class Fetched:
    """Bytes of an object, and its state."""

    data: bytes
    state: ObjectState


def fetch(bucket: str, key: str, *, max_bytes: int) -> Fetched:
    """All bytes of an object.

    Raises:
        OSError: missing (FileNotFoundError), longer than `max_bytes`, or the bucket cannot be read.
    """
    import obstore

    with connected(bucket, key) as store:
        answer = obstore.get(store, key)
        state = _state(answer.meta, bucket, key)
        if state.num_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"longer than {max_bytes} bytes", url_of(bucket, key))
        return Fetched(_received(answer, state.num_bytes, bucket, key), state)


def fetch_end(bucket: str, key: str, count: int) -> Fetched:
    """The last `count` bytes of an object; all of a shorter one. Raises OSError, as `fetch`."""
    import obstore

    with connected(bucket, key) as store:
        answer = obstore.get(store, key, options={"range": {"suffix": count}})
        state = _state(answer.meta, bucket, key)
        return Fetched(_received(answer, min(count, state.num_bytes), bucket, key), state)


def fetch_range(bucket: str, key: str, start: int, end: int, state: ObjectState) -> bytes:
    """Bytes of an object inside it. Raises OSError, as `fetch`; ESTALE: its state is another one."""
    import obstore

    with connected(bucket, key) as store:
        answer = obstore.get(store, key, options={"range": (start, end), "if_match": state.etag})
        if _state(answer.meta, bucket, key) != state:
            raise OSError(errno.ESTALE, REPLACED, url_of(bucket, key))
        return _received(answer, end - start, bucket, key)


def state_now(bucket: str, key: str) -> ObjectState:
    """An object's state. Raises OSError, as `fetch`."""
    import obstore

    with connected(bucket, key) as store:
        return _state(obstore.head(store, key), bucket, key)


def recent_state(bucket: str, key: str) -> ObjectState:
    """An object's state within the last few seconds. Raises OSError, as `fetch`."""
    return _state_at(bucket, key, int(time.monotonic() / STATE_AGE_S), os.getpid())


@lru_cache(maxsize=4096)
def _state_at(bucket: str, key: str, _moment: int, _process: int) -> ObjectState:
    return state_now(bucket, key)


def names_below(bucket: str, key: str) -> list[str]:
    """Names of the objects and folders in a folder, sorted. Raises OSError."""
    import obstore

    start = len(_prefix(key))
    with connected(bucket, key) as store:
        listed = obstore.list_with_delimiter(store, key)
        keys = [*listed["common_prefixes"], *(entry["path"] for entry in listed["objects"])]
    return sorted({path[start:].rstrip("/") for path in keys} - {""})


def has_keys_below(bucket: str, key: str) -> bool:
    """Whether a folder has any object. Raises OSError."""
    return any(_pages(bucket, key, num_keys=1))


def keys_below(bucket: str, key: str) -> list[str]:
    """Keys of all objects below a folder, sorted. Raises OSError: also if there are more than `MAX_KEYS`."""
    keys: list[str] = []
    for page in _pages(bucket, key, num_keys=1000):
        keys += page
        if len(keys) > MAX_KEYS:
            raise OSError(errno.EFBIG, f"more than {MAX_KEYS} objects", url_of(bucket, key))
    return sorted(keys)


def _pages(bucket: str, key: str, *, num_keys: int) -> Iterator[list[str]]:
    import obstore

    with connected(bucket, key) as store:
        for page in obstore.list(store, key, chunk_size=num_keys):
            yield [entry["path"] for entry in page]


def _prefix(key: str) -> str:
    return f"{key}/" if key else ""


def _state(meta: ObjectMeta, bucket: str, key: str) -> ObjectState:
    etag = meta["e_tag"]
    if not etag:
        raise OSError(
            errno.EIO, "the object store states no ETag, by which a replaced slide is noticed", url_of(bucket, key)
        )
    return ObjectState(etag, meta["size"])


def _received(answer: GetResult, count: int, bucket: str, key: str) -> bytes:
    data = answer.bytes().to_bytes()
    if len(data) != count:
        raise OSError(errno.EIO, f"the object store sent {len(data)} of {count} bytes", url_of(bucket, key))
    return data
