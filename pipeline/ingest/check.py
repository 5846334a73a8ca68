"""What would stop a slide, found before the long runs."""

from __future__ import annotations

from collections.abc import Collection

from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.ingest.label_in_image import refuse_label_in_image
from pipeline.ingest.mpp import resolve_mpp
from pipeline.slides.registry import open_slide


def check_slide(cohort: Cohort, entry: SlideEntry, keep_associated: Collection[str] = ()) -> tuple[int, int]:
    """Open one slide of a cohort and look at what ingest will ask of it. Returns (width, height) in level-0 pixels.

    Raises:
        GemslideError: unreadable, no mpp, or a label inside the image (`refuse_label_in_image`).
    """
    with open_slide(cohort.slide_path(entry)) as slide:
        refuse_label_in_image(slide.info, keep_associated, slide_id=entry.slide_id)
        resolve_mpp(slide.info, slide_id=entry.slide_id, manifest_mpp=entry.mpp)
        finest = slide.info.levels[0]
        return finest.width_px, finest.height_px
