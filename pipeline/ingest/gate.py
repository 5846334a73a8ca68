"""The gate of pass-through: sampled tiles, decoded as readers will decode them, must equal the source's own pixels."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import tifffile
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.errors import CorruptTileError
from pipeline.ingest.cut_gate import LIBJPEG, CutTile, border_rule
from pipeline.ingest.damage.left_out import APERIO, drawn_by_openslide
from pipeline.slides.common.slide import EncodedLevel, Slide, one_stream
from pipeline.slides.openslide.reference_decoder import ReferenceDecoder
from pipeline.store.format.chunks import decode_chunk
from pipeline.store.format.metadata import Gate


def _own_decoder(slide: Slide) -> str:
    """Name of the decoder of a slide that OpenSlide does not read."""
    if slide.info.format == "dicom":
        return "wsidicom"
    return f"tifffile {tifffile.__version__}" if slide.info.format.startswith("tiff:") else slide.info.format


@dataclass(frozen=True)
class _Comparison:
    """One tile beside a second decoder's pixels."""

    reference: str
    """The decoder that was trusted."""
    reason: str | None = None
    """The tile's difference from it; None if it is equal."""
    unlike_openslide: int = 0
    """Largest difference from what OpenSlide shows, where that was not trusted."""


class PassThroughGate:
    """Compares tiles with OpenSlide if it sees the same levels and can place them exactly, else with the reader."""

    def __init__(self, slide: Slide, num_tiles: int) -> None:
        self._slide = slide
        self._drawn: dict[int, NDArray[np.bool_]] = {}
        self._num_tiles = num_tiles
        sizes_wh = [(level.width_px, level.height_px) for level in slide.info.levels]
        path = slide.openslide_file
        self._second = ReferenceDecoder.for_level_sizes(path, sizes_wh) if path else None
        self.against = self._second.name if self._second else _own_decoder(slide)

    def __enter__(self) -> PassThroughGate:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._second:
            self._second.close()

    def check(self, level: int, encoded: EncodedLevel, *, without: Collection[tuple[int, int]] = ()) -> Gate:
        """Compare sampled tiles of a level. Differences in what OpenSlide shows are added to the slide's warnings.

        Args:
            without: (row, column) of tiles that are not the source's.

        Raises:
            CorruptTileError: no decoder can read a sampled tile.
        """
        sample = [at for at in sample_tiles(encoded, self._num_tiles) if at not in without]
        references: set[str] = set()
        unlike_openslide = 0
        for row, column in sample:
            compared = self._compare(level, encoded, row, column)
            unlike_openslide = max(unlike_openslide, compared.unlike_openslide)
            if compared.reason:
                return Gate(tiles=len(sample), against=compared.reference, equal=False, reason=compared.reason)
            references.add(compared.reference)
        if unlike_openslide:
            size = self._slide.info.levels[level]
            self._slide.info.warnings.add(
                f"OpenSlide, and programs that read with it, show other colours, by up to {unlike_openslide} of 255",
                (size.width_px, size.height_px),
            )
        rule = None if encoded.cut is None else border_rule(encoded.cut)
        return Gate(tiles=len(sample), against=", ".join(sorted(references)), equal=True, reason=rule)

    def _compare(self, level: int, encoded: EncodedLevel, row: int, column: int) -> _Comparison:
        """Compare a tile with OpenSlide; if that cannot read it, or shows something else, with the file's own reader.

        OpenSlide follows the file's tags where they contradict a tile's markers: its image can prove a tile right, but
        never wrong.
        """
        stream = one_stream(encoded, row, column)
        if stream is None:
            return _Comparison(self.against)
        try:
            # First: OpenSlide crashes on some damaged frames of DICOM that this decoder refuses.
            decoded = decode_chunk(encoded.codec, stream, encoded.tile_px)
        except DecodeError as error:
            raise CorruptTileError(
                f"the tile in row {row}, column {column} of level {level} cannot be decoded ({error}). "
                "The file is damaged; copy or scan it again."
            ) from error
        size = self._slide.info.levels[level]
        box = Box(column * encoded.tile_px, row * encoded.tile_px, encoded.tile_px, encoded.tile_px)
        box = box.within(size.width_px, size.height_px)
        pixels = decoded[: box.height_px, : box.width_px]
        shown = self._second.read(level, box) if self._second and not self._is_drawn(level, row, column) else None
        if encoded.cut is not None:
            level_wh_px = size.width_px, size.height_px
            unlike = CutTile(encoded.cut, row, column, box, level_wh_px, stream, pixels).unlike_source(shown)
            reason = f"tile in row {row}, column {column}: {unlike}" if unlike else None
            return _Comparison(LIBJPEG if shown is None else f"{self.against}, {LIBJPEG}", reason)
        unlike_openslide = 0 if shown is None else _largest_difference(pixels, shown)
        if self._second and shown is not None and not unlike_openslide:
            return _Comparison(self._second.name)
        reference = _own_decoder(self._slide)
        worst = _largest_difference(pixels, self._slide.read_region(level, box))
        reason = f"tile in row {row}, column {column} differs from {reference} by up to {worst}" if worst else None
        return _Comparison(reference, reason, unlike_openslide)

    def _is_drawn(self, level: int, row: int, column: int) -> bool:
        """Whether OpenSlide shows something other than the tile's own bytes (`left_out.py`)."""
        if self._slide.info.format != APERIO:
            return False
        if level not in self._drawn:
            self._drawn[level] = drawn_by_openslide(self._slide, level)
        return bool(self._drawn[level][row, column])


def _largest_difference(pixels: Pixels, expected: Pixels) -> int:
    return 0 if np.array_equal(pixels, expected) else int(np.abs(pixels.astype(int) - expected).max())


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
