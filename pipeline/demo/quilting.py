"""Image quilting: a large texture from overlapping patches of a photograph, joined along their cheapest seams.

Based on Efros and Freeman, "Image quilting for texture synthesis and transfer" (SIGGRAPH 2001). Patches are laid in
raster order. Each is drawn from those that agree best with the pixels it will overlap, and is cut in along the path
through the overlap on which old and new pixels differ least. As in the paper's section on transfer, a guide determines
what goes where: a few smooth maps, measured on the photograph and prescribed for the canvas.

All lengths are in pixels of the photograph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from pipeline.codecs.types import Pixels

PATCH_PX = 64
OVERLAP_PX = 24
STEP_PX = PATCH_PX - OVERLAP_PX
CANDIDATE_STEP_PX = 4
"""Patches are cut from every fourth row and column of the photograph."""
GUIDE_CELL_PX = 16
"""Guides are compared by their means over squares of this side."""
SHORTLIST = 160
"""Number of patches whose guide fits best; the overlap decides between them."""
GUIDE_JITTER = 0.002
"""Random error added to the guide's, so that equal patches take turns on the shortlist."""
GUIDE_WEIGHT = 0.1
"""Weight of the guide's error relative to the overlap's; both are mean squares of values from 0 to 1."""
TOLERANCE = 1.2
"""A patch is drawn from those whose error is at most this many times the smallest."""
MEMORY_STEPS = 5
REPEAT_PX = 24.0
REPEAT_WEIGHT = 0.05
"""Cost of a patch for each patch within `MEMORY_STEPS` with the same centre in the photograph; at a distance of
`REPEAT_PX` the cost has fallen to a third."""

Maps = NDArray[np.float32]
"""float32 of shape (maps, height, width), values from 0 to 1."""
Mask = NDArray[np.bool_]
"""bool of shape (height, width)."""


@dataclass(frozen=True)
class Source:
    """A piece of the photograph and its guide."""

    pixels: Pixels
    guide: Maps
    is_fibrous: bool = False
    """Whether its fibres run from top to bottom: only the four rotations and mirrorings that keep this are used."""


@dataclass(frozen=True)
class Patches:
    """All patches of some sources, rotated and mirrored."""

    views: list[Pixels]
    """The sources, rotated and mirrored."""
    corners: NDArray[np.int64]
    """Per patch: index of its view, y and x of its corner there."""
    centres: NDArray[np.float32]
    """Per patch: y and x of its centre in the original source, far apart for different sources."""
    guides: NDArray[np.float32]
    """Per patch: means of the maps over its squares."""
    guide_squares: NDArray[np.float32]
    """Per patch: mean square of its guide."""
    halves: NDArray[np.uint8]
    """Per patch: its pixels at half the size, uint8 (patches, PATCH_PX / 2 * PATCH_PX / 2 * 3)."""

    def pixels(self, index: int) -> Pixels:
        """One patch, uint8 (PATCH_PX, PATCH_PX, 3)."""
        view, y, x = (int(i) for i in self.corners[index])
        return np.asarray(self.views[view][y : y + PATCH_PX, x : x + PATCH_PX], np.uint8)


