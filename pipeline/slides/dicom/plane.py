"""Position of a DICOM slide's pixels on the glass, in millimetres of its coordinate system (PS3.3, C.8.12.14)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.slides.dicom.headers.attributes import as_number, first_item, number, values
from pipeline.slides.dicom.headers.header import Header, refusing_damage
from pipeline.slides.dicom.metadata import mpp_of
from training.foundation.errors import UnreadableError

_AXES = "XYZ"
_MAX_TURN, _MAX_SHIFT_PX = 0.01, 2
"""Between levels: of direction cosines, and of the first pixel in pixels of the coarser one, whose centre differs."""


@dataclass(frozen=True)
class SlidePlane:
    """A matrix of pixels on the glass."""

    origin_xyz_mm: tuple[float, float, float]
    """Centre of the first pixel (Total Pixel Matrix Origin)."""
    along_row_xyz: tuple[float, float, float]
    """Unit vector of a step to the next column; the first half of Image Orientation (Slide)."""
    along_column_xyz: tuple[float, float, float]
    """Unit vector of a step to the next row."""
    spacing_xy_mm: tuple[float, float]
    """Between columns (x) and between rows (y)."""
    has_origin: bool = True
    """False: the file does not state the position of its first pixel, which is taken as the origin, as in viewers."""

    def at(self, x_px: float, y_px: float) -> tuple[float, float, float]:
        """Millimetres of a position in pixels; (0, 0) is the centre of the first one."""
        step_x, step_y = self.spacing_xy_mm
        along: NDArray[np.float64] = np.multiply(self.along_row_xyz, x_px * step_x)
        down: NDArray[np.float64] = np.multiply(self.along_column_xyz, y_px * step_y)
        x_mm, y_mm, z_mm = (np.asarray(self.origin_xyz_mm) + along + down).tolist()
        return x_mm, y_mm, z_mm

    def for_cells(self, side_px: float) -> SlidePlane:
        """The matrix of square cells of so many pixels over the same area; its origin is the first cell's centre."""
        middle_px = (side_px - 1) / 2
        x_mm, y_mm = self.spacing_xy_mm
        return SlidePlane(
            self.at(middle_px, middle_px),
            self.along_row_xyz,
            self.along_column_xyz,
            (x_mm * side_px, y_mm * side_px),
            self.has_origin,
        )


def plane_of(header: Header) -> SlidePlane:
    """The plane of a level as its file states it.

    Raises:
        UnreadableError: its orientation or pixel size is missing or impossible.
    """
    with refusing_damage(header.path):
        x_mm, y_mm, z_mm = _origin_mm(header)
        cosines = _orientation(header)
    mpp_xy, searched, _ = mpp_of(header)
    if mpp_xy is None:
        raise UnreadableError(
            f"{header.path.name}: states no pixel size ({searched}), so it has no position on the glass."
        )
    if len(cosines) != 6 or not _is_orthonormal(cosines):
        raise UnreadableError(
            f"{header.path.name}: does not state its orientation on the glass (Image Orientation (Slide) is "
            f"{cosines}), so no DICOM result can be placed on it. Write the other formats, or convert the slide again."
        )
    row, column = cosines[:3], cosines[3:]
    return SlidePlane(
        (x_mm or 0.0, y_mm or 0.0, z_mm or 0.0), (row[0], row[1], row[2]), (column[0], column[1], column[2]),
        (mpp_xy[0] / 1000, mpp_xy[1] / 1000), x_mm is not None and y_mm is not None,
    )  # fmt: skip


def _orientation(header: Header) -> list[float]:
    return [as_number(one, "ImageOrientationSlide") for one in values(header.dataset, "ImageOrientationSlide")]


def _origin_mm(header: Header) -> list[float | None]:
    origin = first_item(header.dataset, "TotalPixelMatrixOriginSequence")
    return [number(origin, f"{axis}OffsetInSlideCoordinateSystem") for axis in _AXES]


def check_same_plane(levels: list[Header], name: str) -> None:
    """Check that levels lie at the same place on the glass, the same way round, as far as they state it.

    Args:
        levels: finest first.

    Raises:
        UnreadableError: one is turned or shifted.
        DamagedFileError: an attribute cannot be parsed.
    """
    cosines, origin_mm = _orientation(levels[0]), _origin_mm(levels[0])
    for level in levels[1:]:
        own_cosines, own_mm = _orientation(level), _origin_mm(level)
        if len(cosines) == len(own_cosines) == 6 and not np.allclose(cosines, own_cosines, atol=_MAX_TURN):
            _refuse_plane(level, f"Image Orientation (Slide) {own_cosines}, not {cosines}", name)
        shifts_mm = [
            abs(own - first) for own, first in zip(own_mm[:2], origin_mm[:2], strict=True)
            if own is not None and first is not None
        ]  # fmt: skip
        mpp_xy = mpp_of(level).mpp_xy
        if mpp_xy and max(shifts_mm, default=0) > _MAX_SHIFT_PX * max(mpp_xy) / 1000:
            _refuse_plane(level, f"its first pixel at {own_mm[:2]} mm, not {origin_mm[:2]} mm", name)


def _refuse_plane(level: Header, states: str, name: str) -> None:
    raise UnreadableError(
        f"{name}: its image {level.path.name} states {states}, as the finest one does: it is not the same field. "
        "Remove it from the folder, or name a single file."
    )


def _is_orthonormal(cosines: list[float]) -> bool:
    pair = np.reshape(cosines, (2, 3))
    return bool(np.abs(pair @ pair.T - np.eye(2)).max() < 1e-3)
