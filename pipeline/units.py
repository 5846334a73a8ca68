"""Lengths on a slide. Stored coordinates are always level-0 pixels, top-left, x right, y down."""

from training.foundation.words.research_use import RESEARCH_USE as RESEARCH_USE

MIN_MPP, MAX_MPP = 0.05, 50.0
"""Microns per pixel outside this range count as missing: TIFFs at 72 dpi claim 352.8."""

MAX_ANISOTROPY = 0.01
"""Pixels whose sides differ by more than this share are refused."""

MAX_OBJECTIVE_POWER = 200.0


def is_plausible_mpp(mpp: float | None) -> bool:
    """Whether a number can be the size of a scanner's pixel in microns."""
    return mpp is not None and MIN_MPP <= mpp <= MAX_MPP


def plausible_power(power: float | None) -> float | None:
    """An objective's magnification to two decimals; None for a number that no objective has, such as a date."""
    return round(power, 2) if power is not None and 0 < power <= MAX_OBJECTIVE_POWER else None
