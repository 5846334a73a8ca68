"""The one search for microns per pixel: a file's sources in the order in which they are believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pipeline.units import is_plausible_mpp

MppXy = tuple[float, float]
"""Microns per pixel along x and y."""


def search_mpp(sources: Iterable[tuple[str, Callable[[], MppXy | None]]]) -> tuple[MppXy | None, str]:
    """The first plausible value, and where it was looked for: each source's name and what it says.

    Args:
        sources: names as a person reads them, each with the function that asks it.
    """
    looked_in = []
    for name, ask in sources:
        mpp_xy = ask()
        looked_in.append(f"{name}: {'none' if mpp_xy is None else f'{mpp_xy[0]:.4g} × {mpp_xy[1]:.4g} µm/px'}")
        if mpp_xy is not None and is_plausible_mpp(mpp_xy[0]) and is_plausible_mpp(mpp_xy[1]):
            return mpp_xy, "; ".join(looked_in)
    return None, "; ".join(looked_in)
