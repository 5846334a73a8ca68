"""Damage found in a slide, level by level, and the limit beyond which it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.slides.common.slide import NotCopied, Slide
from pipeline.slides.common.tile_places import Position
from pipeline.store.layers.damaged import read_damaged
from pipeline.store.reading.reader import StoreReader
from training.foundation.words.counts import counted

MAX_SHARE = 0.9
"""Of a slide's tiles at level 0: with more of them damaged, not enough of the slide is left to view."""

HOW_TO_MASK = (
    'Or ingest what is left of it: with `damaged = "mask"` in the [ingest] section of gemslide.toml each damaged tile '
    "is found, left white, masked and counted."
)


@dataclass(frozen=True)
class LevelDamage:
    """The damaged tiles of one level, in the grid in which the source stores it, or in which it was scanned."""

    tile_px: int
    num_tiles: int
    """Tiles in the source; those that the scanner left out do not count."""
    undecodable: frozenset[Position] = frozenset()
    unlike: frozenset[Position] = frozenset()
    """Tiles that decode to something other than the levels next to theirs show."""
    absent: frozenset[Position] = frozenset()
    """Tiles without data where other levels show something else, or nothing vouches for background."""

    @property
    def tiles(self) -> frozenset[Position]:
        return self.undecodable | self.unlike | self.absent

    def touches(self, box: Box) -> bool:
        """Whether a box of the level, in its pixels, reaches into a damaged tile."""
        rows, columns = box.cells(self.tile_px)
        return any((row, column) in self.tiles for row in rows for column in columns)


Damage = tuple[LevelDamage, ...]
"""By level of the source, finest first."""


def in_any(planes: Sequence[Damage]) -> Damage:
    """Damage at any focal plane of a slide."""
    return tuple(
        LevelDamage(
            level[0].tile_px,
            min(plane.num_tiles for plane in level),
            frozenset().union(*(plane.undecodable for plane in level)),
            frozenset().union(*(plane.unlike for plane in level)),
            frozenset().union(*(plane.absent for plane in level)),
        )
        for level in zip(*planes, strict=True)
    )


def grid_px(slide: Slide, level: int, else_px: int) -> int:
    """Side of the tiles in which a level is scanned: the source's own if they are square, or `else_px`."""
    encoded = slide.encoded_level(level)
    return slide.info.levels[level].tile_px or else_px if isinstance(encoded, NotCopied) else encoded.tile_px


def damage_in_store(reader: StoreReader, slide: Slide) -> Damage:
    """Read from a store the damage to the slide that it was made from.

    Raises:
        UnreadableError: its label cannot be read.
    """
    stored = read_damaged(reader.path)
    levels = [LevelDamage(1, 0)] if stored is None else [_from_mask(*stored)]
    source_levels = zip(reader.levels, reader.attributes.levels, slide.info.levels, strict=False)
    for array, metadata, _ in list(source_levels)[1:]:
        levels.append(LevelDamage(grid_px(slide, array.level, array.chunk_px), 0, frozenset(metadata.rebuilt)))
    return tuple(levels)


def _from_mask(mask_yx: NDArray[np.uint8], cell_px0: int) -> LevelDamage:
    tiles = frozenset((row, column) for row, column in np.argwhere(mask_yx).tolist())
    return LevelDamage(cell_px0, mask_yx.size, tiles)


def summary_of(damage: Damage) -> dict[str, Any]:
    """Summary, for a store, of the damage that it was made with (docs/store.md)."""
    return {
        "tiles": len(damage[0].tiles),
        "of": damage[0].num_tiles,
        "undecodable": [len(level.undecodable) for level in damage],
        "unlike": [len(level.unlike - level.undecodable - level.absent) for level in damage],
        "absent": [len(level.absent) for level in damage],
    }


def refuse_mostly_damaged(damage: Damage, slide_id: str) -> None:
    """Refuse a slide of which next to nothing is left.

    Raises:
        CorruptTileError: more than `MAX_SHARE` of level 0 is damaged.
    """
    tiles, total = len(damage[0].tiles), damage[0].num_tiles
    if tiles > MAX_SHARE * total:
        of_all = f"of its {counted(total, 'tile')} at level 0"
        raise CorruptTileError(
            f"slide {slide_id}: {counted(tiles, f'{of_all} is', f'{of_all} are')} damaged "
            f"({len(damage[0].undecodable)} cannot be decoded, {len(damage[0].absent)} have no data, the others are "
            f"unlike the reduced levels); with more than {MAX_SHARE:.0%} there is no slide to mask. Copy or scan it "
            "again."
        )
