"""`gemslide info`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from pipeline.box import Box
from pipeline.naming.slides import find_slide
from pipeline.naming.sources import SourceNames
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import open_project
from pipeline.slides.common.slide import EncodedLevel, NotCopied
from pipeline.slides.registry import open_slide
from pipeline.store.format.metadata import Level, Link
from pipeline.store.layers.labels import has_tissue
from pipeline.store.layers.overlays import list_predictions
from pipeline.store.layers.tissue_origin import OUTDATED, mask_origin, outdated_models
from pipeline.store.reading.reader import StoreReader, is_store
from pipeline.units import described
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.words.counts import counted

CODEC_NAMES = {"imagecodecs_jpeg": "JPEG", "imagecodecs_jpeg2k": "JPEG 2000", "zstd": "zstd"}


def run_info(slide: str, project_dir: Path, *, series: str | None, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="info", reporter=reporter):
        reporter.sources.add_typed([slide], project)
        path = find_slide(slide, project)
        if isinstance(path, ObjectPath) or (series is None and is_store(path)):
            facts = _store_facts(path)
        else:
            facts = slide_facts(path, series)
    if as_json:
        reporter.print_json(facts)
        return
    for name, value in facts.items():
        lines = value if isinstance(value, list) else [value]
        for number, line in enumerate(lines or ["none"]):
            typer.echo(f"{name if not number else '':<18} {line}")


def slide_facts(path: Path, series: str | None) -> dict[str, Any]:
    with open_slide(path, series) as slide:
        info = slide.info
        routes = [slide.encoded_level(i) for i in range(len(info.levels))]
        return {
            "format": info.format,
            "files": len(slide.files),
            "series": info.series or "the only one",
            "levels": [
                f"{i}: {size.width_px} × {size.height_px} px, downsample {size.downsample:g}, " + _route(route)
                for i, (size, route) in enumerate(zip(info.levels, routes, strict=True))
            ],
            "mpp": f"{info.mpp_xy[0]:g} × {info.mpp_xy[1]:g}" if info.mpp_xy else f"none ({info.mpp_looked_in})",
            "objective power": info.objective_power or "not stated",
            "scanner model": info.scanner_model or "not stated",
            "ICC profile": f"{len(info.icc)} bytes" if info.icc else "none",
            "focal planes": described(info.planes_um),
            "scanned": _bounds(info.bounds_px0),
            "associated images": list(info.associated),
            "warnings": list(info.warnings),
        }


def _route(route: EncodedLevel | NotCopied) -> str:
    if isinstance(route, NotCopied):
        return f"decode ({route.reason})"
    return f"pass-through, {CODEC_NAMES[route.codec]}, {route.tile_px} px tiles"


def _bounds(bounds_px0: Box | None) -> str:
    if bounds_px0 is None:
        return "everything"
    return f"{bounds_px0.width_px} × {bounds_px0.height_px} px at x {bounds_px0.x_px}, y {bounds_px0.y_px}"


def _store_facts(path: StorePath) -> dict[str, Any]:
    reader = StoreReader(path)
    attributes = reader.attributes
    return {
        "slide_id": reader.slide_id,
        "levels": [
            f"{a.level}: {a.width_px} × {a.height_px} px, downsample {a.downsample:g}, {entry.route}, "
            f"{CODEC_NAMES[a.codec]}{_quality(entry)}, {a.chunk_px} px chunks{_repaired(entry)}"
            for a, entry in zip(reader.levels, attributes.levels, strict=True)
        ],
        "mpp": f"{reader.mpp0:g} ({attributes.mpp_source})",
        "tissue": f"{attributes.ingest.get('tissue_fraction', 0):.1%} of the slide{_origin(path)}",
        "damaged": _damaged(attributes.ingest.get("damaged")),
        "warnings": list(attributes.warnings),
        "source": f"{attributes.source.format}{_series(attributes.source.series)}, "
        f"SHA-256 {attributes.source.sha256 or 'not known before the link is verified'}",
        "link": _link(attributes.link),
        "ICC profile": f"{len(reader.icc)} bytes" if reader.icc else "none",
        "focal planes": described(attributes.planes_um),
        "scanned": _bounds(attributes.bounds_px0),
        "quality": (attributes.qc or {}).get("verdict", "not checked"),
        "predictions": _predictions(path),
    }


def _link(link: Link | None) -> str:
    if link is None:
        return "none: all tiles are in the store"
    state = "verified" if link.state == "verified" else "not verified: run `gemslide verify`"
    return f"to {link.bytes / 2**20:.1f} MiB of tiles in the slide's file, {state}"


def _origin(store: StorePath) -> str:
    """Origin of a tissue mask that replaced ingest's; "" for ingest's own."""
    origin = mask_origin(store) if has_tissue(store) else None
    return f", {origin}" if origin else ""


def _predictions(store: StorePath) -> list[str]:
    """Models with predictions; those made with another tissue mask are marked."""
    outdated = outdated_models(store) if has_tissue(store) else []
    return [f"{name} (outdated: {OUTDATED})" if name in outdated else name for name in list_predictions(store)]


def _series(series: str | None) -> str:
    return f", series {series}" if series else ""


def _damaged(damaged: dict[str, Any] | None) -> str:
    if damaged is None:
        return "not checked"
    return f"{damaged['tiles']} of {counted(damaged['of'], 'tile')}, masked" if damaged["tiles"] else "none found"


def _quality(entry: Level) -> str:
    return f" at quality {entry.quality}" if entry.quality else ""


def _repaired(entry: Level) -> str:
    tiles = len(entry.rebuilt)
    return f", {counted(tiles, 'damaged tile')} repaired from the previous level" if tiles else ""
