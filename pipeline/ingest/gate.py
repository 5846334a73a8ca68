"""The gate of pass-through: sampled tiles, decoded as a reader will decode them, equal the source's own decode."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.ingest.left_out import APERIO, drawn_by_openslide
from pipeline.slides.openslide.reader import VendorSlide
from pipeline.slides.openslide.reference_decoder import ReferenceDecoder
from pipeline.slides.slide import EncodedLevel, Slide, one_stream
from pipeline.store.chunks import decode_chunk
from pipeline.store.metadata import Gate


def _own_decoder(slide: Slide) -> str:
    """What decodes a slide that OpenSlide does not read."""
    if slide.info.format == "dicom":
        return "wsidicom"
    return f"tifffile {tifffile.__version__}" if slide.info.format.startswith("tiff:") else slide.info.format


class PassThroughGate:
    """Compares tiles with OpenSlide where it sees the same levels and can place them exactly, else with tifffile."""

    def __init__(self, slide: Slide, num_tiles: int) -> None:
        self._slide = slide
        self._opened = ExitStack()
        self._drawn: dict[int, NDArray[np.bool_]] = {}
        self._num_tiles = num_tiles
        sizes_wh = [(level.width_px, level.height_px) for level in slide.info.levels]
        path = slide.openslide_file
        self._second = ReferenceDecoder.for_level_sizes(path, sizes_wh) if path else None
        self.against = self._second.name if self._second else _own_decoder(slide)

    def __enter__(self) -> PassThroughGate:
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.close()
        if self._second:
            self._second.close()

    def decoder_after(self, verdict: Gate) -> Slide:
        """The reader whose pixels are right for a level that did not pass.

        Where OpenSlide disagrees with the tile's own markers, the file contradicts itself; OpenSlide's reading of it
        is what people see in every viewer.
        """
        path = self._slide.openslide_file
        if path is None or self._second is None or verdict.tiles == 0 or verdict.against != self._second.name:
            return self._slide
        return self._opened.enter_context(VendorSlide(path, every_level=True))

    def check(self, level: int, encoded: EncodedLevel, *, without: Collection[tuple[int, int]] = ()) -> Gate:
        """Compare sampled tiles of a level.

        Args:
            without: (row, column) of tiles that are not the source's.

        Raises:
            CorruptTileError: no decoder can read a sampled tile.
        """
        sample = [at for at in sample_tiles(encoded, self._num_tiles) if at not in without]
        references: set[str] = set()
        for row, column in sample:
            reason, reference = self._difference(level, encoded, row, column)
            if reason:
                return Gate(tiles=len(sample), against=reference, equal=False, reason=reason)
            references.add(reference)
        return Gate(tiles=len(sample), against=", ".join(sorted(references)), equal=True)

    def _difference(self, level: int, encoded: EncodedLevel, row: int, column: int) -> tuple[str | None, str]:
        """How the tile differs, None if it does not; and who was asked."""
        stream = one_stream(encoded, row, column)
        if stream is None:
            return None, self.against
        try:
            # First: OpenSlide crashes on some damaged frames of DICOM that this decoder refuses.
            decoded = decode_chunk(encoded.codec, stream, encoded.tile_px)
        except DecodeError as error:
            raise CorruptTileError(
                f"the tile in row {row}, column {column} of level {level} cannot be decoded ({error}). "
                "The file is damaged; copy or scan it again."
            ) from error
        expected, reference = self._expected(level, encoded, row, column)
        found = decoded[: expected.shape[0], : expected.shape[1]]
        if np.array_equal(found, expected):
            return None, reference
        worst = int(np.abs(found.astype(int) - expected).max())
        return f"tile in row {row}, column {column} differs from {reference} by up to {worst}", reference

    def _expected(self, level: int, encoded: EncodedLevel, row: int, column: int) -> tuple[Pixels, str]:
        t = encoded.tile_px
        size = self._slide.info.levels[level]
        box = Box(column * t, row * t, t, t).within(size.width_px, size.height_px)
        pixels = self._second.read(level, box) if self._second and not self._is_drawn(level, row, column) else None
        if pixels is None or self._second is None:
            return self._slide.read_region(level, box), _own_decoder(self._slide)
        return pixels, self._second.name

    def _is_drawn(self, level: int, row: int, column: int) -> bool:
        """Whether OpenSlide shows something else than the tile's own bytes (`left_out.py`)."""
        if self._slide.info.format != APERIO:
            return False
        if level not in self._drawn:
            self._drawn[level] = drawn_by_openslide(self._slide, level)
        return bool(self._drawn[level][row, column])


def sample_tiles(encoded: EncodedLevel, num_tiles: int) -> Iterator[tuple[int, int]]:
    """Corners, middles of the edges, extremes of byte count, and random ones (the same every time)."""
    rows, columns = encoded.rows, encoded.columns
    last_row, last_column = rows - 1, columns - 1
    counts = encoded.byte_counts()
    filled = np.where(counts > 0, counts, counts.max())
    chosen = {
        (0, 0), (0, last_column), (last_row, 0), (last_row, last_column),
        (last_row, columns // 2), (rows // 2, last_column),
        divmod(int(filled.argmin()), columns),
        divmod(int(counts.argmax()), columns),
    }  # fmt: skip
    random = np.random.default_rng(0)
    for index in random.permutation(rows * columns):
        if len(chosen) >= num_tiles:
            break
        chosen.add(divmod(int(index), columns))
    yield from sorted(chosen)
