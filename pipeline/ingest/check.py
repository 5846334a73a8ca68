"""Check for everything that would stop a slide, before the long runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pipeline.annotations import SlideFrame, frame_of_file
from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.ingest.label_in_image import refuse_label_in_image
from pipeline.ingest.mpp import resolve_mpp
from pipeline.slides.registry import open_slide


@dataclass(frozen=True)
class CheckedSlide:
    """A slide that can be ingested, and the size and frame that its annotations are checked against."""

    size_wh_px0: tuple[int, int]
    frame: SlideFrame
    warnings: tuple[str, ...] = ()
    """Contradictions in its file, as far as that was read, or between it and the manifest."""


def check_slide(cohort: Cohort, entry: SlideEntry, keep_associated: Collection[str] = ()) -> CheckedSlide:
    """Open one slide of a cohort and check what ingest will need from it.

    Raises:
        GemslideError: unreadable, no mpp, several slides and none chosen, or a label inside the image
            (`refuse_label_in_image`).
    """
    with open_slide(cohort.slide_path(entry), entry.series) as slide:
        refuse_label_in_image(slide.info, keep_associated, slide_id=entry.slide_id)
        mpp = resolve_mpp(slide.info, slide_id=entry.slide_id, manifest_mpp=entry.mpp)
        finest = slide.info.levels[0]
        frame = frame_of_file(slide.info, mpp.mpp0)
        return CheckedSlide(
            (finest.width_px, finest.height_px), frame, tuple(filter(None, (mpp.warning, *slide.info.warnings)))
        )
