"""What the other levels show where the data of one are absent: the glass, or something that was lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.codecs.types import Pixels
from pipeline.errors import CorruptTileError
from pipeline.ingest.damage.comparison import CELL_PX, MAX_DIFFERENCE
from pipeline.ingest.damage.gaps import Gaps
from pipeline.ingest.damage.reduced import tile_box
from pipeline.slides.common.level_content import cell_means
from pipeline.slides.common.slide import Slide
from pipeline.slides.common.tile_places import Position

_MARGIN_PX, _MARGIN_SHARE = 8, 8
"""Left out on each side, of the witness's pixels and as a part of its width: JPEG smears the tissue beside it."""
_MAX_OFF = 1 / 16
"""Share of an absent cell that may differ: dust, or the fringe of the tissue."""
_MIN_SEEN = 1 / 2
"""Share of an absent cell that other levels must show to vouch for it."""
_WHITE = 250
_MIN_GLASS, _MAX_TINT, _MAX_DETAIL = 160, 24, 5
"""Of 255: glass is at least so light, at most so coloured, and its cells deviate at most so much."""
_CACHE_BYTES = 32 * 2**20


class Verdict(Enum):
    """What the other levels say about an absent cell."""

    AGREED = "they show what is read there"
    LOST = "they show something else"
    UNKNOWN = "they have no data there either"


class Witnesses:
    """All levels of a slide, as witnesses of one another. Thread-safe.

    Args:
        gaps: of each level.
    """

    def __init__(self, slide: Slide, gaps: Sequence[Gaps]) -> None:
        self._slide, self._gaps = slide, gaps
        cell_bytes = 3 * max(one.cell_px for one in gaps) ** 2
        self._cell = lru_cache(maxsize=max(2, _CACHE_BYTES // cell_bytes))(self._read_cell)

    def verdict(self, level: int, position: Position) -> Verdict:
        """Ask the coarser levels, the next one first, then the finer ones, each about what those before do not show."""
        whole = self._box(level, position)
        unseen, off, seen = [whole], 0.0, 0.0
        for witness in (*range(level + 1, len(self._gaps)), *range(level - 1, -1, -1)):
            parts, unseen = unseen, []
            for piece, at in (one for part in parts for one in self._pieces(level, part, witness)):
                share = self._share_off(level, piece, witness, at)
                area = piece.width_px * piece.height_px
                if share is None:
                    unseen.append(piece)
                else:
                    off, seen = off + share * area, seen + area
            if not unseen:
                break
        if seen and off > _MAX_OFF * seen:
            return Verdict.LOST
        return Verdict.AGREED if seen >= _MIN_SEEN * whole.width_px * whole.height_px else Verdict.UNKNOWN

    def _box(self, level: int, position: Position) -> Box:
        return tile_box(self._slide.info, level, self._gaps[level].cell_px, *position)

    def _scaled(self, box: Box, level: int, to: int) -> Box:
        """A box of one level in the pixels of another."""
        sizes = self._slide.info.levels
        ratio_x, ratio_y = sizes[to].width_px / sizes[level].width_px, sizes[to].height_px / sizes[level].height_px
        left, top = round(box.x_px * ratio_x), round(box.y_px * ratio_y)
        right, bottom = round(box.right_px * ratio_x), round(box.bottom_px * ratio_y)
        return Box(left, top, right - left, bottom - top)

    def _pieces(self, level: int, part: Box, witness: int) -> Iterator[tuple[Box, Position]]:
        """A part of a level cut along the witness's cells, each piece with the cell that covers it."""
        target = self._scaled(part, level, witness)
        for at in itertools.product(*target.cells(self._gaps[witness].cell_px)):
            piece = self._scaled(target.overlap(self._box(witness, at)), witness, level).overlap(part)
            if not piece.is_empty:
                yield piece, at

    def _share_off(self, level: int, piece: Box, witness: int, at: Position) -> float | None:
        """Share of a piece in which the witness shows something else; None if it shows nothing."""
        shown = None if self._gaps[witness].is_absent[at] else self._cell(witness, at)
        if shown is None:
            return None
        cell, inner = self._box(witness, at), _without_margin(self._scaled(piece, level, witness))
        inner = inner.overlap(cell)
        own_box = self._scaled(inner, witness, level)
        if inner.is_empty or own_box.is_empty:
            return None
        left, top = inner.x_px - cell.x_px, inner.y_px - cell.y_px
        try:
            own = self._slide.read_region(level, own_box)
        except CorruptTileError:
            return None
        return _share_unlike(own, shown[top : top + inner.height_px, left : left + inner.width_px])

    def _read_cell(self, level: int, position: Position) -> Pixels | None:
        try:
            return self._slide.read_region(level, self._box(level, position))
        except CorruptTileError:
            return None


def _without_margin(box: Box) -> Box:
    across, down = (min(_MARGIN_PX, side_px // _MARGIN_SHARE) for side_px in box.size_wh_px)
    return Box(box.x_px + across, box.y_px + down, box.width_px - 2 * across, box.height_px - 2 * down)


def _share_unlike(own: Pixels, shown: Pixels) -> float:
    columns, rows = (
        max(1, min(one, other) // CELL_PX) for one, other in zip(own.shape[1::-1], shown.shape[1::-1], strict=True)
    )
    first, second = (cell_means(pixels, (columns, rows)) for pixels in (own, shown))
    is_off = np.abs(first - second).max(-1) > MAX_DIFFERENCE
    is_off &= ~((first.min(-1) >= _WHITE) & _is_glass(second))
    return float(is_off.mean())


def _is_glass(means: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Whether cells show the glass, whose colour depends on the scanner: light, hardly coloured, even."""
    is_light = (means.min(-1) >= _MIN_GLASS) & (means.max(-1) - means.min(-1) <= _MAX_TINT)
    is_even = not is_light.any() or float(means[is_light].std(0).max()) <= _MAX_DETAIL
    return np.asarray(is_light & is_even, bool)
