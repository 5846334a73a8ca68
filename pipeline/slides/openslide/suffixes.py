"""Suffixes of the formats that the installed OpenSlide library reads."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from pipeline.slides.openslide.library import detect_vendor

_SUFFIXES = (".svs", ".ndpi", ".vms", ".vmu", ".scn", ".mrxs", ".bif", ".svslide", ".avs", ".tif", ".tiff")
"""Of formats that every version since 4.0 reads."""
_NEWER = {".czi": b"ZISRAWFILE".ljust(544, b"\0")}
"""By suffix, the shortest file by which a newer library recognises the format."""


@cache
def openslide_suffixes() -> tuple[str, ...]:
    """All suffixes; of newer formats, those that this library recognises."""
    with tempfile.TemporaryDirectory() as folder:
        return (
            *_SUFFIXES,
            *(suffix for suffix, head in _NEWER.items() if _is_known(Path(folder) / f"a{suffix}", head)),
        )


def _is_known(path: Path, head: bytes) -> bool:
    path.write_bytes(head)
    return detect_vendor(path) is not None
