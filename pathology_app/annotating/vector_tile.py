"""A tile of annotations for the browser: outlines as detailed as the screen can show, and dots where they are smaller.

Level 0 is in level-0 pixels; each level above halves the resolution. A tile is 512 × 512 pixels of its level.
Little-endian; each part begins at a multiple of 8 bytes:

    "GVT1", uint32 length of a JSON text, the text (change, classes, outlines, pieces, corners, cells: numbers of them)
    outlines: first 16 digits of their ids (uint32 high, low), class (uint8), pieces (uint16)
    pieces: kind (uint8: 0 a line, 1 a ring, 2 points), corners (uint16)
    corners: x, y (int16), 32 to a pixel of the level, from the tile's top left corner
    cells: column, row (uint8, of 2 × 2 pixels), class (uint8), count (uint8)

A class is its index in `classes`, where null means no class.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from pathology_app.annotating.slide_outlines import Outlines
from pathology_app.annotating.tile_outlines import clipped, closed, opened, thinned

TILE_PX = 512
MIN_OUTLINE_PX = 3.0
"""Outlines smaller than this on the level become dots in cells."""
MAX_OUTLINES = 6_000
"""Per tile; if there are more, the largest are drawn and the others become dots."""
MAX_POINTS = 2_000
"""Points that are drawn as points; if a tile has more, they become dots."""
MAX_CORNERS = 400_000
MEDIA_TYPE = "application/vnd.gemslide.annotations"
_CELL_PX, _PER_PX, _MARGIN_PX = 2, 32, 8
_LINE, _RING, _POINTS = 0, 1, 2
_POLYGON = 3
"""GEOS's number for the type."""
_OUTLINES_AT_ONCE = 32
"""Each has up to 50,000 corners, so a tile with many takes little memory."""
_NO_INDICES: NDArray[np.intp] = np.empty(0, np.intp)


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
    """The annotations in a tile, largest first."""
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
    """Indices of the outlines to draw, largest first, and of the dots."""
    sides = (bounds_px0[:, 2:] - bounds_px0[:, :2]).max(1) / unit_px0
    by_size = np.argsort(-sides, kind="stable")
    is_point = sides[by_size] == 0
    is_drawn = sides[by_size] >= MIN_OUTLINE_PX
    is_drawn[MAX_OUTLINES:] = False
    if is_point.sum() <= MAX_POINTS:
        is_drawn |= is_point
    return by_size[is_drawn], by_size[~is_drawn]


