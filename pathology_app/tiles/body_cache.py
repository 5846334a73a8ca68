"""Answers kept in memory: bounded by their bytes, shared by all threads, least recently used dropped first."""

from __future__ import annotations

import threading
from collections import OrderedDict

ENTRY_BYTES = 400
"""Bytes of an entry besides its body: key, links and numbers. Many tiles of a slide show glass and are almost empty."""
LARGEST_SHARE = 8
"""A body larger than this fraction (1/8) of the cache is not kept: it would displace too many others."""


class BodyCache:
    """Bodies by key. A key must change whenever its body does."""

    def __init__(self, max_bytes: int) -> None:
        """Args: max_bytes: limit for all entries together; 0 keeps nothing."""
        self.max_bytes = max_bytes
        self._bodies: OrderedDict[str, bytes] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Size of all entries; never more than `max_bytes`."""
        with self._lock:
            return self._size_bytes

    def get(self, key: str) -> bytes | None:
        """The body under a key; None if there is none, or it was dropped."""
        with self._lock:
            body = self._bodies.get(key)
            if body is not None:
                self._bodies.move_to_end(key)
            return body

    def put(self, key: str, body: bytes) -> None:
        """Keep a body, dropping the least recently used ones if needed."""
        if LARGEST_SHARE * (len(body) + ENTRY_BYTES) > self.max_bytes:
            return
        with self._lock:
            earlier = self._bodies.pop(key, None)
            if earlier is not None:
                self._size_bytes -= len(earlier) + ENTRY_BYTES
            self._bodies[key] = body
            self._size_bytes += len(body) + ENTRY_BYTES
            while self._size_bytes > self.max_bytes:
                _, oldest = self._bodies.popitem(last=False)
                self._size_bytes -= len(oldest) + ENTRY_BYTES
