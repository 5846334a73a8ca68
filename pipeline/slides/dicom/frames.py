"""Byte ranges of the frames in a DICOM file (PS3.5, A.4: encapsulated pixel data), and reading them by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.dicom_items import ITEM_HEADER_BYTES, fragments_joined, item_length
from pipeline.codecs.stream_header import StreamError
from pipeline.slides.common.reading import read_at
from pipeline.slides.dicom.headers.attributes import value
from pipeline.slides.dicom.headers.header import Header
from training.foundation.errors import UnreadableError

_MAX_FRAGMENTS = 2**16
_MAX_READ_BYTES = 32 * 2**20
_SAMPLED_ITEMS = 64
"""Entries of an offset table that are verified when a file is opened; each is checked when its frame is read."""


class FrameError(ValueError):
    """A frame's bytes are not where the file says."""


@dataclass(frozen=True)
class FrameTable:
    """Byte ranges of the frames of one file, int64 each; those of encapsulated frames include the item headers."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    in_items: bool
    has_false_offsets: bool = False
    """Whether the file has a wrong offset table. OpenSlide 4.0.1 trusts it, and crashes."""

    def __len__(self) -> int:
        return len(self.starts)

    def byte_counts(self) -> NDArray[np.int64]:
        """Bytes of each frame in the file; 0 for a frame left empty."""
        return np.asarray(self.ends - self.starts - (ITEM_HEADER_BYTES if self.in_items else 0))


def find_frames(header: Header, descriptor: int, num_frames: int, frame_bytes: int) -> FrameTable:
    """Locate every frame of a file.

    Args:
        descriptor: the open file; read by position.
        frame_bytes: raw bytes of a decoded frame, which is also the size of an uncompressed one.

    Raises:
        UnreadableError: the file is cut short, or has another number of frames than it claims.
    """
    if header.transfer_syntax.is_encapsulated:
        if header.pixel_bytes is not None:
            raise _damaged(header, "its compressed pixel data are not encapsulated")
        return _Items(header, descriptor, num_frames).table()
    needed = num_frames * frame_bytes
    if header.pixel_bytes is None or not needed <= header.pixel_bytes <= needed + 1:
        raise _damaged(header, f"{num_frames} frames need {needed} bytes, but its pixel data have {header.pixel_bytes}")
    if header.pixels_at + needed > header.file_bytes:
        raise _damaged(
            header, f"its pixels end at byte {header.pixels_at + needed}, but the file ends at {header.file_bytes}"
        )
    starts = header.pixels_at + frame_bytes * np.arange(num_frames, dtype=np.int64)
    return FrameTable(starts, starts + frame_bytes, in_items=False)


class FrameSource:
    """Frames of one level, across all its files. Thread-safe: it reads by position."""

    def __init__(self, tables: Sequence[FrameTable], descriptors: Sequence[int], names: Sequence[str]) -> None:
        self._descriptors, self._names = descriptors, names
        self._starts = np.concatenate([table.starts for table in tables])
        self._ends = np.concatenate([table.ends for table in tables])
        self._part = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        self.in_items = tables[0].in_items
        self.has_false_offsets = any(table.has_false_offsets for table in tables)
        self.byte_counts = np.concatenate([table.byte_counts() for table in tables])
        """Bytes of each frame in the file, int64; 0 for a frame left empty."""

    def read(self, frames: Sequence[int]) -> list[memoryview | None]:
        """All bytes between start and end of each frame, for `payload`; None for a number below 0.

        Frames that are adjacent in the file are read at once. Raises UnreadableError if the disk fails.
        """
        blocks: list[memoryview | None] = [None] * len(frames)
        existing = [i for i, frame in enumerate(frames) if frame >= 0]
        numbers = np.array([frames[i] for i in existing], dtype=np.int64)
        starts, ends = self._starts[numbers].tolist(), self._ends[numbers].tolist()
        parts = self._part[numbers].tolist()
        for first, last in _runs(starts, ends, parts):
            part, count = parts[first], ends[last] - starts[first]
            data = memoryview(read_at(self._descriptors[part], count, starts[first], self._names[part]))
            for i in range(first, last + 1):
                blocks[existing[i]] = data[starts[i] - starts[first] : ends[i] - starts[first]]
        return blocks

    def places(self, frames: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Index of the file, first byte and number of bytes of frames, with their items' headers; 0 bytes for none.

        Args:
            frames: numbers of frames, of any shape; below 0 for none.
        """
        is_there = (frames >= 0) & (self.byte_counts[frames] > 0)
        counts = np.where(is_there, self._ends[frames] - self._starts[frames], 0)
        return self._part[frames], self._starts[frames], counts

    def payload(self, data: memoryview) -> memoryview:
        """A frame's own bytes, from all bytes between its start and its end.

        Raises:
            FrameError: its items are incomplete.
        """
        if not self.in_items:
            return data
        try:
            return fragments_joined(data)
        except StreamError as error:
            raise FrameError(str(error)) from error


