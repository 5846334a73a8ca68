"""A label that is part of the image of the tissue cannot be dropped, so its slide is refused unless labels are kept."""

from __future__ import annotations

from collections.abc import Collection

from pipeline.slides.common.slide import SlideInfo
from training.foundation.errors import UnreadableError


def refuse_label_in_image(info: SlideInfo, keep_associated: Collection[str], *, slide_id: str) -> None:
    """Stop a slide that says its label, or other text that can name a person, is among its pixels.

    Args:
        keep_associated: `[ingest] keep_associated`; with "label" in it the slide is taken as it is.

    Raises:
        UnreadableError: the file says so, and labels are not kept.
    """
    if info.label_in_image is not None and "label" not in keep_associated:
        raise UnreadableError(
            f"slide {slide_id}: its file says that the slide's label, or burned-in text, is inside the image "
            f"of the tissue ({info.label_in_image}), so that it cannot be left out. Crop it, set the attribute to NO "
            "if that is wrong, or give `--keep-label` to keep it in the store."
        )
