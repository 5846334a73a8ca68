"""Content of pages, made from the pipeline's stores. Pure: nothing here draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pathology_app.html.attention import attention_at, attention_text
from pathology_app.html.text import READ_ERRORS, as_text
from pathology_app.slides.cache import OpenSlide, SlideCache
from pathology_app.slides.summary import stain_text
from pipeline.inference.results.hotspots import Hotspot
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.store.layers.overlays import Predictions
from pipeline.store.layers.tissue_origin import OUTDATED, was_made_with
from pipeline.store.reading.reader import StoreReader
from pipeline.units import described
from training.foundation.words.class_order import lesion_classes
from training.foundation.words.counts import counted

HOTSPOT_VIEW_UM = 800.0
"""Side of the view around a hotspot: about 10x on a screen."""
MIN_HOTSPOT_VIEW_CELLS = 5
NOT_VERIFIED = (
    "Not verified: shown straight from the scanner's file, whose tiles have not been checked yet; there is no tissue "
    "mask."
)
"""Note on a linked store before `gemslide verify`."""


def size_text(size_wh_px0: tuple[int, int], mpp0: float) -> str:
    """Size in pixels and on the glass: "46000 × 32914 px (11.5 × 8.2 mm)"."""
    width_px0, height_px0 = size_wh_px0
    width_mm, height_mm = (side_px0 * mpp0 / 1000 for side_px0 in size_wh_px0)
    return f"{width_px0} × {height_px0} px ({width_mm:.1f} × {height_mm:.1f} mm)"


def facts_rows(reader: StoreReader) -> list[tuple[str, str]]:
    """Facts about a slide, as (name, value) rows."""
    metadata = reader.attributes
    width_px0, height_px0 = reader.size_wh_px0
    width_mm, height_mm = (side_px0 * reader.mpp0 / 1000 for side_px0 in reader.size_wh_px0)
    rows = [
        ("Size", f"{width_mm:.1f} × {height_mm:.1f} mm, {width_px0} × {height_px0} px"),
        ("Resolution", f"{reader.mpp0:.4g} µm per pixel, source: {as_text(metadata.mpp_source)}"),
        ("Scanner", as_text(metadata.scanner_model or "not known")),
        ("Objective", f"{metadata.objective_power:g}×" if metadata.objective_power else "not known"),
        ("Levels", str(len(reader.levels))),
        ("Focal planes", described(metadata.planes_um)),
        ("Compression", _codecs_text(reader)),
        ("Source", _source_text(reader)),
        ("Checksums", _checksums_text(reader)),
        ("Stain", stain_text(metadata.stain) or "not measured"),
        ("Colours", "corrected by the scanner's ICC profile" if reader.icc else "as scanned: no ICC profile"),
        ("Ingested", as_text(metadata.ingest.get("utc", "not known"))),
    ]
    if verdict := (metadata.qc or {}).get("verdict"):
        rows.append(("Quality", as_text(verdict)))
    return rows


def _source_text(reader: StoreReader) -> str:
    source, link = reader.attributes.source, reader.attributes.link
    known = f"SHA-256 {source.sha256[:12]}…" if source.sha256 else "SHA-256 not known yet"
    return f"{as_text(source.format)}, {known}" + (", linked: its tiles are not copied" if link else "")


def _codecs_text(reader: StoreReader) -> str:
    """Codecs of the levels, finest first, each with its route into the store: "imagecodecs_jpeg (pass-through)"."""
    levels = reader.attributes.levels
    kinds = dict.fromkeys(f"{as_text(level.codec)} ({as_text(level.route)})" for level in levels)
    return ", ".join(kinds)


def _checksums_text(reader: StoreReader) -> str:
    sha256 = reader.attributes.ingest.get("checksums_sha256")
    return f"of every file, list's SHA-256 {as_text(sha256)[:12]}…" if sha256 else "none"


def slide_notes(reader: StoreReader) -> list[str]:
    """Notes on a slide whose file is damaged, has contradictory colour information, or has not been compared yet."""
    notes = [NOT_VERIFIED] if reader.attributes.is_unverified else []
    if damaged := reader.attributes.damaged_tiles:
        tiles = counted(reader.attributes.ingest["damaged"]["of"], "tile")
        share = counted(damaged, f"of {tiles} is", f"of {tiles} are")
        notes.append(f"{share} damaged in the slide's file: hatched, and never predicted.")
    return [*notes, *(f"Slide file: {as_text(clause)}." for clause in reader.attributes.warnings)]


def outdated_note(slide: OpenSlide, predictions: Predictions) -> str | None:
    """Note on predictions that were made with a different tissue mask than the slide has now."""
    try:
        now = mask_fingerprint(slide.reader.path)
    except READ_ERRORS:  # the tissue layer reports the error
        return None
    if was_made_with(predictions.attributes.get("made_from")) in (None, now):
        return None
    return f"These predictions are outdated: {OUTDATED}. Run `gemslide infer` again to update them."


def default_class(class_names: Sequence[str], hotspots: Sequence[Hotspot]) -> int:
    """The class to show first: that of the top hotspot, else the last lesion class."""
    if hotspots and hotspots[0]["class"] in class_names:
        return class_names.index(hotspots[0]["class"])
    return class_names.index(lesion_classes(class_names)[-1])


def slide_data(slide: OpenSlide) -> dict[str, Any]:
    """The slide in the browser viewer's format (frontend/src/types.ts, Slide)."""
    reader = slide.reader
    return {
        "slide_id": reader.slide_id,
        "mpp0": reader.mpp0,
        "damaged": damaged_data(slide),
        "colour_url": f"/colour/{reader.slide_id}?v={slide.version}" if reader.icc else None,
        "tile_url": f"/tiles/{reader.slide_id}/{{level}}/{{col}}_{{row}}?v={slide.version}",
        "levels": [
            {
                "width_px": level.width_px,
                "height_px": level.height_px,
                "tile_px": level.tile_px,
                "downsample": level.downsample,
            }
            for level in slide.screen_levels
        ],
        "planes": planes_data(slide),
    }


