"""Writing levels shard by shard: tiles copied, pixels encoded, levels built while their parent is in memory.

A shard belongs to one worker, takes its name when it is whole and on the disk, and is never touched again: a run that
was killed goes on with the shards that are not there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from pipeline.box import Box
from pipeline.codecs.images import encode_jpeg
from pipeline.codecs.types import Pixels, Stream
from pipeline.files import fsync_dir
from pipeline.ingest.routes import LevelPlan
from pipeline.progress import Advance
from pipeline.slides.slide import paste
from pipeline.store.array_reader import ArrayReader
from pipeline.store.chunks import decode_chunk, encode_zstd
from pipeline.store.layout import FILL_VALUE, ArraySpec
from pipeline.store.metadata import write_json
from pipeline.store.shard import FileChecksum, sum_file, write_shard
from pipeline.store.threads import CORES, parallel_for

COPIERS = 2 * CORES
"""Copying waits for the disk about half of the time."""
MAX_WAITING = 2
"""Encoded shards in memory that wait for the disk while the next is being made."""


class LevelsWriter:
    """Writes the levels of one image below `image_dir`."""

    def __init__(self, image_dir: Path, plans: list[LevelPlan], advance: Advance) -> None:
        self._dir, self._plans, self._advance = image_dir, plans, advance
        self.sums: dict[str, FileChecksum] = {}
        """Of the shards written by this run, by path below the image."""
        # One thread, in order: a built shard is never on the disk before those it was built from.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")
        self._waiting: deque[Future[None]] = deque()
        for plan in plans:
            array_dir = image_dir / plan.about.path
            for shard_row in range(plan.spec.shard_rows):
                (array_dir / plan.spec.shard_key(shard_row, 0)).parent.mkdir(parents=True, exist_ok=True)
            write_json(array_dir / "zarr.json", plan.spec.to_zarr_json())
            advance.expect(plan.spec.shard_rows * plan.spec.shard_columns)

    def start_copying(self, pool: ThreadPoolExecutor, index: int) -> list[Future[None]]:
        """Begin to copy a level's own tiles, if it has such; errors are in the futures."""
        plan = self._plans[index]
        if plan.encoded is None:
            return []
        return [pool.submit(self._copy_alone, index, row, column) for row, column in _shards(plan.spec)]

    def write_encoded(self, index: int) -> None:
        """Write a level that is decoded, or built with all that it is built from.

        Depth first, so that one shard per level is in memory.
        """
        try:
            for row, column in _shards(self._plans[index].spec):
                self._finish(index, row, column, want=False)
            while self._waiting:
                self._waiting.popleft().result()
        finally:
            self._waiting.clear()

    def close(self) -> None:
        """End the thread that writes; what still waits is not written."""
        self._writer.shutdown(cancel_futures=True)

    def _copy_alone(self, index: int, row: int, column: int) -> None:
        self._finish(index, row, column, want=False)

    def _path(self, index: int, row: int, column: int) -> Path:
        plan = self._plans[index]
        return self._dir / plan.about.path / plan.spec.shard_key(row, column)

    def _finish(self, index: int, row: int, column: int, *, want: bool) -> Pixels | None:
        """See that a shard is on the disk. Its pixels if they are wanted; None where all is white.

        A shard that is there has its parents there, too: it was written after them.
        """
        path, plan = self._path(index, row, column), self._plans[index]
        if path.exists():
            block = self._stored(index, row, column) if want else None
        elif plan.encoded is not None:
            block = self._copy(index, row, column, want=want)
        elif plan.decoder is not None:
            block = self._encode_block(index, row, column, self._decoded_part(index, row, column), want=want)
        else:
            block = self._build(index, row, column)
        self._advance(1)
        return block

    # --- pass-through ----------------------------------------------------------------------------

    def _copy(self, index: int, row: int, column: int, *, want: bool) -> Pixels | None:
        plan = self._plans[index]
        if not want:
            self._write(index, row, column, _copied(plan, row, column))
            return None
        chunks = list(_copied(plan, row, column))
        self._write(index, row, column, chunks)
        if not any(chunks):
            return None
        n, codec, t = plan.spec.shard_chunks, plan.spec.codec, plan.spec.chunk_px
        block = self._white(index, row, column)

        def place(at: int) -> None:
            if chunks[at]:
                paste(block, decode_chunk(codec, b"".join(chunks[at]), t), at % n * t, at // n * t)

        parallel_for(place, ((at,) for at in range(n * n)), CORES)
        return block

    # --- decode and build ------------------------------------------------------------------------

    def _decoded_part(self, index: int, row: int, column: int) -> Callable[[int, int], Pixels]:
        plan = self._plans[index]
        assert plan.decoder is not None
        decoder, t, shard_px = plan.decoder, plan.spec.chunk_px, plan.spec.shard_chunks * plan.spec.chunk_px
        height, width = self._shape(index, row, column)

        def read(top: int, left: int) -> Pixels:
            x_px, y_px = column * shard_px + left, row * shard_px + top
            return decoder.read_region(index, Box(x_px, y_px, min(t, width - left), min(t, height - top)))

        return read

    def _build(self, index: int, row: int, column: int) -> Pixels | None:
        """Halve up to four shards of the level before."""
        before = self._plans[index - 1].spec
        half = before.shard_chunks * before.chunk_px // 2
        block, is_white = self._white(index, row, column), True
        for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            at = 2 * row + down, 2 * column + right
            if at[0] < before.shard_rows and at[1] < before.shard_columns:
                parent = self._finish(index - 1, *at, want=True)
                if parent is not None:
                    paste(block, halve(parent), right * half, down * half)
                    is_white = False
        if is_white:
            return None
        t = self._plans[index].spec.chunk_px
        return self._encode_block(
            index, row, column, lambda top, left: block[top : top + t, left : left + t], want=True
        )

    def _encode_block(
        self, index: int, row: int, column: int, part: Callable[[int, int], Pixels], *, want: bool
    ) -> Pixels | None:
        """Encode a shard's chunks in threads and write it."""
        plan = self._plans[index]
        n, t = plan.spec.shard_chunks, plan.spec.chunk_px
        height, width = self._shape(index, row, column)
        chunks: list[Stream] = [()] * (n * n)
        block = self._white(index, row, column) if want else None

        def encode(chunk_row: int, chunk_column: int) -> None:
            top, left = chunk_row * t, chunk_column * t
            pixels = part(top, left)
            chunks[chunk_row * n + chunk_column] = encoded_chunk(pixels, t, plan.about.quality)
            if block is not None:
                paste(block, pixels, left, top)

        parallel_for(encode, ((r, c) for r in range(-(-height // t)) for c in range(-(-width // t))), CORES)
        self._waiting.append(self._writer.submit(self._write, index, row, column, chunks))
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft().result()
        return block if any(chunks) else None

    def _stored(self, index: int, row: int, column: int) -> Pixels:
        spec = self._plans[index].spec
        shard_px = spec.shard_chunks * spec.chunk_px
        height, width = self._shape(index, row, column)
        reader = ArrayReader(self._dir / self._plans[index].about.path, spec)
        return reader.read_region(Box(column * shard_px, row * shard_px, width, height), threads=CORES)

    def _shape(self, index: int, row: int, column: int) -> tuple[int, int]:
        """Height and width of a shard's part of the level."""
        spec = self._plans[index].spec
        shard_px = spec.shard_chunks * spec.chunk_px
        return min(shard_px, spec.height_px - row * shard_px), min(shard_px, spec.width_px - column * shard_px)

    def _white(self, index: int, row: int, column: int) -> Pixels:
        return np.full((*self._shape(index, row, column), 3), FILL_VALUE, np.uint8)

    def _write(self, index: int, row: int, column: int, chunks: Iterable[Stream]) -> None:
        path = self._path(index, row, column)
        if self._plans[index].is_built:
            # The names of those it was built from must outlive a power cut if its own does.
            for before in {self._path(index - 1, at, 0).parent for at in (2 * row, 2 * row + 1)}:
                if before.is_dir():
                    fsync_dir(before)
        written = write_shard(path, chunks)
        if written is not None:
            self.sums[str(path.relative_to(self._dir))] = written

    def all_sums(self) -> dict[str, FileChecksum]:
        """Length and checksum of every shard, also of those that an earlier run wrote; by path below the image."""
        found = {}
        for plan in self._plans:
            for path in sorted((self._dir / plan.about.path / "c").rglob("*")):
                if path.is_file():
                    name = str(path.relative_to(self._dir))
                    found[name] = self.sums.get(name) or sum_file(path)
        return found


def _shards(spec: ArraySpec) -> Iterator[tuple[int, int]]:
    return ((row, column) for row in range(spec.shard_rows) for column in range(spec.shard_columns))


def _copied(plan: LevelPlan, shard_row: int, shard_column: int) -> Iterator[Stream]:
    """A shard's chunks in C order, read a row of tiles at a time; () outside the grid."""
    assert plan.encoded is not None
    n, spec = plan.spec.shard_chunks, plan.spec
    columns = range(shard_column * n, min(spec.columns, shard_column * n + n))
    rows = range(shard_row * n, min(spec.rows, shard_row * n + n))
    beside: list[Stream] = [()] * (n - len(columns))
    for row in rows:
        yield from plan.encoded.streams(row, columns)
        yield from beside
    yield from [()] * (n * (n - len(rows)))


def halve(pixels: Pixels) -> Pixels:
    """Means of 2 × 2 pixels; at an odd edge the last ones average what there is."""
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    size_wh = pixels.shape[1] // 2, pixels.shape[0] // 2
    return np.asarray(cv2.resize(pixels, size_wh, interpolation=cv2.INTER_AREA), np.uint8)


def encoded_chunk(pixels: Pixels, chunk_px: int, quality: int | None) -> Stream:
    """A chunk as a stream: zstd, or JPEG where a quality is asked for; () where everything is white."""
    if pixels[0, 0, 0] == FILL_VALUE and (pixels == FILL_VALUE).all():
        return ()
    if pixels.shape[:2] != (chunk_px, chunk_px):
        beyond = ((0, chunk_px - pixels.shape[0]), (0, chunk_px - pixels.shape[1]), (0, 0))
        # JPEG would smear white padding into the last pixels.
        pixels = np.pad(pixels, beyond, mode="edge") if quality else np.pad(pixels, beyond, constant_values=FILL_VALUE)
    return (encode_jpeg(pixels, quality=quality) if quality else encode_zstd(pixels),)
