"""Contents of a store that must be the same every time it is made."""

from __future__ import annotations

import json
from pathlib import Path


def tree(store: Path) -> dict[str, bytes]:
    """Every file of a store, without the durations in the root's attributes."""
    contents = {}
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path == store / "zarr.json":
            root = json.loads(content)
            for key in ("seconds", "utc"):
                del root["attributes"]["gemslide"]["ingest"][key]
            content = json.dumps(root).encode()
        contents[str(path.relative_to(store))] = content
    return contents


def left_in(root: Path) -> list[str]:
    """Names in a project's slides folder."""
    return sorted(p.name for p in (root / "slides").iterdir()) if (root / "slides").exists() else []