def _cells(bounds_px0: NDArray[np.float64], class_of: NDArray[np.uint8], tile: _Tile) -> NDArray[np.uint8]:
    """uint8 (n, 4): column, row, class, count."""
    centres = (bounds_px0[:, :2] + bounds_px0[:, 2:]) / 2 - (tile.left_px0, tile.top_px0)
    places = np.floor(centres / (_CELL_PX * tile.unit_px0)).astype(np.int64)
    inside = ((places >= 0) & (places < TILE_PX // _CELL_PX)).all(1)
    places, class_of = places[inside], class_of[inside]
    codes, counts = np.unique(class_of * np.int64(1 << 16) + places[:, 1] * 256 + places[:, 0], return_counts=True)
    return np.stack([codes % 256, codes // 256 % 256, codes >> 16, np.minimum(counts, 255)], 1).astype(np.uint8)


def _outline_parts(
    outlines: Outlines, drawn: NDArray[np.intp], class_of_all: NDArray[np.uint8], tile: _Tile
) -> tuple[dict[str, int], list[bytes]]:
    pieces = _pieces(outlines, drawn, tile)
    scaled = np.round((pieces.corners - (tile.left_px0, tile.top_px0)) / tile.unit_px0 * _PER_PX).astype("<i2")
    ids = np.array([int(id_.replace("-", "")[:16], 16) for id_ in outlines.ids[drawn]], np.uint64)
    high_low = np.stack([ids >> np.uint64(32), ids & np.uint64(0xFFFFFFFF)], 1).astype("<u4")
    per_outline = np.bincount(pieces.owners, minlength=len(drawn)).astype("<u2")
    numbers = {"outlines": len(drawn), "pieces": len(pieces.kinds), "corners": len(scaled)}
    parts = (high_low, class_of_all[drawn], per_outline, pieces.kinds, pieces.counts.astype("<u2"), scaled)
    return numbers, [part.tobytes() for part in parts]


class _Pieces(NamedTuple):
    """Rings, lines and points of outlines, in the order of the outlines."""

    corners: NDArray[np.float64]
    counts: NDArray[np.intp]
    """Corners of each piece."""
    kinds: NDArray[np.uint8]
    owners: NDArray[np.intp]
    """Index of each piece's outline."""


def _pieces(outlines: Outlines, drawn: NDArray[np.intp], tile: _Tile) -> _Pieces:
    """All pieces up to `MAX_CORNERS`; beyond that the smallest outlines are left out."""
    batches, num_corners = [_Pieces(np.empty((0, 2)), _NO_INDICES, np.empty(0, np.uint8), _NO_INDICES)], 0
    for start in range(0, len(drawn), _OUTLINES_AT_ONCE):
        batch = _cut_shapes(outlines.shapes_of(drawn[start : start + _OUTLINES_AT_ONCE]), tile)
        within = int(np.searchsorted(np.cumsum(batch.counts), MAX_CORNERS - num_corners, side="right"))
        counts = batch.counts[:within]
        corners, kinds, owners = batch.corners[: counts.sum()], batch.kinds[:within], batch.owners[:within] + start
        batches.append(_Pieces(corners, counts, kinds, owners))
        num_corners += len(corners)
        if within < len(batch.counts):
            break
    return _Pieces(*(np.concatenate(parts) for parts in zip(*batches, strict=True)))


def _cut_shapes(shapes: NDArray[np.object_], tile: _Tile) -> _Pieces:
    """Pieces of shapes, clipped to slightly more than the tile and thinned to its pixels."""
    box, cell = tile.box(_MARGIN_PX), tile.unit_px0 / 4
    parts, owners = shapely.get_parts(shapes, return_index=True)
    kinds = shapely.get_type_id(parts)
    rings, part_of_ring = shapely.get_rings(parts[kinds == _POLYGON], return_index=True)
    rings, part_of_ring = _meeting(box, rings, part_of_ring)
    outlines = closed(thinned(clipped(opened(*shapely.get_coordinates(rings, return_index=True)), box), cell))
    lines, line_owners = _lines(parts[kinds != _POLYGON], owners[kinds != _POLYGON], box, cell)
    corners, line_of = shapely.get_coordinates(lines, return_index=True)
    ring_numbers, ring_counts = np.unique(outlines.ring_of, return_counts=True)
    all_owners = np.concatenate([owners[kinds == _POLYGON][part_of_ring][ring_numbers], line_owners])
    is_line = shapely.get_type_id(lines) == 1
    all_kinds = np.concatenate([np.full(len(ring_numbers), _RING), np.where(is_line, _LINE, _POINTS)])
    counts = np.concatenate([ring_counts, np.bincount(line_of, minlength=len(lines))])
    # In the order of the outlines; each piece's corners move with it.
    order = np.argsort(all_owners, kind="stable")
    starts = np.cumsum(counts) - counts
    at = np.repeat(starts[order], counts[order]) + _within_each(counts[order])
    every = np.concatenate([outlines.corners, corners])
    return _Pieces(every[at], counts[order], all_kinds[order].astype(np.uint8), all_owners[order].astype(np.intp))


def _meeting(
    box: tuple[float, float, float, float], rings: NDArray[np.object_], numbers: NDArray[np.intp]
) -> tuple[NDArray[np.object_], NDArray[np.intp]]:
    """Rings whose bounds intersect a box, and their numbers."""
    left, top, right, bottom = shapely.bounds(rings).reshape(-1, 4).T
    meets = (left <= box[2]) & (right >= box[0]) & (top <= box[3]) & (bottom >= box[1])
    return rings[meets], numbers[meets]


def _within_each(counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """0, 1, 2, … within each piece, given each piece's number of corners."""
    return np.asarray(np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))


def _lines(
    parts: NDArray[np.object_], owners: NDArray[np.intp], box: tuple[float, float, float, float], cell: float
) -> tuple[NDArray[np.object_], NDArray[np.intp]]:
    """Lines and points within a box, and their owners."""
    pieces, part_of = shapely.get_parts(shapely.clip_by_rect(parts, *box), return_index=True)
    is_kept = np.isin(shapely.get_type_id(pieces), (0, 1)) & ~shapely.is_empty(pieces)
    lines: NDArray[np.object_] = shapely.simplify(pieces[is_kept], cell, preserve_topology=False)
    return lines, owners[part_of[is_kept]]
