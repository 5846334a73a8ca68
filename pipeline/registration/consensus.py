"""The rigid transform on which most matches agree, among many that are wrong: RANSAC with a fixed seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.registration.features import Matches
from pipeline.registration.transform import Affine, Points, distances, fit_affine, fit_similarity

SEED = 0
TRIES = 60_000
MAX_TRIED = 3000
MAX_SCALE_CHANGE = 0.1
"""Sections shrink and stretch a little; more is another tissue, or a wrong pixel size."""
MAX_SHEAR = 0.2
TOLERANCE_PX = 8.0
MIN_AGREEING, MIN_AGREEING_SHARE = 5, 0.2
"""Of the patches, to correct a transform: fewer agree by chance."""
_MIN_AFFINE = 12
_ROUNDS, _SPREADS, _LEAST_TOLERANCE_PX = 5, 3.0, 1.0
_TURN_TOLERANCE = 30.0
_MIN_APART_PX = 40.0


@dataclass(frozen=True)
class Consensus:
    """A transform, in pixels of the comparison, and the matches that agree with it."""

    transform: Affine
    agreeing: NDArray[np.bool_]

    @property
    def count(self) -> int:
        return int(self.agreeing.sum())


def find_consensus(matches: Matches, most: int, *, tolerance_px: float = TOLERANCE_PX) -> list[Consensus]:
    """Up to `most` different transforms (turn, shift and a little scale), the one with most matches first."""
    found: list[Consensus] = []
    left = np.ones(len(matches), np.bool_)
    for _ in range(most):
        if left.sum() < 6:
            break
        part = Matches(matches.moving[left], matches.fixed[left], matches.degrees[left])
        best = _best(part, tolerance_px)
        if best is None:
            break
        agreeing = np.zeros(len(matches), np.bool_)
        agreeing[np.flatnonzero(left)[best.agreeing]] = True
        found.append(Consensus(best.transform, agreeing))
        left &= ~agreeing
    return found


def fit_robustly(
    moving: Points, fixed: Points, tolerance_px: float, *, is_affine: bool
) -> tuple[Affine, NDArray[np.bool_]] | None:
    """A transform near the identity on which most pairs agree, and those pairs; None if too few do."""
    turns = np.zeros(len(moving))
    best = _best(Matches(moving, fixed, turns), tolerance_px) if len(moving) >= 6 else None
    if best is None or best.count < max(MIN_AGREEING, MIN_AGREEING_SHARE * len(moving)):
        return None
    transform, agreeing = best.transform, best.agreeing
    for _ in range(_ROUNDS):
        # Pairs that are far off for no good reason would pull a fit by least squares towards them.
        spread = float(np.median(distances(transform, moving[agreeing], fixed[agreeing])))
        near = distances(transform, moving, fixed) < np.clip(_SPREADS * spread, _LEAST_TOLERANCE_PX, tolerance_px)
        if near.sum() < MIN_AGREEING:
            break
        can_bend = is_affine and near.sum() >= _MIN_AFFINE
        closer = (fit_affine if can_bend else fit_similarity)(moving[near], fixed[near])
        if not is_plausible(closer):
            break
        transform, agreeing = closer, np.asarray(near, np.bool_)
    return transform, agreeing


def is_plausible(transform: Affine) -> bool:
    """Whether tissue can have been deformed that much between two sections."""
    return abs(transform.scale - 1) <= MAX_SCALE_CHANGE and transform.shear <= MAX_SHEAR


def _best(matches: Matches, tolerance_px: float) -> Consensus | None:
    turns, shifts = _hypotheses(matches)
    if not len(turns):
        return None
    from_ = matches.moving[:, 0] + 1j * matches.moving[:, 1]
    to = matches.fixed[:, 0] + 1j * matches.fixed[:, 1]
    counts = np.empty(len(turns), np.int64)
    for start in range(0, len(turns), 256):
        part = slice(start, start + 256)
        off = np.abs(turns[part, None] * from_ + shifts[part, None] - to)
        counts[part] = (off < tolerance_px).sum(1)
    best = int(counts.argmax())
    agreeing = np.abs(turns[best] * from_ + shifts[best] - to) < tolerance_px
    transform = None
    for _ in range(4):
        if agreeing.sum() < 3:
            return None
        transform = fit_similarity(matches.moving[agreeing], matches.fixed[agreeing])
        agreeing = distances(transform, matches.moving, matches.fixed) < tolerance_px
    if transform is None or not is_plausible(transform):
        return None
    return Consensus(transform, np.asarray(agreeing, np.bool_))


def _hypotheses(matches: Matches) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Turns (with scale) and shifts, as complex numbers, of random pairs of matches that fit together."""
    random = np.random.default_rng(SEED)
    one, other = random.integers(0, len(matches), (2, TRIES))
    from_ = matches.moving[:, 0] + 1j * matches.moving[:, 1]
    to = matches.fixed[:, 0] + 1j * matches.fixed[:, 1]
    before, after = from_[other] - from_[one], to[other] - to[one]
    apart = np.abs(before) > _MIN_APART_PX
    one, before, after = one[apart], before[apart], after[apart]
    other = other[apart]
    turn = after / before
    degrees = np.degrees(np.angle(turn))
    fits = np.abs(np.abs(turn) - 1) <= MAX_SCALE_CHANGE
    for chosen in (one, other):
        fits &= np.abs((degrees - matches.degrees[chosen] + 180) % 360 - 180) < _TURN_TOLERANCE
    turn, one = turn[fits][:MAX_TRIED], one[fits][:MAX_TRIED]
    return turn, to[one] - turn * from_[one]
