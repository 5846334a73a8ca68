"""A large Aperio-like slide of real tissue pixels, for benchmarks of ingest and reading.

    .venv/bin/python -m benchmarks.make_slide OUT.svs [--side-px N] [--colour rgb|ycbcr] [--quality Q] [--single-level]

The image is scikit-image's bundled immunohistochemistry, mirrored and tinted into `CELLS` different cells of 1024 px,
laid over glass in islands of tissue. Levels 4, 16 and 64 times smaller are area means of the level before, so that the
pyramid is consistent. `rgb` tiles are R, G, B without a colour marker under 289 bytes of shared tables, `ycbcr` tiles
are 4:2:2 under 574 bytes, as two generations of scanners write them. Encoded cells are written repeatedly: 100,000 ×
100,000 px take seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import tifffile
from numpy.typing import NDArray
from skimage import data

Pixels = NDArray[np.uint8]

TILE_PX = 256
CELL_PX = 4 * TILE_PX
CELLS = 24
MPP0 = 0.25
DESCRIPTION = (
    "Aperio Image Library v12.0.15\r\n{side}x{side} [0,0 {side}x{side}] (256x256) JPEG/{colour} Q={quality}"
    "|AppMag = 40|MPP = 0.2500"
)
JPEG_TABLES = 347
PHOTOMETRIC = 262
PHOTOMETRICS = {"rgb": 2, "ycbcr": 6}
DEFAULT_QUALITY = {"rgb": 14, "ycbcr": 66}
"""Default JPEG quality by colour, for about 1.5 GB at 100,000 px."""


@dataclass(frozen=True)
class Encoder:
    """JPEG as one generation of scanners writes it: tables apart, no colour marker."""

    colour: str
    quality: int

    def tile(self, pixels: Pixels) -> tuple[bytes, bytes]:
        """(tables, stream without tables) of one tile."""
        pixels = np.ascontiguousarray(pixels)
        if self.colour == "rgb":
            stream = imagecodecs.jpeg8_encode(pixels, level=self.quality, colorspace="RGB", outcolorspace="RGB")
        else:
            stream = imagecodecs.jpeg8_encode(pixels, level=self.quality, subsampling="422")
        return _split(bytes(stream))


def make_slide(
    path: Path, *, side_px: int = 100_000, colour: str = "rgb", quality: int | None = None, single_level: bool = False
) -> None:
    """Write the slide; the file gets its name once it is complete."""
    encoder = Encoder(colour, quality or DEFAULT_QUALITY[colour])
    cells = cells_of_tissue()
    layout = islands(-(-side_px // CELL_PX))
    reduced = [cv2.resize(cell, (TILE_PX, TILE_PX), interpolation=cv2.INTER_AREA) for cell in cells]
    small = [cv2.resize(cell, (TILE_PX // 4, TILE_PX // 4), interpolation=cv2.INTER_AREA) for cell in reduced]
    overview = np.concatenate([np.concatenate([small[i] for i in row], axis=1) for row in layout])
    temporary = path.with_name(f".{path.name}.partial")
    with tifffile.TiffWriter(temporary, bigtiff=side_px > 60_000) as tiff:
        _write_level(tiff, side_px, 0, encoder, _tiles_of_cells(cells, layout, side_px, encoder))
        thumbnail = cv2.resize(overview, (768, 768), interpolation=cv2.INTER_AREA)
        tiff.write(thumbnail, photometric="rgb", compression="jpeg", rowsperstrip=16, metadata=None)
        if not single_level:
            _write_level(tiff, side_px // 4, 1, encoder, _tiles_of_cells(reduced, layout, side_px // 4, encoder))
            for level in (2, 3):
                side = side_px // 4**level
                image = np.ascontiguousarray(overview[:side, :side])
                _write_level(tiff, side, level, encoder, _tiles_of_image(image, encoder))
                overview = cv2.resize(
                    overview, (overview.shape[1] // 4, overview.shape[0] // 4), interpolation=cv2.INTER_AREA
                )
    with tifffile.TiffFile(temporary, mode="r+b") as written:
        for page in written.pages:  # tifffile marks every JPEG as YCbCr
            if page.is_tiled:
                page.tags[PHOTOMETRIC].overwrite(PHOTOMETRICS[colour])
    temporary.replace(path)


def cells_of_tissue() -> list[Pixels]:
    """Cells: 0 is glass; the others are one periodic piece of tissue, tinted in the middle and so without seams."""
    random = np.random.default_rng(0)
    tissue = data.immunohistochemistry()
    both = np.concatenate([tissue, tissue[:, ::-1]], axis=1)
    whole = np.concatenate([both, both[::-1]], axis=0).astype(float)
    window = np.sin(np.linspace(0, np.pi, CELL_PX)) ** 2
    middle = (window[:, None] * window)[..., None]
    cells = [np.clip(random.normal(243, 1.0, whole.shape), 0, 255).astype(np.uint8)]
    for _ in range(1, CELLS):
        cells.append(np.clip(whole * (1 + middle * random.uniform(-0.2, 0.15, 3)), 0, 255).astype(np.uint8))
    return cells


def islands(num_cells: int) -> NDArray[np.int64]:
    """Kind of cell at each position: islands of tissue on about two thirds of the glass."""
    random = np.random.default_rng(1)
    islands = cv2.resize(
        random.random((7, 7)).astype(np.float32), (num_cells, num_cells), interpolation=cv2.INTER_CUBIC
    )
    kinds = random.integers(1, CELLS, (num_cells, num_cells))
    return np.where(islands > 0.35, kinds, 0)


def _tiles_of_cells(
    cells: list[Pixels], layout: NDArray[np.int64], side_px: int, encoder: Encoder
) -> Iterator[tuple[bytes, bytes]]:
    """Tiles of a level in which every cell is a square of the same tiles."""
    per_cell = cells[0].shape[0] // TILE_PX
    encoded = [
        [encoder.tile(cell[y : y + TILE_PX, x : x + TILE_PX]) for y in _starts(per_cell) for x in _starts(per_cell)]
        for cell in cells
    ]
    columns = -(-side_px // TILE_PX)
    for row in range(columns):
        for column in range(columns):
            cell = int(layout[row // per_cell, column // per_cell])
            yield encoded[cell][row % per_cell * per_cell + column % per_cell]


def _starts(count: int) -> range:
    return range(0, count * TILE_PX, TILE_PX)


def _tiles_of_image(image: Pixels, encoder: Encoder) -> Iterator[tuple[bytes, bytes]]:
    height, width = image.shape[:2]
    padded = np.pad(image, ((0, -height % TILE_PX), (0, -width % TILE_PX), (0, 0)), mode="edge")
    for y in range(0, padded.shape[0], TILE_PX):
        for x in range(0, padded.shape[1], TILE_PX):
            yield encoder.tile(padded[y : y + TILE_PX, x : x + TILE_PX])


def _write_level(
    tiff: tifffile.TiffWriter, side_px: int, level: int, encoder: Encoder, tiles: Iterator[tuple[bytes, bytes]]
) -> None:
    tables, _ = encoder.tile(np.zeros((TILE_PX, TILE_PX, 3), np.uint8))
    tiff.write(
        (stream for _, stream in tiles), shape=(side_px, side_px, 3), dtype=np.uint8, tile=(TILE_PX, TILE_PX),
        photometric="rgb", compression="jpeg", subfiletype=0, metadata=None,
        extratags=[(JPEG_TABLES, 7, len(tables), tables, True)],
        description=DESCRIPTION.format(side=side_px, colour=encoder.colour.upper(), quality=encoder.quality),
    )  # fmt: skip


def _split(stream: bytes) -> tuple[bytes, bytes]:
    """Shared tables (SOI … EOI), and the tile without them, without colour markers."""
    tables, rest, at = b"", stream[:2], 2
    while stream[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")
        if stream[at + 1] in (0xDB, 0xC4):
            tables += stream[at:end]
        elif stream[at + 1] not in (0xE0, 0xEE):
            rest += stream[at:end]
        at = end
    return b"\xff\xd8" + tables + b"\xff\xd9", rest + stream[at:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--colour", choices=("rgb", "ycbcr"), default="rgb")
    parser.add_argument("--quality", type=int)
    parser.add_argument("--single-level", action="store_true")
    given = parser.parse_args()
    start = time.perf_counter()
    make_slide(
        given.out, side_px=given.side_px, colour=given.colour, quality=given.quality, single_level=given.single_level
    )
    print(f"{given.out}: {given.out.stat().st_size / 1e9:.2f} GB in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
