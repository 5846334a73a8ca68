"""One tile of annotations for the browser: outlines as fine as the screen can show, and dots where they are finer.

Level 0 is level-0 pixels; each level above halves. A tile is 512 × 512 pixels of its level. Little-endian, each part
begins at a multiple of 8 bytes:

    "GVT1", uint32 length of a JSON text, the text (change, classes, outlines, pieces, corners, cells: numbers of them)
    outlines: their id's first 16 digits (uint32 high, low), class (uint8), pieces (uint16)
    pieces: what they are (uint8: 0 a line, 1 a ring, 2 points), corners (uint16)
    corners: x, y (int16), 32 to a pixel of the level, from the tile's top left corner
    cells: column, row (uint8, of 2 × 2 pixels), class (uint8), how many (uint8)

A class is its place among `classes`; null there is no class.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import shapely
from numpy.typing import NDArray

from pathology_app.annotating.slide_outlines import Outlines

TILE_PX = 512
MIN_OUTLINE_PX = 3.0
"""What is smaller on the level is a dot in a cell."""
MAX_OUTLINES = 6_000
"""Of a tile; of more the largest are drawn, the others are dots."""
MAX_POINTS = 2_000
"""Points that are drawn as points; more of them in a tile are dots."""
MAX_CORNERS = 400_000
MEDIA_TYPE = "application/vnd.gemslide.annotations"
_CELL_PX, _PER_PX, _MARGIN_PX = 2, 32, 8
_LINE, _RING, _POINTS = 0, 1, 2


def num_levels(size_wh_px0: tuple[int, int]) -> int:
    """Levels of a slide: the last one is a single tile."""
    tiles = max(1, -(-max(size_wh_px0) // TILE_PX))
    return (tiles - 1).bit_length() + 1


@dataclass(frozen=True)
class _Tile:
    left_px0: float
    top_px0: float
    unit_px0: int
    """Level-0 pixels along a pixel of the level."""

    def box(self, margin_px: float) -> tuple[float, float, float, float]:
        margin, side = margin_px * self.unit_px0, TILE_PX * self.unit_px0
        left, top = self.left_px0 - margin, self.top_px0 - margin
        return left, top, left + side + 2 * margin, top + side + 2 * margin


def vector_tile(outlines: Outlines, level: int, col: int, row: int) -> bytes:
    """The annotations that lie in a tile, the largest first."""
    unit_px0 = 2**level
    tile = _Tile(col * TILE_PX * unit_px0, row * TILE_PX * unit_px0, unit_px0)
    names, class_of_all = outlines.class_places
    near = outlines.within(*tile.box(_MARGIN_PX))
    drawn, dots = _chosen(outlines.bounds_px0[near], unit_px0)
    drawn, dots = near[drawn], near[dots]
    parts = _outline_parts(outlines, drawn, class_of_all, tile)
    cells = _cells(outlines.bounds_px0[dots], class_of_all[dots], tile)
    header = {"change": outlines.change, "classes": names, **parts[0], "cells": len(cells)}
    text = json.dumps(header, separators=(",", ":")).encode()
    head = b"GVT1" + len(text).to_bytes(4, "little") + text
    return b"".join(_padded(part) for part in (head, *parts[1], cells.tobytes()))


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 8)


def _chosen(bounds_px0: NDArray[np.float64], unit_px0: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which are drawn, the largest first, and which are dots."""
    sides = (bounds_px0[:, 2:] - bounds_px0[:, :2]).max(1) / unit_px0
    by_size = np.argsort(-sides, kind="stable")
    is_point = sides[by_size] == 0
    is_drawn = sides[by_size] >= MIN_OUTLINE_PX
    is_drawn[MAX_OUTLINES:] = False
    if is_point.sum() <= MAX_POINTS:
        is_drawn |= is_point
    return by_size[is_drawn], by_size[~is_drawn]


