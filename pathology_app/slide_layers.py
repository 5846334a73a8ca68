"""What can be shown over a slide: every model's classes, tissue, quality (frontend/src/types.ts, LayerInfo)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

from pathology_app.text import READ_ERRORS, as_text, message_of
from pathology_app.tiles.cache import SlideCache

TISSUE, QUALITY = "Tissue", "Quality: 1 is bad"
QUALITY_NAMES = {"blur": "Out of focus", "pen": "Ink", "fold": "Folds", "bubble": "Bubbles and edges"}


def layers_of(
    cache: SlideCache, slide_id: str, model_ids: list[str], first: tuple[str, int] | None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Layers, and what is to be said of those that cannot be read.

    Args:
        first: model and class chosen on the page.
    """
    layers: list[dict[str, Any]] = []
    notes: list[str] = []
    of_models = [partial(_of_model, cache, slide_id, model_id, first) for model_id in model_ids]
    for read in [*of_models, partial(_of_tissue, cache, slide_id), partial(_of_quality, cache, slide_id)]:
        try:
            layers += read()
        except READ_ERRORS as error:
            notes.append(as_text(message_of(error, cache.project.root)))
    return layers, notes


def _of_model(
    cache: SlideCache, slide_id: str, model_id: str, first: tuple[str, int] | None
) -> Iterator[dict[str, Any]]:
    known = cache.class_names(slide_id, model_id)
    for index, name in enumerate(known.class_names):
        yield {
            "id": f"{model_id}/{quote(name, safe='')}",
            "group": as_text(model_id),
            "label": f"P({as_text(name)})",
            "url": f"/overlays/{slide_id}/{model_id}/{index}.png?v={known.version}",
            "cell_px0": known.stride_px0,
            "is_mask": False,
            "is_first": first == (model_id, index),
        }


def _of_tissue(cache: SlideCache, slide_id: str) -> Iterator[dict[str, Any]]:
    tissue = cache.tissue(slide_id)
    if tissue is not None:
        yield {
            "id": "tissue",
            "group": TISSUE,
            "label": "Tissue",
            "url": f"/layers/{slide_id}/tissue.png?v={tissue.version}",
            "cell_px0": tissue.mpp / cache.slide(slide_id).reader.mpp0,
            "is_mask": True,
            "is_first": False,
        }


def _of_quality(cache: SlideCache, slide_id: str) -> Iterator[dict[str, Any]]:
    opened = cache.quality(slide_id)
    for index, name in enumerate(opened.quality.names if opened else ()):
        assert opened
        yield {
            "id": f"quality/{quote(name, safe='')}",
            "group": QUALITY,
            "label": QUALITY_NAMES.get(name, as_text(name)),
            "url": f"/layers/{slide_id}/quality/{index}.png?v={opened.version}",
            "cell_px0": opened.quality.cell_px0,
            "is_mask": False,
            "is_first": False,
        }
