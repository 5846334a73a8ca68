"""A project of very many slides: one small store, hard-linked, with a separate root per slide."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.project import Project
from tests.pathology_app.small_project import SLIDE_ID


def make_many_slides(small: Project, root: Path, count: int) -> None:
    """Make stores `many-00000` onwards under `root`, with only the parts that a worklist and a thumbnail need."""
    template = small.store_path(SLIDE_ID)
    text = (template / "zarr.json").read_text()
    parts = [path.relative_to(template) for path in template.rglob("*") if not path.is_dir()]
    kept = [part for part in parts if part.name == "zarr.json" or (part.parts[0] == "0" and part.parts[1] != "0")]
    folders = sorted({part.parent for part in kept})
    for index in range(count):
        store = Project(root).store_path(f"many-{index:05d}")
        for folder in folders:
            (store / folder).mkdir(parents=True, exist_ok=True)
        for part in kept:
            if len(part.parts) > 1:
                os.link(template / part, store / part)
        (store / "zarr.json").write_text(text.replace(SLIDE_ID, store.name.removesuffix(".ome.zarr")))
