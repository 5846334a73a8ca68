"""A slide as DICOM: stored JPEG and JPEG 2000 tiles become frames byte for byte, other levels lossless JPEG 2000."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.box import Box
from pipeline.codecs.images import encode_jpeg_2000
from pipeline.export.dicom.frame_kind import JPEG_METHOD, LOSSLESS_JPEG_2000, FrameKind, FrameKinds, OtherKindError
from pipeline.export.dicom.frames import write_file
from pipeline.export.dicom.slide_attributes import LevelImage, Loss, level_dataset
from pipeline.store.format.inside import INGEST_AGAIN
from pipeline.store.reading.reader import LevelArray, StoreReader
from pipeline.store.reading.threads import CORES
from training.foundation.errors import DecompressionBombError
from training.foundation.progress import Advance

_ENCODED_AT_ONCE = 4 * CORES
_SHARDS_AT_ONCE = 2
"""Read together: their chunks stay in the processor's cache until they are written."""
MAX_FRAMES = 2**24
"""Of a level: a side of a million pixels in tiles of 256 px. Their tables of positions take 256 MiB."""


@dataclass
class DicomExport:
    """Writes one file per level.

    Args:
        advance: counts rows of frames.
    """

    reader: StoreReader
    advance: Advance
    how: dict[str, str] = field(default_factory=dict)
    """Explanation of how each level was written."""

    def write(self, folder: Path) -> None:
        """Write all levels into an empty folder.

        Raises:
            CorruptTileError: a chunk of the store is damaged. UnreadableError: its colour profile is.
            DecompressionBombError: a level claims more than `MAX_FRAMES` tiles.
        """
        for level in self.reader.levels:
            if level.rows * level.columns > MAX_FRAMES:
                raise DecompressionBombError(
                    f"{level.array.path}: claims {level.rows} × {level.columns} tiles; at most {MAX_FRAMES} of a level "
                    f"are written as DICOM. {INGEST_AGAIN}"
                )
        self.advance.expect(sum(level.rows for level in self.reader.levels))
        last_loss = None
        for level in self.reader.levels:
            last_loss = self._write_level(level, folder / f"level-{level.level}.dcm", last_loss)

    def _write_level(self, level: LevelArray, path: Path, loss_before: Loss | None) -> Loss | None:
        """Write a level. Returns what it has lost, or the finer levels."""
        try:
            kinds = FrameKinds(level)
            loss = _loss(level, kinds.kind.lossy_method) or loss_before
            self._write_frames(level, path, kinds.kind, loss, self._stored(level, kinds))
            self.how[str(level.level)] = f"{kinds.name} tiles as stored"
        except OtherKindError as error:
            loss = _loss(level, JPEG_METHOD if level.codec == "imagecodecs_jpeg" else "") or loss_before
            self._write_frames(level, path, LOSSLESS_JPEG_2000, loss, self._encoded(level))
            self.how[str(level.level)] = f"lossless JPEG 2000, because it is {error}"
        return loss

    def _write_frames(
        self, level: LevelArray, path: Path, kind: FrameKind, loss: Loss | None, frames: Iterator[list[bytes]]
    ) -> None:
        spec = replace(level.array.spec, link=None)  # the same UIDs whether the store holds the tiles or points at them
        image = LevelImage(level.level, level.downsample, spec, kind, loss)
        with path.open("wb") as stream:
            write_file(stream, level_dataset(self.reader, image), frames)
            stream.flush()
            os.fsync(stream.fileno())

    def _stored(self, level: LevelArray, kinds: FrameKinds) -> Iterator[list[bytes]]:
        """The store's chunks, those of a few shards at a time; white ones where it has none, which viewers would show
        as black.
        """
        columns, at_once = range(level.columns), _SHARDS_AT_ONCE * level.array.spec.shard_chunks
        for rows, chunks_of in level.array.fetched(range(level.rows), columns):
            for row, first in itertools.product(rows, columns[::at_once]):
                chunks = chunks_of(row, columns[first : first + at_once])
                try:
                    for chunk in filter(None, chunks):
                        kinds.check(chunk)
                except OtherKindError:
                    self.advance.expect(row)  # these rows are written again
                    raise
                yield [chunk or kinds.white for chunk in chunks]
                if first + at_once >= level.columns:
                    self.advance(1)

    def _encoded(self, level: LevelArray) -> Iterator[list[bytes]]:
        t = level.chunk_px

        def encoded(at: tuple[int, int]) -> bytes:
            row, column = at
            return encode_jpeg_2000(level.array.read_region(Box(column * t, row * t, t, t)))

        with ThreadPoolExecutor(CORES) as pool:
            for row in range(level.rows):
                for first in range(0, level.columns, _ENCODED_AT_ONCE):
                    columns = range(first, min(first + _ENCODED_AT_ONCE, level.columns))
                    yield list(pool.map(encoded, ((row, column) for column in columns)))
                self.advance(1)


def _loss(level: LevelArray, method: str) -> Loss | None:
    """How and how much a level was compressed; None without loss, or if nothing is stored."""
    if not (method and (coded_bytes := level.array.coded_bytes())):
        return None
    return Loss(method, 3 * level.width_px * level.height_px / coded_bytes)