def collect_patches(sources: Sequence[Source]) -> Patches:
    """Cut sources into overlapping patches, rotated and mirrored."""
    views: list[Pixels] = []
    parts: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], Pixels]] = []
    for number, source in enumerate(sources):
        home_yx = np.mgrid[: source.pixels.shape[0], : source.pixels.shape[1]] + 1e4 * number
        for turn in range(0, 8, 2 if source.is_fibrous else 1):
            view, maps, home = (_turned(a, turn) for a in (np.moveaxis(source.pixels, -1, 0), source.guide, home_yx))
            pixels = np.ascontiguousarray(np.moveaxis(view, 0, -1))
            ends = (side - PATCH_PX + 1 for side in pixels.shape[:2])
            y, x = (a.ravel() for a in np.mgrid[tuple(slice(0, end, CANDIDATE_STEP_PX) for end in ends)])
            corners = np.stack([np.full_like(y, len(views)), y, x], -1)
            centres = home[:, y + PATCH_PX // 2, x + PATCH_PX // 2].T.astype(np.float32)
            parts.append((corners, centres, _guides(maps.astype(np.float32)), _halves(pixels)))
            views.append(pixels)
    corners, centres, guides, halves = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Patches(views, corners, centres, guides, np.square(guides).mean(1), halves)


def quilt(patches: Patches, guide: Maps, needed: Mask, random: np.random.Generator) -> Pixels:
    """Lay patches wherever pixels are needed. Pixels under no patch are black."""
    height, width = needed.shape
    rows, columns = (-(-max(1, side - OVERLAP_PX) // STEP_PX) for side in needed.shape)
    pad = ((0, rows * STEP_PX + OVERLAP_PX - height), (0, columns * STEP_PX + OVERLAP_PX - width))
    wanted = np.pad(guide, ((0, 0), *pad), mode="edge")
    needed, filled = np.pad(needed, pad), np.zeros(wanted.shape[1:], bool)
    canvas = np.zeros((*filled.shape, 3), np.float32)
    laid = np.full((rows, columns), -1)
    for row, column in np.ndindex(rows, columns):
        y, x = row * STEP_PX, column * STEP_PX
        window = np.s_[y : y + PATCH_PX, x : x + PATCH_PX]
        if not needed[window].any():
            continue
        errors = _guide_errors(patches, wanted[:, *window])
        shortlist = np.argpartition(errors + random.uniform(0, GUIDE_JITTER, len(errors)), SHORTLIST)[:SHORTLIST]
        total = GUIDE_WEIGHT * errors[shortlist] + _repeat_costs(patches, shortlist, laid, (row, column))
        total += _overlap_errors(patches.halves[shortlist], canvas[window], filled[window])
        laid[row, column] = index = shortlist[random.choice(np.flatnonzero(total <= TOLERANCE * total.min()))]
        canvas[window] = join(canvas[window], filled[window], patches.pixels(index))
        filled[window] = True
    return np.asarray(np.rint(canvas[:height, :width]), np.uint8)


def join(old: NDArray[np.float32], filled: Mask, new: Pixels) -> NDArray[np.float32]:
    """Cut a patch in along the cheapest seams through its left and upper overlap; unfilled pixels are the patch's."""
    cost = np.where(filled, np.square(old - new).sum(-1), 0)
    share = np.zeros(filled.shape, np.float32)
    is_left = filled[OVERLAP_PX:, 0].any()
    if is_left:
        share[:, :OVERLAP_PX] = share_before_seam(cost[:, :OVERLAP_PX])
    if filled[0, OVERLAP_PX:].any() or (filled[0].any() and not is_left):
        share[:OVERLAP_PX] = np.maximum(share[:OVERLAP_PX], share_before_seam(cost[:OVERLAP_PX].T).T)
    return np.asarray(new + (share * filled)[..., None] * (old - new), np.float32)


def share_before_seam(cost: NDArray[np.floating]) -> NDArray[np.float32]:
    """Share of old pixels in joined ones: 1 left of the cheapest seam from top to bottom, half on it, 0 right of it."""
    from_seam = np.arange(cost.shape[1]) - cheapest_seam(cost)[:, None]
    return np.asarray((1 - np.sign(from_seam)) / 2, np.float32)


def cheapest_seam(cost: NDArray[np.floating]) -> NDArray[np.int64]:
    """Column per row of the path from top to bottom with the least total cost; it moves at most one column per row."""
    height, width = cost.shape
    total = np.full((height, width + 2), np.inf)
    total[:, 1:-1] = cost
    for y in range(1, height):
        above = total[y - 1]
        total[y, 1:-1] += np.minimum(np.minimum(above[:-2], above[1:-1]), above[2:])
    seam = np.empty(height, np.int64)
    seam[-1] = total[-1].argmin() - 1
    for y in range(height - 2, -1, -1):
        left = seam[y + 1]
        seam[y] = left - 1 + total[y, left : left + 3].argmin()
    return seam


def _turned(array: NDArray[np.generic], turn: int) -> NDArray[np.generic]:
    """One of the eight rotations and mirrorings of an array of shape (planes, height, width)."""
    mirrored = array[:, :, ::-1] if turn >= 4 else array
    return np.rot90(mirrored, turn % 4, axes=(1, 2))


def _guides(maps: Maps) -> NDArray[np.float32]:
    """Guide of every patch of a view, flattened."""
    means = np.stack([cv2.boxFilter(np.ascontiguousarray(m), -1, (GUIDE_CELL_PX,) * 2, anchor=(0, 0)) for m in maps])
    reach = PATCH_PX - GUIDE_CELL_PX + 1
    windows = np.lib.stride_tricks.sliding_window_view(means, (reach, reach), axis=(1, 2))
    last_y, last_x = maps.shape[1] - PATCH_PX + 1, maps.shape[2] - PATCH_PX + 1
    cells = windows[:, :last_y:CANDIDATE_STEP_PX, :last_x:CANDIDATE_STEP_PX, ::GUIDE_CELL_PX, ::GUIDE_CELL_PX]
    return np.asarray(np.moveaxis(cells, 0, 2).reshape(cells.shape[1] * cells.shape[2], -1), np.float32)


def _halves(pixels: Pixels) -> NDArray[np.uint8]:
    """Every patch of a view at half the size."""
    height, width = pixels.shape[:2]
    half = cv2.resize(
        pixels[: height // 2 * 2, : width // 2 * 2], (width // 2, height // 2), interpolation=cv2.INTER_AREA
    )
    side, step = PATCH_PX // 2, CANDIDATE_STEP_PX // 2
    windows = np.lib.stride_tricks.sliding_window_view(half, (side, side), axis=(0, 1))[::step, ::step]
    return np.asarray(np.moveaxis(windows, 2, -1).reshape(-1, side * side * 3), np.uint8)


def _guide_errors(patches: Patches, wanted: Maps) -> NDArray[np.float32]:
    """Mean square difference between every patch's guide and the target."""
    side = PATCH_PX // GUIDE_CELL_PX
    cells = wanted.reshape(len(wanted), side, GUIDE_CELL_PX, side, GUIDE_CELL_PX).mean((2, 4)).ravel()
    # Not with BLAS, whose sums depend on the number of threads.
    products = np.einsum("pc,c->p", patches.guides, cells) / len(cells)
    return np.asarray(patches.guide_squares - 2 * products + np.square(cells).mean(), np.float32)


def _overlap_errors(halves: NDArray[np.uint8], old: NDArray[np.float32], filled: Mask) -> NDArray[np.float32]:
    """Mean square difference between patches and the filled pixels under them, at half the size."""
    weight = np.repeat((filled[::2, ::2] & filled[1::2, 1::2]).ravel(), 3).astype(np.float32)
    target = (old[::2, ::2] + old[1::2, ::2] + old[::2, 1::2] + old[1::2, 1::2]).ravel() / 4
    difference = (halves - target) / np.float32(255)
    return np.asarray(np.einsum("pv,pv,v->p", difference, difference, weight / max(1, weight.sum())), np.float32)


def _repeat_costs(
    patches: Patches, shortlist: NDArray[np.int64], laid: NDArray[np.int64], at: tuple[int, int]
) -> NDArray[np.float32]:
    """Cost of repeating nearby content: a sum over the patches laid around `at`, by distance in the photograph."""
    row, column = at
    near = laid[max(0, row - MEMORY_STEPS) : row + 1, max(0, column - MEMORY_STEPS) : column + MEMORY_STEPS + 1]
    near = near[near >= 0]
    apart = patches.centres[shortlist][:, None] - patches.centres[near]
    return np.asarray(REPEAT_WEIGHT * np.exp(-np.square(apart / REPEAT_PX).sum(-1)).sum(1), np.float32)
