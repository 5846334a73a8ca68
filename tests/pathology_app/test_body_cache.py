"""Cache of response bodies in memory: bounded in bytes, whoever sends the requests."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from pathology_app.tiles.body_cache import ENTRY_BYTES, BodyCache

ROOM_BYTES = 100_000
BODY = b"x" * (ROOM_BYTES // 10 - ENTRY_BYTES)
"""Body of a tenth of the cache's size."""


def test_what_was_not_asked_for_longest_goes_first() -> None:
    cache = BodyCache(ROOM_BYTES)
    for index in range(10):
        cache.put(str(index), BODY)
    assert cache.size_bytes == ROOM_BYTES
    assert cache.get("0") == BODY

    cache.put("10", BODY)

    assert cache.get("1") is None
    assert [cache.get(key) for key in ("0", "2", "10")] == [BODY] * 3
    assert cache.size_bytes == ROOM_BYTES


def test_empty_bodies_fill_it_too() -> None:
    cache = BodyCache(ROOM_BYTES)
    for index in range(10_000):
        cache.put(str(index), b"")

    kept = [index for index in range(10_000) if cache.get(str(index)) is not None]
    assert len(kept) == ROOM_BYTES // ENTRY_BYTES
    assert kept[-1] == 9_999


@pytest.mark.parametrize("max_bytes", [0, ROOM_BYTES])
def test_a_body_too_large_drives_nothing_out(max_bytes: int) -> None:
    cache = BodyCache(max_bytes)
    cache.put("small", b"")

    cache.put("large", b"x" * (ROOM_BYTES // 8))

    assert cache.get("large") is None
    assert (cache.get("small") is None) == (max_bytes == 0)


def test_a_body_put_again_counts_once() -> None:
    cache = BodyCache(ROOM_BYTES)
    for size in (100, 5_000, 10):
        cache.put("same", b"x" * size)

    assert cache.size_bytes == 10 + ENTRY_BYTES


def test_threads_never_exceed_it_and_never_get_anothers_body() -> None:
    cache, wrong = BodyCache(ROOM_BYTES), []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for key in rng.integers(0, 40, 3_000):
            body = bytes([key]) * (int(key) * 200)
            kept = cache.get(str(key))
            if (kept is not None and kept != body) or cache.size_bytes > ROOM_BYTES:
                wrong.append(key)
            cache.put(str(key), body)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    kept = [len(body) + ENTRY_BYTES for key in range(40) if (body := cache.get(str(key))) is not None]
    assert not wrong
    assert sum(kept) == cache.size_bytes <= ROOM_BYTES
