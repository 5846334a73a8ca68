"""One level of a DICOM slide: its pixels, and its JPEG and JPEG 2000 frames unchanged."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from copy import copy
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels, Stream, StreamCodec
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.absent import AbsentTiles
from pipeline.slides.common.level_content import detailed_places, places_of_grid, shows_another_image
from pipeline.slides.common.limits import MAX_TILE_BYTES
from pipeline.slides.common.slide import NotCopied, paste
from pipeline.slides.common.slide_warnings import SlideWarnings
from pipeline.slides.common.tile_places import TilePlaces
from pipeline.slides.dicom.decoder import FrameDecoder
from pipeline.slides.dicom.frames import FrameError, FrameSource, find_frames
from pipeline.slides.dicom.headers.header import Header
from pipeline.slides.dicom.headers.matrix import (
    HIGH_THROUGHPUT_JPEG_2000,
    JPEG,
    JPEG_2000,
    NATIVE,
    num_frames,
    read_matrix,
)
from pipeline.slides.dicom.layout import position_frames
from pipeline.slides.dicom.streams import FrameStreams, why_not_a_stream
from pipeline.slides.dicom.validate import check_matrix
from pipeline.units import default_plane
from training.foundation.errors import UnreadableError

_LARGE_FRAME_BYTES = 4 * 2**20
"""Frames larger than this are whole images read in pieces: the last one decoded is kept."""


class DicomLevel:
    """One matrix of frames, in one file or the parts of a concatenation. An `EncodedLevel` where its frames allow.

    Of several focal planes it shows the default one.

    Coordinates are those of the total pixel matrix, whichever way the slide lay on the stage.

    Args:
        headers: of its files.
        files: of the whole slide.
        warnings: receives what the file states wrongly about its colours.
    """

    def __init__(self, headers: list[Header], files: Sequence[Path], warnings: SlideWarnings) -> None:
        self._name = headers[0].path.name
        self._file_indexes = np.array([files.index(header.path) for header in headers])
        file_bytes = sum(header.file_bytes for header in headers)
        self.header, self.matrix = headers[0], read_matrix(headers[0])
        check_matrix(headers[0], self.matrix, file_bytes)
        for header in headers[1:]:
            check_matrix(header, read_matrix(header), file_bytes)
            if read_matrix(header) != self.matrix:
                raise UnreadableError(
                    f"{header.path.name}: differs from {self._name}, another part of the same level. Copy both."
                )
        self._frames_um = position_frames(headers, self.matrix)
        self.heights_um = tuple(self._frames_um)
        """Of its focal planes, lowest first."""
        self._positions = self._frames_um[self.heights_um[default_plane(self.heights_um)]]
        self.columns, self.rows = self.matrix.columns, self.matrix.rows
        self.tile_px = self.matrix.tile_w_px
        self._streams = FrameStreams(self.matrix, warnings)
        self.codec: StreamCodec = self._streams.rule.codec
        self._decoder = FrameDecoder(self.matrix, self._streams)
        self._last_large = lru_cache(maxsize=1)(self._decode)
        self._large_lock = threading.Lock()
        with ExitStack() as on_error:
            self._source = self._open(headers, on_error)
            self.has_false_offsets = self._source.has_false_offsets
            self._check_frames()
            self._opened = on_error.pop_all()

    def _open(self, headers: list[Header], opened: ExitStack) -> FrameSource:
        tables, descriptors = [], []
        for header in headers:
            descriptor = os.open(header.path, os.O_RDONLY)
            opened.callback(os.close, descriptor)
            descriptors.append(descriptor)
            tables.append(find_frames(header, descriptor, num_frames(header), self.matrix.frame_bytes))
        return FrameSource(tables, descriptors, [header.path.name for header in headers])

    def _check_frames(self) -> None:
        """Refuse early a level whose frames could not be read."""
        largest = int(self._source.byte_counts.max())
        if largest > MAX_TILE_BYTES:
            raise UnreadableError(
                f"{self._name}: has a frame of {largest} bytes; at most {MAX_TILE_BYTES >> 20} MiB are read."
            )
        syntax = self.matrix.transfer_syntax
        if syntax in JPEG_2000 | HIGH_THROUGHPUT_JPEG_2000 and self.matrix.photometric != "RGB" and largest:
            try:
                self._stream_of(int(self._source.byte_counts.argmax()))
            except FrameError as error:
                raise NotBrightfieldRgbError(f"{self._name}: {error}. Convert it to JPEG 2000 of RGB.") from error

    def at_height(self, height_um: float) -> DicomLevel:
        """The level at one of its focal planes; its files belong to this one."""
        level = copy(self)
        level._positions = self._frames_um[height_um]
        return level

    def close(self) -> None:
        self._opened.close()

    cut = None

    # --- the scanner's own frames ----------------------------------------------------------------

    def why_not_encoded(self) -> NotCopied | None:
        """None if every frame can be stored as it is; else the reason."""
        return why_not_a_stream(self.matrix)

    def byte_counts(self) -> NDArray[np.int64]:
        return np.where(self._positions < 0, 0, self._source.byte_counts[self._positions])

    def places(self) -> TilePlaces:
        parts, starts, counts = self._source.places(self._positions)
        files = self._file_indexes[parts].astype(np.uint16)
        return TilePlaces(self._streams.rule, files, starts, counts, in_items=self._source.in_items)

    def streams(self, row: int, columns: range) -> list[Stream]:
        frames = self._positions[row, columns.start : columns.stop].tolist()
        streams: list[Stream] = []
        for data, column in zip(self._source.read(frames), columns, strict=True):
            try:
                streams.append(() if data is None else self._streams.stream(self._source.payload(data)))
            except FrameError as error:
                raise self._corrupt(row, column, error) from error
        return streams

    def colours_as_said(self) -> bool:
        """Whether its frames hold the colours that the file's attribute states, judged by the largest frame."""
        largest = int(self._source.byte_counts.argmax())
        if self.matrix.transfer_syntax not in JPEG | JPEG_2000 or not self._source.byte_counts[largest]:
            return True
        (data,) = self._source.read([largest])
        assert data is not None  # only for a frame below 0
        try:
            return self._streams.colours_as_said(self._source.payload(data))
        except FrameError:
            return False

    def _stream_of(self, frame: int) -> Stream:
        (data,) = self._source.read([frame])
        assert data is not None  # only for a frame below 0
        return self._streams.stream(self._source.payload(data))

    def absent_tiles(self) -> AbsentTiles:
        """Tiles without a frame, which TILED_SPARSE defines as background, and those whose frame has no bytes."""
        blanks = frozenset({0} if self.matrix.transfer_syntax in NATIVE else ())
        size_wh_px = self.matrix.tile_w_px, self.matrix.tile_h_px
        return AbsentTiles(size_wh_px, self.byte_counts() == 0, self._positions < 0, blanks)

    # --- content ---------------------------------------------------------------------------------

    def is_another_image(self, finer: DicomLevel) -> bool:
        """Whether it shows something other than a finer level, and so is not a level of the same slide."""
        size_wh, finer_wh = self._size_wh_px, finer._size_wh_px
        scale_xy = size_wh[0] / finer_wh[0], size_wh[1] / finer_wh[1]
        places = [*self._detailed_places((1, 1)), *finer._detailed_places(scale_xy), *places_of_grid(*size_wh)]
        return bool(shows_another_image(self._stored, size_wh, finer._stored, finer_wh, places))

    @property
    def _size_wh_px(self) -> tuple[int, int]:
        return self.matrix.width_px, self.matrix.height_px

    def _detailed_places(self, scale_xy: tuple[float, float]) -> list[Box]:
        counts = self.byte_counts().ravel().astype(np.float64)
        tile_wh_px = self.matrix.tile_w_px, self.matrix.tile_h_px
        return detailed_places(counts, self.columns, tile_wh_px, self._size_wh_px, scale_xy)

    def _stored(self, box: Box) -> Pixels:
        """As `read_region`. Raises CorruptTileError: a frame is damaged, or absent, so that it shows nothing."""
        cells = box.within(*self._size_wh_px).cells((self.matrix.tile_w_px, self.matrix.tile_h_px))
        rows, columns = (slice(cell.start, cell.stop) for cell in cells)
        if (self.byte_counts()[rows, columns] == 0).any():
            raise CorruptTileError(f"{self._name}: a frame of the {self.matrix.width_px} px level is absent.")
        return self.read_region(box)

    # --- pixels ----------------------------------------------------------------------------------

    def read_region(self, box: Box) -> Pixels:
        """Pixels of the level, uint8 (box.height_px, box.width_px, 3); white outside and where there is no frame."""
        matrix = self.matrix
        region = np.full((box.height_px, box.width_px, 3), 255, np.uint8)
        columns = _touched(box.x_px, box.width_px, matrix.tile_w_px, self.columns)
        for row in _touched(box.y_px, box.height_px, matrix.tile_h_px, self.rows):
            for column in columns:
                tile = self._tile(row, column)
                if tile is not None:
                    paste(region, tile, column * matrix.tile_w_px - box.x_px, row * matrix.tile_h_px - box.y_px)
        return region

    def _tile(self, row: int, column: int) -> Pixels | None:
        frame = int(self._positions[row, column])
        if frame < 0:
            return None
        try:
            if self.matrix.frame_bytes < _LARGE_FRAME_BYTES:
                pixels = self._decode(frame)
            else:
                with self._large_lock:
                    pixels = self._last_large(frame)
        except FrameError as error:
            raise self._corrupt(row, column, error) from error
        if pixels is None:
            return None
        matrix = self.matrix
        return pixels[: matrix.height_px - row * matrix.tile_h_px, : matrix.width_px - column * matrix.tile_w_px]

    def _decode(self, frame: int) -> Pixels | None:
        (data,) = self._source.read([frame])
        assert data is not None  # only for a frame below 0
        return self._decoder.decode(self._source.payload(data))

    def _corrupt(self, row: int, column: int, why: object) -> CorruptTileError:
        return CorruptTileError(
            f"{self._name}: the tile in row {row}, column {column} of the {self.matrix.width_px}×"
            f"{self.matrix.height_px} px level cannot be decoded: {why}. The file is damaged; copy or scan it again."
        )


def _touched(start_px: int, size_px: int, tile_px: int, num_tiles: int) -> range:
    """Rows or columns of tiles that a span of pixels touches."""
    return range(max(0, start_px // tile_px), min(num_tiles, -(-(start_px + size_px) // tile_px)))
