"""Data for the viewer in a reading: the slide alone, or with the predictions of the study's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pathology_app.links.reading import ReadingLink
from pathology_app.readings.blinding import study_models
from pathology_app.slides import presenters
from pathology_app.slides.answers import answers_of
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlays import layers_of
from pipeline.ledger.ledger import StudyRow

LINK_PARAMETER = "reading"
"""Parameter that names the slide in the reading page's link (frontend/src/view/link_state.ts)."""


def study_models_of(cache: SlideCache, row: StudyRow, slide_id: str) -> list[str]:
    """Models of the study that have predictions for a slide's tiles. Raises: as `SlideCache.model_ids`."""
    available = cache.model_ids(slide_id)
    return [model_id for model_id in study_models(row) if model_id in available]


def reading_view(
    cache: SlideCache, link: ReadingLink, slide_id: str, model_ids: list[str], attended: Sequence[str] = ()
) -> dict[str, Any]:
    """The viewer's data (frontend/src/types.ts, ViewerData).

    Args:
        model_ids: those whose predictions are shown; none in an arm that shows nothing of a model.
        attended: slide-level models whose answers and attention are shown.

    Raises:
        GemslideError, OSError: the slide cannot be read.
    """
    slide = cache.slide(slide_id)
    query = link.query()
    shown = _first_model(cache, slide_id, model_ids[0]) if model_ids else {"hotspots": [], "first": None}
    layers, notes = layers_of(cache, slide_id, model_ids, shown["first"], attended)
    notes = [*presenters.slide_notes(slide.reader), *notes]
    return {
        "slide": presenters.slide_data(slide),
        "layers": layers,
        "answers": answers_of(cache, slide_id, attended),
        "notes": notes,
        "facts": presenters.facts_rows(slide.reader),
        "hotspots": shown["hotspots"],
        "hotspots_note": "" if model_ids else None,
        "hotspots_url": f"/hotspots/{slide_id}/{model_ids[0]}.json?{query}" if model_ids else None,
        "coverage_url": f"/coverage/{slide_id}.json?{query}",
        "link_parameter": LINK_PARAMETER,
        "exports": None,
        "goto": None,
        "probe": None,
    }


def _first_model(cache: SlideCache, slide_id: str, model_id: str) -> dict[str, Any]:
    """Hotspots of the first model, and the class that is shown first."""
    opened = cache.predictions(slide_id, model_id)
    names = opened.predictions.class_names
    listed = cache.hotspots(slide_id, model_id)
    spots = listed.spots if listed else []
    index = presenters.default_class(names, spots)
    of_class = [spot for spot in spots if spot["class"] == names[index]]
    slide = cache.slide(slide_id)
    data = presenters.hotspot_data(
        of_class,
        stride_px0=opened.predictions.stride_px0,
        mpp0=slide.reader.mpp0,
        crop_url=presenters.crops_of(slide, opened.predictions),
    )
    return {"hotspots": data, "first": (model_id, index)}
