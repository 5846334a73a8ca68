"""Lengths on a slide. Stored coordinates are always level-0 pixels, top-left, x right, y down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from training.foundation.errors import BadRecipeError
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


# --- focal planes of a stack, by their heights in micrometres, lowest first

MAX_PLANES = 256
"""Of a stack: scanners offer some dozens."""

MAX_HEIGHT_UM = 10_000.0
"""No scanner's focus travels so far."""
SAME_HEIGHT_UM = 0.005
"""Heights are asked for in decimals; scanners' planes are tenths of a micrometre apart."""


def why_no_stack(planes_um: Sequence[float]) -> str:
    """Why heights, lowest first, are not those of focal planes; "" if they can be."""
    if len(planes_um) > MAX_PLANES:
        return f"{len(planes_um)} focal planes; at most {MAX_PLANES} are read"
    odd = [height for height in planes_um if not abs(height) <= MAX_HEIGHT_UM]
    if odd:
        return f"a focal plane at {odd[0]:g} µm; heights of at most {MAX_HEIGHT_UM:g} µm are read"
    near = [low for low, high in pairwise(planes_um) if not high - low >= 2 * SAME_HEIGHT_UM]
    least = f"{2 * SAME_HEIGHT_UM:g} µm"
    return f"focal planes that do not rise, or by less than {least} (at {near[0]:g} µm)" if near else ""


def default_plane(planes_um: Sequence[float]) -> int:
    """Number of the plane at height 0, or of the middle one where there is none; of an even number, the lower.

    In NDPI files the scanner's focus is 0; DICOM counts heights from the glass.
    """
    return list(planes_um).index(0) if 0 in planes_um else (len(planes_um) - 1) // 2


def mean_distance(planes_um: Sequence[float]) -> float:
    """Mean distance of neighbouring planes in micrometres."""
    return (planes_um[-1] - planes_um[0]) / (len(planes_um) - 1)


def chosen_plane(planes_um: Sequence[float] | None, plane_um: float | None, slide_id: str) -> int:
    """Number of a slide's focal plane at a height; the default one if none is named.

    Args:
        planes_um: heights of its planes; None: it has one, at height 0.

    Raises:
        BadRecipeError: it has no plane there.
    """
    heights_um = planes_um or (0.0,)
    if plane_um is None:
        return default_plane(heights_um)
    nearest = min(range(len(heights_um)), key=lambda plane: abs(heights_um[plane] - plane_um))
    if not abs(heights_um[nearest] - plane_um) <= SAME_HEIGHT_UM:
        raise BadRecipeError(
            f"slide {slide_id}: has no focal plane at {plane_um:g} µm. It has {described(planes_um)}; choose one of "
            "these."
        )
    return nearest


def height_text(plane_um: float) -> str:
    """A focal plane's height in words."""
    return f"{plane_um:+g} µm" if plane_um else "0 µm"


def described(planes_um: Sequence[float] | None) -> str:
    """The planes in words."""
    if not planes_um:
        return "a single one, at 0 µm"
    return f"{len(planes_um)}, at {', '.join(f'{height:.9g}' for height in planes_um)} µm"
