"""Absent data: what a scanner left out because it is glass, and what was lost.

A file that was not written completely opens like any other, and reads as white or black where nothing was written.
Another level has to show the same there; else the data are lost, unless the format itself defines what is not stored
as background. Aperio's reduced levels are left to `edges.py`, which rebuilds what is missing in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.errors import CorruptTileError
from pipeline.ingest.damage.found import MAX_SHARE
from pipeline.ingest.damage.gaps import Gaps, gaps_of
from pipeline.ingest.damage.left_out import APERIO
from pipeline.ingest.damage.witnesses import Verdict, Witnesses
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import NotCopied, Slide
from pipeline.slides.common.tile_places import Position
from pipeline.store.reading.threads import CORES, parallel_for
from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted

Absent = tuple["LevelAbsent", ...]
"""By level of the source, finest first."""


@dataclass(frozen=True)
class LevelAbsent:
    """Tiles of one level without data, in the grid in which it is searched for damage."""

    num_tiles: int
    """All of the level's, absent or not."""
    left_out: frozenset[Position] = frozenset()
    """Another level shows background there."""
    by_format: frozenset[Position] = frozenset()
    """No other level has data there, but the format defines them as background."""
    lost: frozenset[Position] = frozenset()
    """Other levels show something else there."""
    unknown: frozenset[Position] = frozenset()
    """No other level has data there, and what is absent means nothing in this format."""

    @property
    def damaged(self) -> frozenset[Position]:
        return self.lost | self.unknown

    @property
    def is_next_to_nothing_left(self) -> bool:
        num_absent = len(self.damaged | self.by_format)
        return num_absent + len(self.left_out) == self.num_tiles or num_absent > MAX_SHARE * self.num_tiles


def find_absent(slide: Slide, config: IngestConfig) -> Absent:
    """Find the absent data of a slide, and what the levels say about them."""
    gaps = [gaps_of(slide, level, config.decode_chunk_px) for level in range(len(slide.info.levels))]
    if not any(one.is_absent.any() for one in gaps):
        return tuple(LevelAbsent(one.is_absent.size) for one in gaps)
    witnesses = Witnesses(slide, gaps)
    return tuple(_judged(slide, level, own, witnesses) for level, own in enumerate(gaps))


def refuse_without_data(absent: Absent, slide_id: str) -> None:
    """Refuse a slide of which next to nothing was written.

    Raises:
        UnreadableError: no tile of level 0 has data, or so few that the absent ones are no background.
    """
    finest = absent[0]
    if finest.is_next_to_nothing_left:
        num_absent = len(finest.damaged | finest.by_format | finest.left_out)
        tiles = f"of its {counted(finest.num_tiles, 'tile')} at level 0"
        raise UnreadableError(
            f"slide {slide_id}: {counted(num_absent, f'{tiles} has', f'{tiles} have')} no data (no bytes in the file, "
            "or only zeros), so there is no slide to read. Whatever wrote or copied the file failed; copy, convert or "
            "scan it again. (Of a DICOM slide, name the folder with all its levels.)"
        )


def refuse_absent(absent: Absent, slide_id: str) -> None:
    """Refuse a slide with lost data.

    Raises:
        CorruptTileError: some are lost.
    """
    for level, found in enumerate(absent):
        if found.damaged:
            row, column = min(found.damaged)
            tiles = f"of its {counted(found.num_tiles, 'tile')} at level {level}"
            why = [
                f"where another level shows something else: {len(found.lost)}" if found.lost else "",
                f"where no other level shows what belongs there: {len(found.unknown)}" if found.unknown else "",
            ]
            raise CorruptTileError(
                f"slide {slide_id}: {counted(len(found.damaged), f'{tiles} has', f'{tiles} have')} no data (no bytes "
                f"in the file, or only zeros), the first in row {row}, column {column} ({'; '.join(filter(None, why))})"
                ". The file is damaged, or was never written completely; copy, convert or scan it again."
            )


def _judged(slide: Slide, level: int, own: Gaps, witnesses: Witnesses) -> LevelAbsent:
    absent = [(int(row), int(column)) for row, column in np.argwhere(own.is_absent)]
    if level and slide.info.format == APERIO and not isinstance(slide.encoded_level(level), NotCopied):
        return LevelAbsent(own.is_absent.size, left_out=frozenset(absent))
    verdicts: dict[Position, Verdict] = {}

    def judge(row: int, column: int) -> None:
        verdicts[row, column] = witnesses.verdict(level, (row, column))

    parallel_for(judge, absent, CORES)
    agreed, lost, unseen = (frozenset(at for at in absent if verdicts[at] is verdict) for verdict in Verdict)
    by_format = frozenset(at for at in unseen if own.is_by_format[at])
    return LevelAbsent(own.is_absent.size, agreed, by_format, lost, unseen - by_format)
