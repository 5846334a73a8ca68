"""Search for microns per pixel through a file's sources, in order of trust; and parsing of their texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from pipeline.slides.common.damage import DamagedFileError
from pipeline.units import is_plausible_mpp

MppXy = tuple[float, float]
"""Microns per pixel along x and y."""

MAX_OFF = 0.1
"""Largest difference between two statements of a scale, as a share, that needs no warning."""
UM_TIMES_POWER = 10.0
"""Microns per pixel times an objective's magnification, about: 0.25 at 40x."""
_MAX_BINNING, _MAX_ADAPTER = 1.9, 3.0
"""How much coarser or finer a scanner's pixels are than that: 3DHISTECH reaches 0.16 µm/px at 20x."""

NUMBER = r"[+]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"
"""A length as programs of any country write it: with a decimal point or comma, and an exponent."""

_UM_PER_UNIT = {
    "pm": 1e-6, "å": 1e-4, "angstrom": 1e-4, "ångström": 1e-4, "nm": 1e-3, "nanometer": 1e-3, "nanometre": 1e-3,
    "µm": 1.0, "um": 1.0, "micrometer": 1.0, "micrometre": 1.0, "micron": 1.0, "mm": 1e3, "millimeter": 1e3,
    "millimetre": 1e3, "cm": 1e4, "centimeter": 1e4, "centimetre": 1e4, "dm": 1e5, "decimeter": 1e5, "decimetre": 1e5,
    "m": 1e6, "meter": 1e6, "metre": 1e6, "thou": 25.4, "in": 25_400.0, "inch": 25_400.0, "ft": 304_800.0,
    "foot": 304_800.0, "pt": 25_400.0 / 72,
}  # fmt: skip


class FoundMpp(NamedTuple):
    """A file's scale."""

    mpp_xy: MppXy | None
    looked_in: str
    """The sources searched until it was found: each one's name and what it states."""
    contradiction: str = ""
    """Clause on a source of less trust that states another scale; "" if none does."""


def search_mpp(sources: Iterable[tuple[str, Callable[[], MppXy | None]]]) -> FoundMpp:
    """The first plausible value, and whether the sources after it agree.

    Args:
        sources: display names, each with the function that reads its value.
    """
    found: MppXy | None = None
    trusted, searched, others = "", [], []
    for name, read in sources:
        if found is None:
            mpp_xy = read()
            trusted = f"{name}: {'none' if mpp_xy is None else _written(mpp_xy)}"
            searched.append(trusted)
            found = mpp_xy if _is_plausible(mpp_xy) else None
            continue
        with suppress(DamagedFileError):  # of a value that is not used
            mpp_xy = read()
            if mpp_xy and _is_plausible(mpp_xy) and not _is_near(mpp_xy, found):
                others.append(f"{name}: {_written(mpp_xy)}")
    contradiction = f"its file states several scales: {trusted}, which is used; {'; '.join(others)}" if others else ""
    return FoundMpp(found, "; ".join(searched), contradiction)


def power_contradiction(mpp_xy: MppXy | None, power: float | None) -> str:
    """Clause on an objective's magnification that does not go with a scale; "" if it does or either is unknown."""
    if not mpp_xy or not power:
        return ""
    ratio = sum(mpp_xy) / 2 * power / UM_TIMES_POWER
    if 1 / _MAX_ADAPTER <= ratio <= _MAX_BINNING:
        return ""
    return f"its file states an objective of {power:g}x and {_written(mpp_xy)}, which contradict each other"


def _is_plausible(mpp_xy: MppXy | None) -> bool:
    return mpp_xy is not None and all(map(is_plausible_mpp, mpp_xy))


def _is_near(mpp_xy: MppXy, other_xy: MppXy) -> bool:
    return all(abs(own - other) <= MAX_OFF * other for own, other in zip(mpp_xy, other_xy, strict=True))


def _written(mpp_xy: MppXy) -> str:
    return f"{mpp_xy[0]:.4g} × {mpp_xy[1]:.4g} µm/px"


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


def ome_mpp(pixels: Mapping[str, str]) -> MppXy | None:
    """Microns per pixel by the attributes of the element Pixels of OME-XML."""
    x, y = _ome_length(pixels, "PhysicalSizeX"), _ome_length(pixels, "PhysicalSizeY")
    return None if x is None or y is None else (x, y)


def _ome_length(pixels: Mapping[str, str], key: str) -> float | None:
    number, unit_um = parse_number(pixels.get(key)), um_per_unit(pixels.get(f"{key}Unit", "µm"))
    return None if number is None or unit_um is None else number * unit_um
