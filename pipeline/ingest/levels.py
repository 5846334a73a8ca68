"""Writing the levels of a store, shard by shard: pass-through, decode, and levels built from their parent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from pipeline.progress import Advance
from pipeline.slides.slide import EncodedLevel, Pixels, Slide
from pipeline.store.array_reader import ArrayReader
from pipeline.store.codecs import encode_zstd
from pipeline.store.layout import FILL_VALUE, ArraySpec
from pipeline.store.metadata import write_json
from pipeline.store.shard import write_shard

ChunkSource = Callable[[int, int], bytes | None]
"""(row, column) -> the chunk's encoded bytes, None to leave it out."""

WORKERS = max(2, os.cpu_count() or 1)


def shard_chunks(shard_px: int, chunk_px: int) -> int:
    """Chunks along a shard's side: the most that fit into `shard_px`, at least one."""
    return max(1, shard_px // chunk_px)


def pass_through_spec(encoded: EncodedLevel, width_px: int, height_px: int, shard_px: int) -> ArraySpec:
    """Array of a level whose chunks are the scanner's tiles."""
    chunk_px = encoded.tile_px
    return ArraySpec(width_px, height_px, chunk_px, shard_chunks(shard_px, chunk_px), "imagecodecs_jpeg")


def decode_spec(width_px: int, height_px: int, chunk_px: int, shard_px: int) -> ArraySpec:
    """Array of a level stored losslessly from decoded pixels."""
    return ArraySpec(width_px, height_px, chunk_px, shard_chunks(shard_px, chunk_px), "zstd")


def write_level(array_dir: Path, spec: ArraySpec, source: ChunkSource, advance: Advance) -> int:
    """Write one level's array; one shard at a time, its chunks made by threads. Returns bytes of chunks."""
    array_dir.mkdir(parents=True, exist_ok=True)
    write_json(array_dir / "zarr.json", spec.to_zarr_json())
    written = 0
    advance.expect(spec.shard_rows * spec.shard_columns)
    with ThreadPoolExecutor(WORKERS) as pool:
        for shard_row in range(spec.shard_rows):
            for shard_column in range(spec.shard_columns):
                chunks = _shard_chunks(pool, spec, source, shard_row, shard_column)
                written += write_shard(array_dir / spec.shard_key(shard_row, shard_column), chunks)
                advance(1)
    return written


def _shard_chunks(
    pool: ThreadPoolExecutor, spec: ArraySpec, source: ChunkSource, shard_row: int, shard_column: int
) -> Iterator[bytes | None]:
    """Encoded chunks of a shard in C order; a row of chunks at a time, so that memory stays small."""
    n = spec.shard_chunks
    columns = [shard_column * n + i for i in range(n)]

    def chunk(row: int, column: int) -> bytes | None:
        return source(row, column) if row < spec.rows and column < spec.columns else None

    for row in range(shard_row * n, shard_row * n + n):
        yield from pool.map(chunk, [row] * n, columns)


def decoded_chunks(slide: Slide, level: int, spec: ArraySpec) -> ChunkSource:
    """Chunks of a source level, decoded and stored losslessly."""

    def chunk(row: int, column: int) -> bytes | None:
        t = spec.chunk_px
        width_px = min(t, spec.width_px - column * t)
        height_px = min(t, spec.height_px - row * t)
        pixels = slide.read_region(level, column * t, row * t, width_px, height_px)
        return encode_padded(pixels, t)

    return chunk


def halved_chunks(parent: ArrayReader, spec: ArraySpec) -> ChunkSource:
    """Chunks of a level made from the parent level by averaging 2 × 2 pixels."""

    def chunk(row: int, column: int) -> bytes | None:
        t = spec.chunk_px
        width_px = min(t, spec.width_px - column * t)
        height_px = min(t, spec.height_px - row * t)
        x_px, y_px = 2 * column * t, 2 * row * t
        # An odd parent edge has half a pixel less: the last child pixel averages what there is.
        taken_w = min(2 * width_px, parent.spec.width_px - x_px)
        taken_h = min(2 * height_px, parent.spec.height_px - y_px)
        pixels = parent.read_region(x_px, y_px, taken_w, taken_h)
        padded = np.pad(pixels, ((0, 2 * height_px - taken_h), (0, 2 * width_px - taken_w), (0, 0)), mode="edge")
        return encode_padded(_mean_2x2(padded), t)

    return chunk


def _mean_2x2(pixels: Pixels) -> Pixels:
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def encode_padded(pixels: Pixels, chunk_px: int) -> bytes | None:
    """A zstd chunk, edges padded with the fill value; None where everything is white."""
    if (pixels == FILL_VALUE).all():
        return None
    if pixels.shape[:2] != (chunk_px, chunk_px):
        padded = np.full((chunk_px, chunk_px, 3), FILL_VALUE, np.uint8)
        padded[: pixels.shape[0], : pixels.shape[1]] = pixels
        pixels = padded
    return encode_zstd(pixels)
