"""The built JavaScript: one ES module with the hash of its contents in its name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DIST = Path(__file__).parent / "frontend" / "dist"


@cache
def bundle_path() -> Path:
    """The one built file (`npm run build` removes older ones)."""
    (path,) = DIST.glob("viewer-*.js")
    return path
