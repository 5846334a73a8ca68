"""Finding damaged tiles: every tile of every level is decoded once, and the levels are compared with each other.

Before anything is written: a run after a kill finds the same again, and a mostly damaged slide is refused at once.
"""

from __future__ import annotations

import math
import threading

import cv2
import numpy as np

from pipeline.codecs.images import decode_jpeg_2000
from pipeline.codecs.strict import eighth_of_jpeg
from pipeline.codecs.types import DecodeError, Pixels, Stream
from pipeline.errors import CorruptTileError
from pipeline.ingest.damage.absent import Absent, LevelAbsent
from pipeline.ingest.damage.comparison import CELL_PX, LevelMeans, unlike_tiles
from pipeline.ingest.damage.found import Damage, LevelDamage, grid_px
from pipeline.ingest.damage.left_out import APERIO
from pipeline.ingest.damage.reduced import tile_box
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide
from pipeline.slides.common.tile_places import Position
from pipeline.store.reading.threads import CORES, parallel_for
from training.foundation.progress import Advance, no_bar


def scan_for_damage(slide: Slide, config: IngestConfig, absent: Absent, advance: Advance = no_bar) -> Damage:
    """Every damaged tile of a slide that can be detected.

    A tile is damaged if it cannot be read or decoded, if its JPEG data hold what no encoder writes (a warning from
    libjpeg), if it decodes to something other than the levels next to its own show (`comparison.py`), or if its data
    are lost (`absent.py`).

    Raises:
        UnreadableError: the disk fails, which is not damage to the file.
    """
    scans = [_LevelScan(slide, level, config, absent[level]) for level in range(len(slide.info.levels))]
    work = [(level, row) for level, scan in enumerate(scans) for row in range(scan.rows)]
    advance.expect(len(work))

    def look(level: int, row: int) -> None:
        scans[level].look_at_row(row)
        advance(1)

    parallel_for(look, work, CORES)
    unlike = unlike_tiles([scan.means() for scan in scans], [size.downsample for size in slide.info.levels])
    return tuple(
        LevelDamage(scan.tile_px, scan.num_tiles, frozenset(scan.undecodable), frozenset(positions), found.damaged)
        for scan, positions, found in zip(scans, unlike, absent, strict=True)
    )


class _LevelScan:
    """Scans one level, and keeps the means of its cells."""

    def __init__(self, slide: Slide, level: int, config: IngestConfig, absent: LevelAbsent) -> None:
        self._slide, self._level, self._absent = slide, level, absent
        self._size = slide.info.levels[level]
        encoded = slide.encoded_level(level)
        self._encoded: EncodedLevel | None = None if isinstance(encoded, NotCopied) else encoded
        self.tile_px = grid_px(slide, level, config.decode_chunk_px)
        self.rows = -(-self._size.height_px // self.tile_px)
        self._columns = -(-self._size.width_px // self.tile_px)
        self._cell_px = self._usable_cell_px()
        self.undecodable: set[Position] = set()
        self._is_known = np.zeros((self.rows, self._columns), bool)
        self._cells = self.tile_px // self._cell_px if self._cell_px else 0
        self._means = np.zeros((self.rows * self._cells, self._columns * self._cells, 3), np.uint8)
        self._num_left_out = 0
        self._lock = threading.Lock()

    def _usable_cell_px(self) -> int:
        """Side of the kept cells: at level 0 as coarse as the next level needs; 0 if tiles do not divide."""
        if self.tile_px % CELL_PX or len(self._slide.info.levels) == 1:
            return 0
        ratio = round(self._slide.info.levels[1].downsample) if self._level == 0 else 1
        return math.gcd(self.tile_px, CELL_PX * ratio)

    @property
    def num_tiles(self) -> int:
        return self.rows * self._columns - self._num_left_out

    def means(self) -> LevelMeans:
        """Mean colours found in the level."""
        is_known = self._is_known
        if self._level and self._slide.info.format == APERIO:
            # Known to be scrambled by the scanner at the right and bottom: `edges.py` checks them.
            is_known = is_known.copy()
            is_known[-1], is_known[:, -1] = False, False
        size_wh_px = self._size.width_px, self._size.height_px
        return LevelMeans(self.tile_px, self._cell_px, size_wh_px, self._means, is_known)

    def look_at_row(self, row: int) -> None:
        """Decode a row of tiles."""
        if self._encoded is None:
            for column in range(self._columns):
                self._look_at_pixels(row, column)
            return
        for column, stream in enumerate(_streams(self._encoded, row, range(self._columns))):
            if (row, column) in self._absent.damaged:
                continue
            try:
                if stream is None:
                    raise DecodeError("cannot be read")
                small = self._decoded(b"".join(stream)) if stream else None
            except DecodeError:
                self._is_damaged(row, column)
            else:
                self._keep(row, column, small)

    def _look_at_pixels(self, row: int, column: int) -> None:
        if (row, column) in self._absent.damaged:
            return
        if (row, column) in self._absent.left_out or (row, column) in self._absent.by_format:
            self._keep(row, column, None)
            return
        try:
            region = self._slide.read_region(
                self._level, tile_box(self._slide.info, self._level, self.tile_px, row, column)
            )
        except CorruptTileError:
            self._is_damaged(row, column)
            return
        beyond = ((0, self.tile_px - region.shape[0]), (0, self.tile_px - region.shape[1]), (0, 0))
        self._keep(row, column, np.pad(region, beyond, mode="edge") if self._cell_px else region)

    def _decoded(self, stream: bytes) -> Pixels:
        """A tile, at any size that its cells' means can be taken from. Raises DecodeError."""
        assert self._encoded is not None
        if self._encoded.codec == "imagecodecs_jpeg":
            return eighth_of_jpeg(stream, self.tile_px)
        return decode_jpeg_2000(stream, out=np.empty((self.tile_px, self.tile_px, 3), np.uint8))

    def _is_damaged(self, row: int, column: int) -> None:
        with self._lock:
            self.undecodable.add((row, column))

    def _keep(self, row: int, column: int, tile: Pixels | None) -> None:
        """Keep a tile's means; None: the scanner left it out."""
        if tile is None:
            with self._lock:
                self._num_left_out += 1
        elif self._cells:
            n = self._cells
            means = cv2.resize(tile, (n, n), interpolation=cv2.INTER_AREA)
            self._means[row * n : row * n + n, column * n : column * n + n] = means
            self._is_known[row, column] = True


def _streams(encoded: EncodedLevel, row: int, columns: range) -> list[Stream | None]:
    """A row's streams; None for tiles that cannot be read or whose markers are wrong, () for those left out."""
    try:
        return [*encoded.streams(row, columns)]
    except CorruptTileError:
        if len(columns) == 1:
            return [None]
    half = columns.start + len(columns) // 2
    return _streams(encoded, row, range(columns.start, half)) + _streams(encoded, row, range(half, columns.stop))
