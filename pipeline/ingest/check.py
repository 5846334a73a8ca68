"""What would stop a slide, found before the long runs."""

from __future__ import annotations

from pipeline.ingest.mpp import resolve_mpp
from pipeline.manifest import Cohort, SlideEntry
from pipeline.slides.open_slide import open_slide


def check_slide(cohort: Cohort, entry: SlideEntry) -> tuple[int, int]:
    """Open one slide of a cohort and look at what ingest will ask of it. Returns (width, height) in level-0 pixels.

    Raises:
        GemslideError: unreadable, or no mpp.
    """
    with open_slide(cohort.slide_path(entry)) as slide:
        resolve_mpp(slide.info, slide_id=entry.slide_id, manifest_mpp=entry.mpp)
        finest = slide.info.levels[0]
        return finest.width_px, finest.height_px
