"""Search for microns per pixel through a file's sources, in order of trust; and parsing of their texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from pipeline.units import is_plausible_mpp

MppXy = tuple[float, float]
"""Microns per pixel along x and y."""

NUMBER = r"[+]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A length as programs of any country write it: with a decimal point or comma, and an exponent."""

_UM_PER_UNIT = {
    "pm": 1e-6, "å": 1e-4, "angstrom": 1e-4, "ångström": 1e-4, "nm": 1e-3, "nanometer": 1e-3, "nanometre": 1e-3,
    "µm": 1.0, "um": 1.0, "micrometer": 1.0, "micrometre": 1.0, "micron": 1.0, "mm": 1e3, "millimeter": 1e3,
    "millimetre": 1e3, "cm": 1e4, "centimeter": 1e4, "centimetre": 1e4, "dm": 1e5, "decimeter": 1e5, "decimetre": 1e5,
    "m": 1e6, "meter": 1e6, "metre": 1e6, "thou": 25.4, "in": 25_400.0, "inch": 25_400.0, "ft": 304_800.0,
    "foot": 304_800.0, "pt": 25_400.0 / 72,
}  # fmt: skip


def search_mpp(sources: Iterable[tuple[str, Callable[[], MppXy | None]]]) -> tuple[MppXy | None, str]:
    """The first plausible value, and the sources searched: each one's name and what it states.

    Args:
        sources: display names, each with the function that reads its value.
    """
    searched = []
    for name, read in sources:
        mpp_xy = read()
        searched.append(f"{name}: {'none' if mpp_xy is None else f'{mpp_xy[0]:.4g} × {mpp_xy[1]:.4g} µm/px'}")
        if mpp_xy is not None and is_plausible_mpp(mpp_xy[0]) and is_plausible_mpp(mpp_xy[1]):
            return mpp_xy, "; ".join(searched)
    return None, "; ".join(searched)


def parse_number(text: str | None) -> float | None:
    """A number above zero, with a decimal point or comma; None for anything else."""
    if text is None or not re.fullmatch(NUMBER, text.strip()):
        return None
    number = float(text.strip().replace(",", "."))
    return number if 0 < number < math.inf else None


def um_per_unit(unit: str | None) -> float | None:
    """Microns in a unit of length by its name or symbol, singular or plural, also "… per pixel".

    None if it is not a length, such as "pixel".
    """
    # The letter mu has two code points: the micro sign and the Greek letter.
    name = (unit or "").strip().lower().replace("\u03bc", "\u00b5")
    name = re.sub(r"\s*(/|per)\s*(px|pix|pixel)$", "", name)
    um = _UM_PER_UNIT.get(name)
    return _UM_PER_UNIT.get(name.removesuffix("es" if name == "inches" else "s")) if um is None else um
