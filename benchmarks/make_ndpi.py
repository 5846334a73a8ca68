"""A Hamamatsu-like slide of real tissue pixels: each level one JPEG of 4:2:2 with restart intervals.

    .venv/bin/python -m benchmarks.make_ndpi OUT.ndpi [--side-px 15360] [--interval-px 512]

The cells of `benchmarks.make_slide`. Level 0 is put together from their restart intervals, or encoded whole if a cell
is no multiple of an interval; the other three are encoded whole. A side is a multiple of 1,024 px and of the interval.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.make_slide import CELL_PX, cells_of_tissue, islands
from pipeline.codecs.restart.intervals import IntervalHeader, joined, read_interval_header, split
from tests.pipeline.slides.make_ndpi import NdpiImage, write_ndpi_images

Pixels = NDArray[np.uint8]
QUALITY = 70
_MCU_W_PX, _MCU_H_PX = 16, 8
_NUM_LEVELS = 4


def make_ndpi(path: Path, *, side_px: int = 15_360, interval_px: int = 512, heights_nm: Sequence[int] = (0,)) -> None:
    """Write the slide.

    Args:
        heights_nm: of focal planes; the further one is from 0, the more it is out of focus.
    """
    images = [image for height_nm in heights_nm for image in _plane(side_px, interval_px, height_nm)]
    temporary = path.with_name(f".{path.name}.partial")
    write_ndpi_images(temporary, images, mpp=0.25)
    temporary.replace(path)


def _plane(side_px: int, interval_px: int, height_nm: int) -> list[NdpiImage]:
    """Levels at one focal plane."""
    cells, layout = cells_of_tissue(), islands(side_px // CELL_PX)
    if height_nm:
        cells = [np.asarray(cv2.GaussianBlur(cell, (0, 0), abs(height_nm) / 1000), np.uint8) for cell in cells]
    if CELL_PX % interval_px:
        levels = [
            _encoded(np.concatenate([np.concatenate([cells[i] for i in row], axis=1) for row in layout]), interval_px)
        ]
    else:
        levels = [_level0([_encoded(cell, interval_px) for cell in cells], layout)]
    small = [cv2.resize(cell, (CELL_PX // 4, CELL_PX // 4), interpolation=cv2.INTER_AREA) for cell in cells]
    image = np.concatenate([np.concatenate([small[i] for i in row], axis=1) for row in layout])
    while len(levels) < _NUM_LEVELS:
        levels.append(_encoded(image, image.shape[1] if image.shape[1] % interval_px else interval_px))
        image = cv2.resize(image, (image.shape[1] // 4, image.shape[0] // 4), interpolation=cv2.INTER_AREA)
    sides = [side_px // 4**level for level in range(_NUM_LEVELS)]
    return [
        NdpiImage(jpeg, side, side, 40 / 4**i, height_nm=height_nm)
        for i, (jpeg, side) in enumerate(zip(levels, sides, strict=True))
    ]


def _encoded(pixels: Pixels, interval_px: int) -> bytes:
    stream = io.BytesIO()
    options = {"quality": QUALITY, "subsampling": 1, "restart_marker_blocks": interval_px // _MCU_W_PX}
    Image.fromarray(pixels).save(stream, "JPEG", **options)
    return stream.getvalue()


def _level0(cells: list[bytes], layout: NDArray[np.int64]) -> bytes:
    """The JPEG of all cells, from their restart intervals."""
    header, _ = _taken_apart(cells[0])
    per_row = CELL_PX // header.interval_wh_px[0]
    intervals = [_taken_apart(cell)[1] for cell in cells]
    rows, columns = layout.shape
    ordered = [
        interval
        for row in range(rows)
        for at in range(0, CELL_PX // _MCU_H_PX * per_row, per_row)
        for column in range(columns)
        for interval in intervals[layout[row, column]][at : at + per_row]
    ]
    return joined(header.head(columns * CELL_PX, rows * CELL_PX), ordered)


def _taken_apart(stream: bytes) -> tuple[IntervalHeader, list[bytes]]:
    at = stream.index(b"\xff\xda")
    end = at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
    return read_interval_header(stream[:end]), split(stream[end:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side-px", type=int, default=15_360)
    parser.add_argument("--interval-px", type=int, default=512)
    given = parser.parse_args()
    make_ndpi(given.out, side_px=given.side_px, interval_px=given.interval_px)


if __name__ == "__main__":
    main()
