"""A saved registration: the transform, the facts that support it, and the pixels that it was made for."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace

from pipeline.errors import BadAnnotationError
from pipeline.registration import Affine
from pipeline.store import StoreReader

MAX_ENLARGED = 4.0
"""Largest enlargement, in µm on both sides, that may be saved; sections of one block differ by a few percent."""
MAX_SHIFT_PX0 = 1e8
MAX_ERROR_UM = 1e6


@dataclass(frozen=True)
class SlidePixels:
    """A slide as it is now: what a registration depends on.

    Attributes:
        sha256: of the source's bytes, the image in it, and its size; another scale changes no pixel.
        mpp0: µm per level-0 pixel.
    """

    slide_id: str
    sha256: str
    size_wh_px0: tuple[int, int]
    mpp0: float

    @classmethod
    def of(cls, reader: StoreReader) -> SlidePixels:
        source = reader.attributes.source
        content = json.dumps([reader.source_sha256, source.series, *reader.size_wh_px0])
        digest = hashlib.sha256(content.encode()).hexdigest()
        return cls(reader.slide_id, digest, reader.size_wh_px0, reader.mpp0)


@dataclass(frozen=True)
class Registration:
    """The transform from one slide to another.

    Attributes:
        transform: level-0 pixels of the moving slide to those of the fixed slide.
        method: "features" (found on the tissue) or "points" (clicked).
        error_um: how far places that were not used are off, at the median; for points, the largest residual, and None
            where two points determine it.
        places: places that state the error, or points.
        matches: features that agree with it.
        share_near: share of the places that agree with it; None for points.
        dice: overlap of the tissue; None for points.
        moving_pixels, fixed_pixels: `SlidePixels.sha256` when it was made.
        person, utc, revision: by whom, when, and the how manieth of this pair; empty before it is saved.
    """

    moving_id: str
    fixed_id: str
    transform: Affine
    method: str
    error_um: float | None
    places: int
    moving_pixels: str
    fixed_pixels: str
    matches: int = 0
    share_near: float | None = None
    dice: float | None = None
    person: str = ""
    utc: str = ""
    revision: int = 0

    def inverse(self) -> Registration:
        """The same, from the fixed slide to the moving one."""
        return replace(
            self,
            moving_id=self.fixed_id,
            fixed_id=self.moving_id,
            transform=self.transform.inverse(),
            moving_pixels=self.fixed_pixels,
            fixed_pixels=self.moving_pixels,
        )

    def is_outdated(self, moving: SlidePixels, fixed: SlidePixels) -> bool:
        """Whether a slide has been replaced by other pixels since."""
        return (self.moving_pixels, self.fixed_pixels) != (moving.sha256, fixed.sha256)

    def in_um(self, moving_mpp0: float, fixed_mpp0: float) -> Affine:
        """The transform between the slides in µm."""
        return self.transform.scaled(moving=moving_mpp0, fixed=fixed_mpp0)


def check_transform(in_um: Affine, names: str) -> None:
    """Raises BadAnnotationError if a transform in µm cannot be one between sections of tissue."""
    numbers = in_um.numbers
    if not all(math.isfinite(number) and abs(number) <= MAX_SHIFT_PX0 for number in numbers):
        raise BadAnnotationError(f"{names}: the registration has numbers that are not finite, or far too large.")
    scale, shear = in_um.scale, in_um.shear
    if not (1 / MAX_ENLARGED <= scale <= MAX_ENLARGED and shear <= MAX_ENLARGED - 1):
        raise BadAnnotationError(
            f"{names}: the registration would change sizes by a factor of {scale:.3g} and stretch by {shear:.3g}; "
            f"factors from {1 / MAX_ENLARGED:g} to {MAX_ENLARGED:g} are accepted. Choose the same places on both "
            "slides, and check their pixel sizes (`gemslide info`)."
        )
