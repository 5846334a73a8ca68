"""The rule by which an area of a slide, or a hotspot, counts as seen; a study's protocol states it.

It is the same on every screen: the field is so many screen pixels around the middle of the view, so its size on the
slide depends on the magnification alone, as that of a microscope does (docs/decisions/0009-seen.md).
"""

from __future__ import annotations

from pydantic import Field

from training.foundation.settings import Section

UM_PER_PX_AT_1X = 10.0
"""By convention, a screen pixel is 1 µm wide at 10x."""


class SeenRule(Section):
    """`[reading.seen]`: when an area or a hotspot counts as seen."""

    magnification: float = Field(10.0, ge=0.1, le=100)
    """At least this: 10 is 1 µm per screen pixel. The scan's own magnification is the highest that counts."""
    seconds: float = Field(1.0, ge=0.25, le=60)
    """For at least so long without moving."""
    field_px: int = Field(600, ge=100, le=600)
    """Diameter of the field around the middle of the view, in screen pixels: 600 fit into the viewer in a window of
    1366 × 768, and are 14° wide on a usual monitor at 65 cm."""

    @property
    def um_per_px(self) -> float:
        """Widest screen pixel that counts, in µm."""
        return UM_PER_PX_AT_1X / self.magnification

    @property
    def text(self) -> str:
        """The rule in a sentence."""
        return (
            f"An area counts as seen if it was within {self.field_px / 2:g} screen pixels of the view's middle, at "
            f"{self.magnification:g}x or more ({self.um_per_px:g} µm per screen pixel or finer), for at least "
            f"{self.seconds:g} s without moving."
        )
