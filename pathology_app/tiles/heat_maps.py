"""Small heat maps drawn over thumbnails in the worklist."""

from __future__ import annotations

from pathology_app.slides.cache import SlideCache
from pathology_app.slides.overlay_png import rgba_png
from pipeline.store.view.heat_thumbnail import heat_thumbnail


def heat_map_png(
    cache: SlideCache, slide_id: str, model_id: str, class_index: int, side_px: int, threshold: float
) -> bytes:
    """A class's heat map in the default palette, clear below the threshold.

    Args:
        side_px: length of the longer side, as for the thumbnail.
        threshold: the threshold of the model's results on the slide.

    Raises:
        BadLinkError, UnknownNameError: no such slide or predictions.
        GemslideError, OSError: they are damaged or cannot be read.
    """
    size_wh_px0 = cache.summary(slide_id).size_wh_px0
    predictions = cache.predictions(slide_id, model_id).predictions
    return rgba_png(heat_thumbnail(predictions, class_index, size_wh_px0, side_px, threshold=threshold))
