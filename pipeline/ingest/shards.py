"""Writing levels shard by shard: tiles copied, pixels encoded, levels built while their parent is in memory.

A shard belongs to one worker, takes its name once it is complete and on disk, and is never touched again: after a
kill, the next run continues with the missing shards.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from pipeline.box import Box
from pipeline.codecs.images import encode_jpeg
from pipeline.codecs.types import Pixels, Stream
from pipeline.files import fsync_dir
from pipeline.ingest.link.pointers import Pointing
from pipeline.ingest.routes import LevelPlan
from pipeline.slides.common.slide import EncodedLevel, Slide, paste
from pipeline.store.format.chunks import decode_chunk, encode_zstd
from pipeline.store.format.layout import FILL_VALUE
from pipeline.store.format.metadata import write_json
from pipeline.store.format.shard import FileChecksum, chunks_in_order, sum_file, write_shard
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.threads import CORES, parallel_for
from training.foundation.progress import Advance

COPIERS = 2 * CORES
"""Copying waits for the disk about half the time."""
MAX_WAITING = 2
"""Encoded shards in memory that wait for the disk while the next is being made."""


@dataclass(frozen=True)
class Shard:
    """One shard of a level to be written, by its row and column among the level's shards."""

    level: int
    plan: LevelPlan
    row: int
    column: int

    @property
    def box(self) -> Box:
        """Area of the level that it covers, in the level's pixels."""
        spec = self.plan.spec
        side_px = spec.shard_chunks * spec.chunk_px
        return Box(self.column * side_px, self.row * side_px, side_px, side_px).within(spec.width_px, spec.height_px)

    @property
    def key(self) -> str:
        """Path of its file below the image."""
        return f"{self.plan.about.path}/{self.plan.spec.shard_key(self.row, self.column)}"

    def white(self) -> Pixels:
        """Its part of the level before anything is written there."""
        return np.full((self.box.height_px, self.box.width_px, 3), FILL_VALUE, np.uint8)

    def quarters(self, parent: LevelPlan) -> Iterator[tuple[int, int, Shard]]:
        """Row and column (0 or 1) and shard of the up to four shards of the level before that it is built from."""
        for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
            row, column = 2 * self.row + down, 2 * self.column + right
            if row < parent.spec.shard_rows and column < parent.spec.shard_columns:
                yield down, right, Shard(self.level - 1, parent, row, column)


def shards_of(level: int, plan: LevelPlan) -> Iterator[Shard]:
    """All shards of a level, row by row."""
    spec = plan.spec
    return (Shard(level, plan, row, column) for row in range(spec.shard_rows) for column in range(spec.shard_columns))


