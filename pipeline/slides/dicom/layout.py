"""Assignment of frames to the tiles of a level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.slides.dicom.headers.attributes import text
from pipeline.slides.dicom.headers.header import Header
from pipeline.slides.dicom.headers.heights import planes_of_full, stated_heights_um
from pipeline.slides.dicom.headers.matrix import Matrix, num_frames
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

_MAX_ABSENT = 64
"""Tiles of a stack for each frame: at least some of each plane was scanned."""


def position_frames(headers: list[Header], matrix: Matrix) -> dict[float, NDArray[np.int64]]:
    """Number of the frame at every tile, int64 (rows, columns), by focal plane; -1 where there is none.

    Planes are named by their heights in micrometres, the lowest first.

    Frames of TILED_FULL follow one another row by row, plane by plane (PS3.3, C.7.6.17.3); each of TILED_SPARSE states
    its position.

    Args:
        headers: of all files of the level, in order.

    Raises:
        UnreadableError: frames that do not fit the matrix, or do not state their positions.
    """
    total = sum(num_frames(header) for header in headers)
    tiles = matrix.rows * matrix.columns
    first = headers[0]
    organization = text(first.dataset, "DimensionOrganizationType") or "absent"
    if any((text(part.dataset, "DimensionOrganizationType") or "absent") != organization for part in headers[1:]):
        raise _wrong(first, "differs from another part of the same level in its Dimension Organization Type")
    has_positions = any(column is not None for header in headers for column in header.frames.columns_px)
    if organization == "TILED_FULL" or (total == tiles == 1 and not has_positions):
        heights_um = planes_of_full(headers, tiles)
        if total != tiles * len(heights_um):
            planes = f" at {len(heights_um)} focal planes" if len(heights_um) > 1 else ""
            needed = counted(tiles * len(heights_um), "frame")
            raise _wrong(
                first, f"its {matrix.columns}×{matrix.rows} tiles{planes} need {needed}, but it claims {total}"
            )
        numbers = np.arange(total, dtype=np.int64).reshape(-1, matrix.rows, matrix.columns)
        return dict(zip(heights_um, numbers, strict=True))
    if not has_positions:
        raise _wrong(
            first, f"its {total} frames do not state their positions (Dimension Organization Type: {organization})"
        )
    return _by_position(headers, matrix)


def _by_position(headers: list[Header], matrix: Matrix) -> dict[float, NDArray[np.int64]]:
    first = headers[0]
    columns_px = [column for header in headers for column in header.frames.columns_px]
    rows_px = [row for header in headers for row in header.frames.rows_px]
    total = sum(num_frames(header) for header in headers)
    if len(columns_px) != total or None in columns_px or None in rows_px:
        raise _wrong(first, f"only some of its {total} frames state their positions")
    x_px, y_px = np.array(columns_px, np.int64) - 1, np.array(rows_px, np.int64) - 1
    outside = (x_px < 0) | (y_px < 0) | (x_px >= matrix.width_px) | (y_px >= matrix.height_px)
    if outside.any():
        frame = int(outside.argmax())
        raise _wrong(first, f"frame {frame + 1} is at x={x_px[frame]}, y={y_px[frame]}, outside the pixel matrix")
    askew = (x_px % matrix.tile_w_px != 0) | (y_px % matrix.tile_h_px != 0)
    if askew.any():
        frame = int(askew.argmax())
        raise _wrong(
            first,
            f"frame {frame + 1} is at x={x_px[frame]}, y={y_px[frame]}, between the tiles of "
            f"{matrix.tile_w_px}×{matrix.tile_h_px} px; overlapping frames are not supported",
        )
    heights_um, plane = np.unique(stated_heights_um(headers), return_inverse=True)
    if len(heights_um) > 1 and len(heights_um) * matrix.rows * matrix.columns > _MAX_ABSENT * total:
        claim = f"{len(heights_um)} focal planes of {matrix.columns}×{matrix.rows} tiles"
        raise _wrong(first, f"claims {claim} in {counted(total, 'frame')}: next to nothing is there")
    numbers = np.full((len(heights_um), matrix.rows, matrix.columns), -1, np.int64)
    numbers[plane, y_px // matrix.tile_h_px, x_px // matrix.tile_w_px] = np.arange(total)
    if (numbers >= 0).sum() != total:
        raise _wrong(first, "several frames have the same position and height; only one optical path is read")
    if ((numbers >= 0) != (numbers[:1] >= 0)).any():
        # One plane that follows the tissue looks like this, too; parts of it would be white.
        raise _wrong(first, f"its {len(heights_um)} focal planes do not hold the same tiles")
    return dict(zip(heights_um.tolist(), numbers, strict=True))


def _wrong(header: Header, why: str) -> UnreadableError:
    return UnreadableError(f"{header.path.name}: {why}. The file is damaged, incomplete or of an unsupported kind.")
