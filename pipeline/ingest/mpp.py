"""Size of a pixel: from the file, else the manifest, else the command line; an explicit value wins."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.errors import MissingMppError
from pipeline.slides.common.slide import SlideInfo
from pipeline.units import MAX_ANISOTROPY, MAX_MPP, MIN_MPP, is_plausible_mpp


@dataclass(frozen=True)
class Mpp:
    """Microns per level-0 pixel, and its source."""

    mpp0: float
    source: str


def resolve_mpp(
    info: SlideInfo, *, slide_id: str, manifest_mpp: float | None = None, option_mpp: float | None = None
) -> Mpp:
    """Microns per level-0 pixel of a slide.

    Raises:
        MissingMppError: it is stated nowhere, the value is absurd, or x and y differ.
    """
    for value, source in ((option_mpp, "--mpp"), (manifest_mpp, "manifest")):
        if value is None:
            continue
        if not is_plausible_mpp(value):
            raise MissingMppError(
                f"slide {slide_id}: {source} says {value} µm/px; plausible values: {MIN_MPP} to {MAX_MPP}. Correct it."
            )
        in_file = f"{info.mpp_xy[0]:.6g}" if info.mpp_xy else "none"
        return Mpp(value, f"override by {source} (file: {in_file})")
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
    return Mpp((x + y) / 2, f"file ({info.format})")
