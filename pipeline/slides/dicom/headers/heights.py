"""Focal planes of a level: the height of each frame above the glass's own plane (PS3.3, C.7.6.17.3 and C.8.12.6.1)."""

from __future__ import annotations

import math

from pipeline.slides.dicom.headers.attributes import first_item, integer, number
from pipeline.slides.dicom.headers.header import Header
from pipeline.units import MAX_PLANES, why_no_stack
from training.foundation.errors import UnreadableError

_DECIMALS = 3
"""Of micrometres: levels state the same height with different rounding."""


def stated_heights_um(headers: list[Header]) -> list[float]:
    """Height of every frame of a level's files; 0 for each where none states it.

    Raises:
        UnreadableError: only some frames state it, or they are not heights of focal planes.
    """
    stated = _of_frames(headers)
    _check(headers[0], sorted(set(stated)))
    return stated or [0.0] * sum(len(header.frames.heights_um) for header in headers)


def planes_of_full(headers: list[Header], num_tiles: int) -> list[float]:
    """Heights of the planes of TILED_FULL, whose frames are in the order from the glass to the coverslip.

    Args:
        num_tiles: of a plane.

    Raises:
        UnreadableError: they are missing, contradict the order of the frames or each other, or are not heights of
            focal planes.
        DamagedFileError: an attribute cannot be parsed.
    """
    layouts = {_layout(header) for header in headers}
    if len(layouts) > 1:
        raise _wrong(headers[-1], "differs from another part of the same level in its focal planes")
    num_planes, step_mm, origin_um = layouts.pop()
    if num_planes > MAX_PLANES:
        raise _wrong(headers[0], f"claims {num_planes} focal planes; at most {MAX_PLANES} are read")
    if num_planes == 1:
        stated = next((height for height in headers[0].frames.heights_um if height is not None), None)
        heights = [_rounded(origin_um if stated is None else stated)]
    elif stated_um := _of_frames(headers):
        heights = _by_plane(headers[0], stated_um, num_planes, num_tiles)
    elif step_mm is None or not 0 < step_mm < math.inf:
        why = f"does not state their distance (Spacing Between Slices is {step_mm})"
        raise _wrong(headers[0], f"holds {num_planes} focal planes and {why}")
    else:
        heights = [_rounded(origin_um + 1000 * step_mm * plane) for plane in range(num_planes)]
    _check(headers[0], heights)
    return heights


def _layout(header: Header) -> tuple[int, float | None, float]:
    """Number of planes, their distance (mm) and the height (µm) of the lowest, as stated for all frames together."""
    origin = first_item(header.dataset, "TotalPixelMatrixOriginSequence")
    groups = first_item(header.dataset, "SharedFunctionalGroupsSequence")
    return (
        max(1, integer(header.dataset, "TotalPixelMatrixFocalPlanes")),
        number(first_item(groups, "PixelMeasuresSequence"), "SpacingBetweenSlices"),
        number(origin, "ZOffsetInSlideCoordinateSystem") or 0.0,
    )


def _of_frames(headers: list[Header]) -> list[float]:
    """Stated heights of all frames; none if no frame states one."""
    heights = [height for header in headers for height in header.frames.heights_um]
    stated = [_rounded(height) for height in heights if height is not None]
    if stated and len(stated) != len(heights):
        raise _wrong(headers[0], f"only {len(stated)} of its {len(heights)} frames state their heights")
    return stated


def _by_plane(header: Header, stated_um: list[float], num_planes: int, num_tiles: int) -> list[float]:
    """One height for the frames of each plane."""
    planes = [set(stated_um[at : at + num_tiles]) for at in range(0, len(stated_um), num_tiles)]
    if len(planes) != num_planes or any(len(plane) > 1 for plane in planes):
        raise _wrong(header, f"states heights of frames that are not in the order of its {num_planes} focal planes")
    return [height for (height,) in planes]


def _rounded(height_um: float) -> float:
    return round(height_um, _DECIMALS) + 0.0  # no negative zero


def _check(header: Header, heights_um: list[float]) -> None:
    if why := why_no_stack(heights_um):
        raise _wrong(header, f"states {why}")


def _wrong(header: Header, why: str) -> UnreadableError:
    return UnreadableError(f"{header.path.name}: {why}. The file is damaged, incomplete or of an unsupported kind.")