def _cells(bounds_px0: NDArray[np.float64], class_of: NDArray[np.uint8], tile: _Tile) -> NDArray[np.uint8]:
    """uint8 (n, 4): column, row, class, how many."""
    centres = (bounds_px0[:, :2] + bounds_px0[:, 2:]) / 2 - (tile.left_px0, tile.top_px0)
    places = np.floor(centres / (_CELL_PX * tile.unit_px0)).astype(np.int64)
    inside = ((places >= 0) & (places < TILE_PX // _CELL_PX)).all(1)
    places, class_of = places[inside], class_of[inside]
    found, counts = np.unique(class_of * np.int64(1 << 16) + places[:, 1] * 256 + places[:, 0], return_counts=True)
    return np.stack([found % 256, found // 256 % 256, found >> 16, np.minimum(counts, 255)], 1).astype(np.uint8)


def _outline_parts(
    outlines: Outlines, drawn: NDArray[np.intp], class_of_all: NDArray[np.uint8], tile: _Tile
) -> tuple[dict[str, int], list[bytes]]:
    shapes = _simplified(outlines.shapes_of(drawn), tile)
    pieces, kinds, owners = _pieces(shapes)
    corners, piece_of = shapely.get_coordinates(pieces, return_index=True)
    counts = np.bincount(piece_of, minlength=len(pieces))
    within = np.searchsorted(np.cumsum(counts), MAX_CORNERS, side="right")  # the smallest are left out
    pieces, kinds, owners, counts = pieces[:within], kinds[:within], owners[:within], counts[:within]
    corners = corners[: int(counts.sum())]
    scaled = np.round((corners - (tile.left_px0, tile.top_px0)) / tile.unit_px0 * _PER_PX).astype("<i2")
    ids = np.array([int(each.replace("-", "")[:16], 16) for each in outlines.ids[drawn]], np.uint64)
    high_low = np.stack([ids >> np.uint64(32), ids & np.uint64(0xFFFFFFFF)], 1).astype("<u4")
    per_outline = np.bincount(owners, minlength=len(drawn)).astype("<u2")
    numbers = {"outlines": len(drawn), "pieces": len(pieces), "corners": len(corners)}
    parts = (high_low, class_of_all[drawn], per_outline, kinds, counts.astype("<u2"), scaled)
    return numbers, [part.tobytes() for part in parts]


def _simplified(shapes: NDArray[np.object_], tile: _Tile) -> NDArray[np.object_]:
    """Cut to a little more than the tile, then as fine as its pixels."""
    box = tile.box(_MARGIN_PX)
    left, top, right, bottom = shapely.bounds(shapes).reshape(-1, 4).T
    sticks_out = (left < box[0]) | (top < box[1]) | (right > box[2]) | (bottom > box[3])
    shapes = shapes.copy()
    if sticks_out.any():
        shapes[sticks_out] = shapely.clip_by_rect(shapes[sticks_out], *box)
    found: NDArray[np.object_] = shapely.simplify(shapes, tile.unit_px0 / 4, preserve_topology=True)
    return found


def _pieces(shapes: NDArray[np.object_]) -> tuple[NDArray[np.object_], NDArray[np.uint8], NDArray[np.intp]]:
    """Rings, lines and points, what each is, and whose, in the order of the shapes."""
    parts, owners = shapely.get_parts(shapes, return_index=True)
    kinds = shapely.get_type_id(parts)
    rings, part_of_ring = shapely.get_rings(parts[kinds == 3], return_index=True)
    others = np.isin(kinds, (0, 1))
    pieces = np.concatenate([rings, parts[others]])
    what = np.concatenate([np.full(len(rings), _RING), np.where(kinds[others] == 1, _LINE, _POINTS)]).astype(np.uint8)
    whose = np.concatenate([owners[kinds == 3][part_of_ring], owners[others]]).astype(np.intp)
    order = np.argsort(whose, kind="stable")
    return pieces[order], what[order], whose[order]
