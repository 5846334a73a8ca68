"""`gemslide info`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from pipeline.cli_output import errors_in_words
from pipeline.project import Project
from pipeline.slides.open_slide import open_slide
from pipeline.store.overlays import list_predictions
from pipeline.store.reader import StoreReader


def run_info(path: Path, project_dir: Path, *, as_json: bool) -> None:
    store = Project(project_dir).store_path(path.name)
    if not path.exists() and store.exists():
        path = store  # a slide id
    with errors_in_words(as_json=as_json, name=path.name):
        facts = _store_facts(path) if (path / "zarr.json").exists() else _slide_facts(path)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for name, value in facts.items():
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines or ["none"]):
            typer.echo(f"{name if not number else '':<18} {line}")


def _slide_facts(path: Path) -> dict[str, Any]:
    with open_slide(path) as slide:
        about = slide.info
        routes = [slide.encoded_level(i) for i in range(len(about.levels))]
        return {
            "format": about.format,
            "levels": [
                f"{i}: {size.width_px} × {size.height_px} px, downsample {size.downsample:g}, "
                + (f"decode ({route})" if isinstance(route, str) else f"pass-through, {route.tile_px} px tiles")
                for i, (size, route) in enumerate(zip(about.levels, routes, strict=True))
            ],
            "mpp": f"{about.mpp_xy[0]:g} × {about.mpp_xy[1]:g}" if about.mpp_xy else f"none ({about.mpp_looked_in})",
            "objective power": about.objective_power or "not said",
            "scanner model": about.scanner_model or "not said",
            "ICC profile": f"{len(about.icc)} bytes" if about.icc else "none",
            "associated images": list(about.associated),
        }


def _store_facts(path: Path) -> dict[str, Any]:
    reader = StoreReader(path)
    return {
        "slide_id": reader.slide_id,
        "levels": [
            f"{a.level}: {a.width_px} × {a.height_px} px, downsample {a.downsample:g}, {entry['route']}, {a.codec}, "
            f"{a.chunk_px} px chunks"
            for a, entry in zip(reader.levels, reader.attributes["levels"], strict=True)
        ],
        "mpp": f"{reader.mpp0:g} ({reader.attributes['mpp_source']})",
        "tissue": f"{reader.attributes['ingest']['tissue_fraction']:.1%} of the slide",
        "source": f"{reader.attributes['source']['format']}, SHA-256 {reader.attributes['source']['sha256']}",
        "ICC profile": f"{len(reader.icc)} bytes" if reader.icc else "none",
        "predictions": list_predictions(path),
    }
