"""Slide-level models whose results a person may be shown on a slide's page."""

from __future__ import annotations

from pathology_app.access.visibility import visible
from pathology_app.html.text import READ_ERRORS
from pathology_app.readings.blinding import Visibility
from pathology_app.slides.cache import SlideCache


def attended_of(cache: SlideCache, visibility: Visibility, slide_id: str) -> list[str]:
    """Models whose results for a slide may be shown: they must not rest on a slide that is hidden from the person.

    Raises:
        GemslideError, OSError: as `Visibility.attention_of` and `may_see`.
    """
    model_ids = visibility.attention_of(cache, slide_id)
    if visibility.person.slides is None:
        return model_ids
    seen = ((model_id, _slides(cache, slide_id, model_id)) for model_id in model_ids)
    return [model_id for model_id, slides in seen if visible(visibility.person, slides) == list(slides)]


def _slides(cache: SlideCache, slide_id: str, model_id: str) -> tuple[str, ...]:
    try:
        return cache.attention(slide_id, model_id).slides
    except READ_ERRORS:  # reported where it is shown, instead of its values
        return ()
