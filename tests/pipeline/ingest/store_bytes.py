"""Everything of a store that must be the same each time it is made."""

from __future__ import annotations

import json
from pathlib import Path


def tree(store: Path) -> dict[str, bytes]:
    """Every file of a store; of the root's attributes, not the time it took."""
    found = {}
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        content = path.read_bytes()
        if path == store / "zarr.json":
            root = json.loads(content)
            for key in ("seconds", "utc"):
                del root["attributes"]["gemslide"]["ingest"][key]
            content = json.dumps(root).encode()
        found[str(path.relative_to(store))] = content
    return found


def left_in(root: Path) -> list[str]:
    """What lies in the folder of slides of a project."""
    return sorted(p.name for p in (root / "slides").iterdir()) if (root / "slides").exists() else []
