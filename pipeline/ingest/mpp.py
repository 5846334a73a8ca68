"""Size of a pixel: from the file, else the manifest, else the command line; an explicit value wins."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import MissingMppError
from pipeline.slides.common.mpp import MAX_OFF, UM_TIMES_POWER, power_contradiction
from pipeline.slides.common.slide import SlideInfo
from pipeline.units import MAX_ANISOTROPY, MAX_MPP, MIN_MPP, is_plausible_mpp


@dataclass(frozen=True)
class Mpp:
    """Microns per level-0 pixel, and its source."""

    mpp0: float
    source: str
    warning: str = ""
    """Clause on another scale that was stated, far from this one; "" without."""


MAX_OFF_POWER = 2.0
"""Largest ratio to the scale that an objective's magnification suggests, which is only a rough one."""
MAGNIFICATIONS = (2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0)
"""Objectives of microscopes and scanners."""


def resolve_mpp(
    info: SlideInfo, *, slide_id: str, manifest_mpp: float | None = None, option_mpp: float | None = None
) -> Mpp:
    """Microns per level-0 pixel of a slide.

    Raises:
        MissingMppError: it is stated nowhere, the value is absurd or a magnification, or x and y differ.
    """
    for value, source in ((option_mpp, "--mpp"), (manifest_mpp, "manifest")):
        if value is None:
            continue
        _refuse_magnification(info, value, slide_id=slide_id, source=source)
        if not is_plausible_mpp(value):
            raise MissingMppError(
                f"slide {slide_id}: {source} says {value} µm/px; plausible values: {MIN_MPP} to {MAX_MPP}. Correct it."
            )
        in_file = f"{info.mpp_xy[0]:.6g}" if info.mpp_xy else "none"
        others = {"the file": info.mpp_xy, "the manifest": (manifest_mpp, manifest_mpp) if manifest_mpp else None}
        far = [f"{where} says {_said(xy)}" for where, xy in others.items() if xy and _is_far(value, xy)]
        warning = f"{source} says {value:.6g} µm/px where {' and '.join(far)}; {value:.6g} is used" if far else ""
        return Mpp(value, f"override by {source} (file: {in_file})", warning)
    if info.mpp_xy is None:
        raise MissingMppError(
            f"slide {slide_id}: no microns per pixel between {MIN_MPP} and {MAX_MPP} (looked in {info.mpp_looked_in}). "
            "Find it in the scanner's settings, then give `--mpp VALUE` or fill `mpp` in the cohort manifest."
        )
    x, y = info.mpp_xy
    if abs(x - y) > MAX_ANISOTROPY * max(x, y):
        raise MissingMppError(
            f"slide {slide_id}: pixels are not square: {x} × {y} µm. Resample the slide to square pixels, or give "
            "`--mpp VALUE` if the file is wrong."
        )
    contradictions = (info.mpp_contradiction, power_contradiction(info.mpp_xy, info.objective_power))
    return Mpp((x + y) / 2, f"file ({info.format})", "; ".join(filter(None, contradictions)))


def _refuse_magnification(info: SlideInfo, value: float, *, slide_id: str, source: str) -> None:
    """Refuse an objective's magnification in place of microns per pixel, if the file states another scale."""
    if value not in MAGNIFICATIONS:
        return
    power = info.objective_power
    if info.mpp_xy:
        stated = f"{_said(info.mpp_xy)} µm/px" if _is_far(value, info.mpp_xy) else ""
    else:
        ratio = value * power / UM_TIMES_POWER if power else 1.0
        stated = f"an objective of {power:g}x" if max(ratio, 1 / ratio) > MAX_OFF_POWER else ""
    if stated:
        raise MissingMppError(
            f"slide {slide_id}: {source} says {value:g} µm/px, which looks like a magnification ({value:g}x): the file "
            f"states {stated}. Give microns per pixel (about {UM_TIMES_POWER / value:.3g} at {value:g}x), or leave the "
            "value to the file."
        )


def _is_far(value: float, stated_xy: tuple[float, float]) -> bool:
    return all(abs(value - stated) > MAX_OFF * stated for stated in stated_xy)


def _said(mpp_xy: tuple[float, float]) -> str:
    x, y = mpp_xy
    return f"{x:.6g}" if x == y else f"{x:.6g} × {y:.6g}"