def _runs(starts: list[int], ends: list[int], parts: list[int]) -> Iterator[tuple[int, int]]:
    """First and last index of each run of adjacent ranges in the same file."""
    first = 0
    for i in range(len(starts)):
        follows = i + 1 < len(starts) and starts[i + 1] == ends[i] and parts[i + 1] == parts[i]
        if not follows or ends[i + 1] - starts[first] > _MAX_READ_BYTES:
            yield first, i
            first = i + 1


class _Items:
    """The items of encapsulated pixel data: the basic offset table, then fragments."""

    def __init__(self, header: Header, descriptor: int, num_frames: int) -> None:
        self._header, self._descriptor, self._num_frames = header, descriptor, num_frames
        table_bytes = self._length_at(header.pixels_at)
        if table_bytes is None:
            raise _damaged(header, "its pixel data do not begin with an offset table")
        self._table_at = header.pixels_at + ITEM_HEADER_BYTES
        self._table_bytes = table_bytes
        self._first = self._table_at + table_bytes
        """Start of the first fragment's item; offsets count from here."""

    def table(self) -> FrameTable:
        """Byte ranges by the offset table if there is a valid one, else by walking from item to item."""
        offsets = self._listed_offsets()
        if offsets is not None:
            frames = self._from_offsets(offsets)
            if frames is not None:
                return frames
        is_false = self._table_bytes > 0 or value(self._header.dataset, "ExtendedOffsetTable") is not None
        return replace(self._walk(), has_false_offsets=is_false)

    def _listed_offsets(self) -> NDArray[np.int64] | None:
        """Offsets of the frames from the extended table (64 bit), else from the basic one (32 bit), if complete."""
        extended = value(self._header.dataset, "ExtendedOffsetTable")
        if isinstance(extended, bytes) and len(extended) == 8 * self._num_frames:
            return np.frombuffer(extended, "<u8").astype(np.int64)
        if self._table_bytes == 4 * self._num_frames:
            raw = read_at(self._descriptor, self._table_bytes, self._table_at, self._header.path.name)
            if len(raw) == self._table_bytes:
                return np.frombuffer(raw, "<u4").astype(np.int64)
        return None

    def _from_offsets(self, offsets: NDArray[np.int64]) -> FrameTable | None:
        if offsets[0] != 0 or (np.diff(offsets) < ITEM_HEADER_BYTES).any():
            return None
        starts = self._first + offsets
        last_length = self._length_at(int(starts[-1]))
        sampled = np.linspace(0, len(starts) - 1, min(_SAMPLED_ITEMS, len(starts))).astype(int)
        if last_length is None or any(self._length_at(int(start)) is None for start in starts[sampled]):
            return None
        last_end = self._end_of_last(int(starts[-1]))
        return FrameTable(starts, np.append(starts[1:], last_end), in_items=True)

    def _end_of_last(self, start: int) -> int:
        """Position after the last fragment of the last frame."""
        end = start
        for _ in range(_MAX_FRAGMENTS):
            length = self._length_at(end)
            if length is None:
                break
            end += ITEM_HEADER_BYTES + length
            self._check_inside(end)
        return end

    def _walk(self) -> FrameTable:
        """Read every item's header: without a table, one fragment is one frame (or all are the only frame)."""
        limit = self._num_frames if self._num_frames > 1 else _MAX_FRAGMENTS
        bounds = [self._first]
        while (length := self._length_at(bounds[-1])) is not None:
            if len(bounds) > limit:
                raise _damaged(
                    self._header, f"it has more fragments than its {self._num_frames} frames, and no offset table"
                )
            bounds.append(bounds[-1] + ITEM_HEADER_BYTES + length)
            self._check_inside(bounds[-1])
        if self._num_frames == 1 and len(bounds) > 1:
            bounds = [bounds[0], bounds[-1]]
        if len(bounds) - 1 != self._num_frames:
            raise _damaged(self._header, f"it claims {self._num_frames} frames but holds {len(bounds) - 1}")
        ranges = np.asarray(bounds, dtype=np.int64)
        return FrameTable(ranges[:-1], ranges[1:], in_items=True)

    def _length_at(self, at: int) -> int | None:
        """Length of the item whose header is at a byte; None if there is none."""
        if not 0 <= at <= self._header.file_bytes:
            return None
        return item_length(read_at(self._descriptor, ITEM_HEADER_BYTES, at, self._header.path.name))

    def _check_inside(self, end: int) -> None:
        if end > self._header.file_bytes:
            raise _damaged(self._header, f"a frame ends at byte {end}, but the file ends at {self._header.file_bytes}")


def _damaged(header: Header, why: str) -> UnreadableError:
    return UnreadableError(f"{header.path.name}: {why}. The file is damaged or cut short; copy it again.")
