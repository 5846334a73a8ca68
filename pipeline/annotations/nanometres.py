"""Hamamatsu's frame: coordinates in nanometres from the centre of the glass slide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.slides.common.slide import SlideInfo


@dataclass(frozen=True)
class NanometreFrame:
    """Frame of Hamamatsu's coordinates on a slide, from its file."""

    origin_xy0: tuple[float, float]
    """The centre of the glass slide in level-0 pixels; it may be outside the scanned area."""
    nm_per_px0_xy: tuple[float, float]


def nanometre_frame(info: SlideInfo) -> NanometreFrame | None:
    """Frame of a slide file; None if it is not Hamamatsu's, or does not state one."""
    if info.nm_centre_xy is None or info.mpp_xy is None:
        return None
    nm_x, nm_y = (1000 * mpp for mpp in info.mpp_xy)
    finest, (centre_x, centre_y) = info.levels[0], info.nm_centre_xy
    return NanometreFrame((finest.width_px / 2 - centre_x / nm_x, finest.height_px / 2 - centre_y / nm_y), (nm_x, nm_y))
