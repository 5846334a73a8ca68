"""Registration by tissue for `pipeline.bounded.child`: two stores in, numbers for JSON out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pipeline.registration import register_slides
from pipeline.store.reading.reader import StoreReader


def register_stores(body: bytes, *, moving: str, fixed: str) -> list[Any]:
    """The registration of the slide in one store to that in another. Raises: as `register_slides`."""
    found = register_slides(StoreReader(moving), StoreReader(fixed))
    return [asdict(found)]