def planes_data(slide: OpenSlide) -> dict[str, Any] | None:
    """Focal planes of a stack (PlanesInfo); None of a slide with a single one."""
    reader = slide.reader
    if reader.attributes.planes_um is None:
        return None
    return {
        "heights_um": list(reader.attributes.planes_um),
        "first": reader.plane,
        "tile_url": f"/tiles/{reader.slide_id}/z{{plane}}/{{level}}/{{col}}_{{row}}?v={slide.version}",
    }


def damaged_data(slide: OpenSlide) -> dict[str, Any] | None:
    """Damaged areas of the slide's file (DamagedInfo); None if no damage is known."""
    if slide.damaged is None:
        return None
    return {"url": f"/damaged/{slide.reader.slide_id}.png?v={slide.version}", "cell_px0": slide.damaged.cell_px0}


def hotspot_data(hotspots: Iterable[Hotspot], *, stride_px0: float, mpp0: float, crop_url: str) -> list[dict[str, Any]]:
    """Hotspots in the viewer's format (Hotspot): a ring around the strongest cell.

    Args:
        crop_url: as returned by `crops_of`.
    """
    side_px0 = max(HOTSPOT_VIEW_UM / mpp0, MIN_HOTSPOT_VIEW_CELLS * stride_px0)
    return [
        {
            "x_px0": hotspot["x_px0"],
            "y_px0": hotspot["y_px0"],
            "radius_px0": stride_px0 * math.sqrt(0.5),
            "side_px0": side_px0,
            "score": hotspot["score"],
            "label": f"{as_text(hotspot['class'])} {hotspot['score']:.2f}",
            "class_name": hotspot["class"],
            "area_mm2": hotspot["area_um2"] / 1e6,
            "place": f"x {hotspot['x_px0'] * mpp0 / 1000:.2f}, y {hotspot['y_px0'] * mpp0 / 1000:.2f} mm",
            "crop_url": crop_url.format(x_px0=hotspot["x_px0"], y_px0=hotspot["y_px0"]),
        }
        for hotspot in hotspots
    ]


def crops_of(slide: OpenSlide, predictions: Predictions) -> str:
    """URL of a slide's crops (tiles/review_routes.py), with the placeholders {x_px0} and {y_px0}.

    They show the focal plane that was predicted.
    """
    planes_um = slide.reader.attributes.planes_um or ()
    plane = f"&z={planes_um.index(predictions.plane_um)}" if predictions.plane_um in planes_um else ""
    return f"/crops/{slide.reader.slide_id}/{{x_px0}}_{{y_px0}}.jpg?v={slide.version}{plane}"


def probability_text(probabilities: Mapping[str, float] | None, class_name: str) -> str:
    """The model's probability at a point: "P(tumour) = 0.93"."""
    return "not predicted" if probabilities is None else f"P({as_text(class_name)}) = {probabilities[class_name]:.2f}"


def probability_rows(probabilities: Mapping[str, float]) -> list[tuple[str, str]]:
    """The model's probabilities of all classes at a point, highest first."""
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    return [(as_text(name), f"{probability:.3f}") for name, probability in ranked]


def attention_rows(
    cache: SlideCache, slide_id: str, model_ids: Iterable[str], xy_px0: tuple[int, int]
) -> list[tuple[str, str]]:
    """The exact attention of slide-level models at a point; unreadable attention has no row: its layer reports it."""
    rows = []
    for model_id in model_ids:
        with suppress(*READ_ERRORS):
            value = attention_at(cache.attention(slide_id, model_id).attention, *xy_px0)
            rows.append((f"{as_text(model_id)}: attention", attention_text(value)))
    return rows


def place_text(xy_px0: tuple[int, int], mpp0: float) -> str:
    """Position of a point: "203 µm right, 100 µm down (pixel 812, 400)"."""
    x_px0, y_px0 = xy_px0
    return f"{x_px0 * mpp0:.0f} µm right, {y_px0 * mpp0:.0f} µm down (pixel {x_px0}, {y_px0})"