class LevelsWriter:
    """Writes the levels of one image, at one focal plane, below `image_dir`."""

    def __init__(
        self, image_dir: Path, plans: list[LevelPlan], advance: Advance, pointing: Pointing | None = None
    ) -> None:
        self._dir, self._plans, self._advance, self._pointing = image_dir, plans, advance, pointing
        self.sums: dict[str, FileChecksum] = {}
        """Length and checksum of the shards written by this run, by path below the image."""
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
        """Begin to copy a level's own tiles, if it has any; errors are in the futures."""
        plan = self._plans[index]
        if plan.encoded is None:
            return []
        return [pool.submit(self._copy_alone, shard) for shard in shards_of(index, plan)]

    def write_encoded(self, index: int) -> None:
        """Write a level that is decoded, or built along with everything that it is built from.

        Depth first, so that one shard per level is in memory.
        """
        try:
            for shard in shards_of(index, self._plans[index]):
                self._finish(shard, want=False)
            while self._waiting:
                self._waiting.popleft().result()
        finally:
            self._waiting.clear()

    def close(self) -> None:
        """Stop the writing thread; shards that are still waiting are not written."""
        self._writer.shutdown(cancel_futures=True)

    def _copy_alone(self, shard: Shard) -> None:
        self._finish(shard, want=False)

    def _finish(self, shard: Shard, *, want: bool) -> Pixels | None:
        """Make sure that a shard is on disk. Returns its pixels if wanted; None if all are white.

        If a shard is there, so are its parents: it was written after them.
        """
        plan = shard.plan
        if (self._dir / shard.key).exists():
            block = self._stored(shard) if want else None
        elif plan.encoded is not None:
            block = self._copy(shard, plan.encoded, want=want)
        elif plan.decoder is not None:
            block = self._encode_block(shard, _decoded_part(shard, plan.decoder), want=want)
        else:
            block = self._build(shard)
        self._advance(1)
        return block

    # --- pass-through ----------------------------------------------------------------------------

    def _copy(self, shard: Shard, encoded: EncodedLevel, *, want: bool) -> Pixels | None:
        keep = self._write if shard.plan.places is None else self._point
        if not want:
            keep(shard, _copied(shard, encoded))
            return None
        chunks = list(_copied(shard, encoded))
        keep(shard, chunks)
        if not any(chunks):
            return None
        spec, block = shard.plan.spec, shard.white()
        n, t = spec.shard_chunks, spec.chunk_px

        def place(at: int) -> None:
            if chunks[at]:
                paste(block, decode_chunk(spec.codec, b"".join(chunks[at]), t), at % n * t, at // n * t)

        parallel_for(place, ((at,) for at in range(n * n)), CORES)
        return block

    def _point(self, shard: Shard, chunks: Iterable[Stream]) -> None:
        spec, places = shard.plan.spec, shard.plan.places
        assert self._pointing is not None  # or no plan has places
        assert places is not None
        written = self._pointing.write_shard(
            self._dir / shard.key,
            shard.key,
            spec.cells_of_shard(shard.row, shard.column),
            places,
            spec.shard_chunks,
            chunks,
        )
        if written is not None:
            self.sums[shard.key] = written

    # --- decode and build ------------------------------------------------------------------------

    def _build(self, shard: Shard) -> Pixels | None:
        """Halve up to four shards of the level before."""
        parent_plan = self._plans[shard.level - 1]
        half_px = parent_plan.spec.shard_chunks * parent_plan.spec.chunk_px // 2
        block, is_white = shard.white(), True
        for down, right, quarter in shard.quarters(parent_plan):
            parent = self._finish(quarter, want=True)
            if parent is not None:
                paste(block, halve(parent), right * half_px, down * half_px)
                is_white = False
        if is_white:
            return None
        t = shard.plan.spec.chunk_px
        return self._encode_block(shard, lambda top, left: block[top : top + t, left : left + t], want=True)

    def _encode_block(self, shard: Shard, part: Callable[[int, int], Pixels], *, want: bool) -> Pixels | None:
        """Encode a shard's chunks in threads and write it."""
        plan, box = shard.plan, shard.box
        n, t = plan.spec.shard_chunks, plan.spec.chunk_px
        chunks: list[Stream] = [()] * (n * n)
        block = shard.white() if want else None

        def encode(chunk_row: int, chunk_column: int) -> None:
            top, left = chunk_row * t, chunk_column * t
            pixels = part(top, left)
            chunks[chunk_row * n + chunk_column] = encoded_chunk(pixels, t, plan.about.quality)
            if block is not None:
                paste(block, pixels, left, top)

        rows, columns = range(-(-box.height_px // t)), range(-(-box.width_px // t))
        parallel_for(encode, itertools.product(rows, columns), CORES)
        self._waiting.append(self._writer.submit(self._write, shard, chunks))
        while len(self._waiting) > MAX_WAITING:
            self._waiting.popleft().result()
        return block if any(chunks) else None

    def _stored(self, shard: Shard) -> Pixels:
        reader = ArrayReader(self._dir / shard.plan.about.path, shard.plan.spec)
        return reader.read_region(shard.box, threads=CORES)

    def _write(self, shard: Shard, chunks: Iterable[Stream]) -> None:
        if shard.plan.is_built:
            # The names of those it was built from must survive a power cut if its own does.
            parents = shard.quarters(self._plans[shard.level - 1])
            for folder in {(self._dir / quarter.key).parent for _, _, quarter in parents}:
                if folder.is_dir():
                    fsync_dir(folder)
        written = write_shard(self._dir / shard.key, chunks)
        if written is not None:
            self.sums[shard.key] = written


def sums_of_all(image_dir: Path, plans: list[LevelPlan], written: dict[str, FileChecksum]) -> dict[str, FileChecksum]:
    """Length and checksum of every shard of an image, including those that an earlier run wrote; by path below it.

    Args:
        written: those known from writing.
    """
    sums = {}
    for plan in plans:
        for path in sorted((image_dir / plan.about.path / "c").rglob("*")):
            if path.is_file():
                name = str(path.relative_to(image_dir))
                sums[name] = written.get(name) or sum_file(path)
    return sums


def _decoded_part(shard: Shard, decoder: Slide) -> Callable[[int, int], Pixels]:
    """Reader of a chunk by its corner in the shard."""
    box, t = shard.box, shard.plan.spec.chunk_px

    def read(top: int, left: int) -> Pixels:
        size_wh = min(t, box.width_px - left), min(t, box.height_px - top)
        return decoder.read_region(shard.level, Box(box.x_px + left, box.y_px + top, *size_wh))

    return read


def _copied(shard: Shard, encoded: EncodedLevel) -> Iterator[Stream]:
    """A shard's chunks in C order; () outside the grid."""
    spec = shard.plan.spec
    return chunks_in_order(spec.shard_chunks, *spec.cells_of_shard(shard.row, shard.column), encoded.streams)


def halve(pixels: Pixels) -> Pixels:
    """Means of 2 × 2 pixels; at an odd edge the last ones average what there is."""
    height, width = pixels.shape[:2]
    if height % 2 or width % 2:
        pixels = np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    size_wh = pixels.shape[1] // 2, pixels.shape[0] // 2
    return np.asarray(cv2.resize(pixels, size_wh, interpolation=cv2.INTER_AREA), np.uint8)


def encoded_chunk(pixels: Pixels, chunk_px: int, quality: int | None) -> Stream:
    """A chunk as a stream: zstd, or JPEG if a quality is given; () if everything is white."""
    if pixels[0, 0, 0] == FILL_VALUE and (pixels == FILL_VALUE).all():
        return ()
    if pixels.shape[:2] != (chunk_px, chunk_px):
        beyond = ((0, chunk_px - pixels.shape[0]), (0, chunk_px - pixels.shape[1]), (0, 0))
        # JPEG would smear white padding into the last pixels.
        pixels = np.pad(pixels, beyond, mode="edge") if quality else np.pad(pixels, beyond, constant_values=FILL_VALUE)
    return (encode_jpeg(pixels, quality=quality) if quality else encode_zstd(pixels),)
