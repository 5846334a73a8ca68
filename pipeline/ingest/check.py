"""What would stop a cohort's slides, found before the long runs."""

from __future__ import annotations

from pipeline.errors import BadManifestError, GemslideError
from pipeline.ingest.mpp import resolve_mpp
from pipeline.manifest import Cohort, SlideEntry
from pipeline.slides.open_slide import open_slide


def check_slide(cohort: Cohort, entry: SlideEntry) -> None:
    """Open one slide of a cohort and look at everything ingest will ask of it.

    Raises:
        GemslideError: unreadable, no mpp, or its annotation file is missing.
    """
    with open_slide(cohort.slide_path(entry)) as slide:
        resolve_mpp(slide.info, slide_id=entry.slide_id, manifest_mpp=entry.mpp)
    annotations = cohort.annotations_path(entry)
    if annotations is not None and not annotations.exists():
        raise BadManifestError(f"slide {entry.slide_id}: annotation file {annotations} does not exist.")


def check_cohort(cohort: Cohort) -> list[tuple[SlideEntry, GemslideError]]:
    """Every slide that would fail, with the reason."""
    findings: list[tuple[SlideEntry, GemslideError]] = []
    for entry in cohort.included:
        try:
            check_slide(cohort, entry)
        except GemslideError as error:
            findings.append((entry, error))
    return findings
