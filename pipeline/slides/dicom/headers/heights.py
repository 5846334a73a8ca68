"""Focal planes of a level: the height of each frame above the glass's own plane (PS3.3, C.7.6.17.3 and C.8.12.6.1)."""

from __future__ import annotations

import math

from pipeline.slides.dicom.headers.attributes import first_item, integer, number
from pipeline.slides.dicom.headers.header import Header
from pipeline.units import MAX_PLANES
from training.foundation.errors import UnreadableError

_DECIMALS = 3
"""Of micrometres: levels state the same height with different rounding."""


def stated_heights_um(headers: list[Header]) -> list[float]:
    """Height of every frame of a level's files that has one in its groups; 0 for those of a level that states none.

    Raises:
        UnreadableError: only some frames state it, or they state more planes than are read.
    """
    heights = [height for header in headers for height in header.frames.heights_um]
    stated = [round(height, _DECIMALS) + 0.0 for height in heights if height is not None]
    if stated and len(stated) != len(heights):
        raise _wrong(headers[0], f"only {len(stated)} of its {len(heights)} frames state their heights")
    if len(set(stated)) > MAX_PLANES or not all(map(math.isfinite, stated)):
        raise _wrong(headers[0], f"its frames are at {len(set(stated))} heights; at most {MAX_PLANES} are read")
    return stated or [0.0] * len(heights)


def planes_of_full(header: Header) -> list[float]:
    """Heights of the planes of TILED_FULL, whose frames are in the order from the glass to the coverslip.

    Raises:
        UnreadableError: too many planes, or their distance is missing.
        DamagedFileError: an attribute cannot be parsed.
    """
    num_planes = max(1, integer(header.dataset, "TotalPixelMatrixFocalPlanes"))
    if num_planes > MAX_PLANES:
        raise _wrong(header, f"claims {num_planes} focal planes; at most {MAX_PLANES} are read")
    first = next((height for height in header.frames.heights_um if height is not None), None)
    if first is None:
        origin = first_item(header.dataset, "TotalPixelMatrixOriginSequence")
        first = number(origin, "ZOffsetInSlideCoordinateSystem") or 0.0
    if num_planes == 1:
        return [round(first, _DECIMALS) + 0.0]
    groups = first_item(header.dataset, "SharedFunctionalGroupsSequence")
    step_mm = number(first_item(groups, "PixelMeasuresSequence"), "SpacingBetweenSlices")
    if step_mm is None or not 0 < step_mm < math.inf or not math.isfinite(first):
        raise _wrong(
            header,
            f"holds {num_planes} focal planes and does not state their distance (Spacing Between Slices is {step_mm})",
        )
    return [round(first + 1000 * step_mm * plane, _DECIMALS) + 0.0 for plane in range(num_planes)]


def _wrong(header: Header, why: str) -> UnreadableError:
    return UnreadableError(f"{header.path.name}: {why}. The file is damaged, incomplete or of an unsupported kind.")
