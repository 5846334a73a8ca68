"""Registration of one slide to another by their tissue: suggestions, corrections, and the decision to trust one.

Features on the tissue's structure suggest turns and shifts, and so does a search of all turns. Each suggestion is
corrected with patches on ever finer images. Half of the patches correct, the other half only test: they state the
error, and without enough of them in their place no transform is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import NotRegisteredError
from pipeline.registration.coarse import dice, search_turns
from pipeline.registration.consensus import TOLERANCE_PX, find_consensus, fit_robustly, is_plausible
from pipeline.registration.features import Features, Matches, features_of, match_features
from pipeline.registration.patches import PATCH_PX, Patches, find_patches, reach_at
from pipeline.registration.structure import structure_of
from pipeline.registration.thumbnail import Thumbnail, common_mpp, read_thumbnail
from pipeline.registration.transform import Affine, distances
from pipeline.store.reading.reader import StoreReader

MIN_TESTED = 12
MIN_SHARE = 0.3
MAX_LOG10_CHANCE = -8.0
"""Chance is ten million times smaller than one false acceptance in a hundred suggestions."""
MIN_DICE = 0.4
MAX_ERROR_UM = 100.0
"""The stated error is the median; where it was larger, the true one of torn sections reached 200 µm."""
RIVAL_SHARE = 0.75
"""A different transform that finds this share of the best one's patches makes the result ambiguous. Two sections on
one slide are half."""
_SUGGESTIONS = 3
_SHRINKS = (4, 2, 1)
_MIN_SIDE_PX = 150
_LARGE_SIDE_PX = 1200


@dataclass(frozen=True)
class TissueRegistration:
    """A trusted transform.

    Attributes:
        transform: level-0 pixels of the moving slide to level-0 pixels of the fixed one.
        error_um: median distance, on the fixed slide, of tested patches from where the transform puts them.
        tested: patches that were not used to find the transform.
        share_near: of them, those found in their place.
        dice: overlap of the two slides' tissue.
        mpp: resolution of the comparison.
    """

    transform: Affine
    error_um: float
    tested: int
    share_near: float
    dice: float
    matches: int
    mpp: float


@dataclass(frozen=True)
class _Tried:
    """A corrected suggestion, in pixels of the comparison, with the patches that test it."""

    transform: Affine
    is_mirrored: bool
    patches: Patches
    dice: float
    matches: int

    @property
    def median_px(self) -> float:
        return float(np.median(self.patches.distances_px)) if len(self.patches) else float("inf")

    @property
    def is_trusted(self) -> bool:
        tested = self.patches
        return (
            len(tested) >= MIN_TESTED
            and tested.share_near >= MIN_SHARE
            and tested.log10_chance <= MAX_LOG10_CHANCE
            and self.dice >= MIN_DICE
        )


class _Side:
    """One slide at the resolutions of the search."""

    def __init__(self, slide: Thumbnail) -> None:
        self.slide = slide
        smallest = min(slide.size_wh_px)
        self.by_shrink = {
            shrink: structure_of(slide, shrink)
            for shrink in _SHRINKS
            if shrink == 1 or smallest >= shrink * _MIN_SIDE_PX
        }

    @cached_property
    def features(self) -> list[Features]:
        """Features in pixels of the comparison; on large slides found at half its resolution, where they suffice."""
        shrink = 2 if 2 in self.by_shrink and max(self.slide.size_wh_px) > _LARGE_SIDE_PX else 1
        return [found.enlarged(shrink) for found in features_of(self.by_shrink[shrink])]

    def flipped(self) -> _Side:
        mirrored = replace(
            self.slide,
            pixels=np.ascontiguousarray(self.slide.pixels[:, ::-1]),
            tissue_yx=np.ascontiguousarray(self.slide.tissue_yx[:, ::-1]),
        )
        side = _Side.__new__(_Side)
        side.slide, side.by_shrink = mirrored, {key: value.flipped() for key, value in self.by_shrink.items()}
        return side

    @property
    def flip(self) -> Affine:
        return Affine(-1, 0, self.slide.size_wh_px[0] - 1, 0, 1, 0)


def register_slides(
    moving: StoreReader, fixed: StoreReader, *, report: Callable[[str], None] = lambda _: None
) -> TissueRegistration:
    """The transform from one slide to another.

    Raises:
        NotRegisteredError: no transform can be trusted, or several can.
        GemslideError: as `common_mpp` and `read_thumbnail`.
    """
    mpp = common_mpp(moving, fixed)
    report(f"reading both slides at {mpp:.1f} µm per pixel")
    slides = read_thumbnail(moving, mpp), read_thumbnail(fixed, mpp)
    report("comparing their tissue")
    tried = _best_of(*slides)
    corner = Affine(1, 0, 0.5, 0, 1, 0.5)  # level-0 pixels are counted from the corner of the slide
    on_corners = corner.after(tried.transform).after(corner.inverse())
    transform = on_corners.scaled(moving=_step(slides[0], moving), fixed=_step(slides[1], fixed))
    return TissueRegistration(
        transform, tried.median_px * mpp, len(tried.patches), tried.patches.share_near, tried.dice, tried.matches, mpp
    )


def _step(slide: Thumbnail, reader: StoreReader) -> float:
    """Level-0 pixels per pixel of the comparison."""
    return slide.mpp / reader.mpp0


def _best_of(moving: Thumbnail, fixed: Thumbnail) -> _Tried:
    one, other = _Side(moving), _Side(fixed)
    tried = [*_try_all(one, other, is_mirrored=False), *_try_all(one.flipped(), other, is_mirrored=True)]
    names = f"slides {moving.slide_id} and {fixed.slide_id}"
    tried.sort(key=lambda one: (one.is_trusted, one.patches.num_near, -one.patches.log10_chance), reverse=True)
    if not tried or not tried[0].is_trusted:
        raise NotRegisteredError(f"{names}: {_why(tried, moving.mpp)} {_INSTEAD}")
    best = tried[0]
    for rival in tried[1:]:
        if _is_close_second(rival, best) and _is_elsewhere(rival, best, one):
            raise NotRegisteredError(
                f"{names}: two different positions fit about equally well ({best.patches.share_near:.0%} and "
                f"{rival.patches.share_near:.0%} of the places compared), as with symmetric tissue. {_INSTEAD}"
            )
    at_same_place = [one_of for one_of in tried if _is_close_second(one_of, best)]
    best = min(at_same_place, key=lambda one_of: one_of.median_px)
    if best.median_px * moving.mpp > MAX_ERROR_UM:
        raise NotRegisteredError(
            f"{names}: the best position is off by {best.median_px * moving.mpp:.0f} µm at half of the places "
            f"compared; at most {MAX_ERROR_UM:.0f} µm is accepted. {_INSTEAD}"
        )
    if best.is_mirrored:
        best = replace(best, transform=best.transform.after(one.flip))
    return best


_INSTEAD = "Nothing was saved. Check that both are of one block, or register them by points in the side-by-side view."


def _why(tried: list[_Tried], mpp: float) -> str:
    if not tried:
        return "no position was found at which their tissue looks alike."
    best = tried[0]
    if len(best.patches) < MIN_TESTED:
        return f"only {len(best.patches)} places with tissue on both could be compared; {MIN_TESTED} are needed."
    if best.dice < MIN_DICE and best.patches.share_near >= MIN_SHARE:
        return f"at the best position, their tissue overlaps by {best.dice:.0%}; {MIN_DICE:.0%} is needed."
    return (
        f"at the best position, {best.patches.share_near:.0%} of {len(best.patches)} places look alike within "
        f"{best.patches.near_px * mpp:.0f} µm; {MIN_SHARE:.0%} are needed."
    )


def _is_close_second(tried: _Tried, best: _Tried) -> bool:
    """Whether a transform finds nearly as many patches as the best one."""
    return tried.is_trusted and tried.patches.num_near >= RIVAL_SHARE * best.patches.num_near


def _is_elsewhere(rival: _Tried, best: _Tried, one: _Side) -> bool:
    """Whether a transform puts the tissue in another place than the best one."""
    at = best.patches.moving
    mine = best.transform.moved(at)
    if rival.is_mirrored != best.is_mirrored:
        at = one.flip.moved(at)
    return float(np.median(np.linalg.norm(rival.transform.moved(at) - mine, axis=1))) > best.patches.reach_px


def _try_all(one: _Side, other: _Side, *, is_mirrored: bool) -> Iterator[_Tried]:
    structure, fixed = one.by_shrink[1], other.by_shrink[1]
    matches = match_features(one.features, other.features)
    for suggestion in _suggestions(one, other, matches):
        transform = _corrected(suggestion, one, other)
        if transform is not None:
            patches = find_patches(structure, fixed, transform, reach_at(one.slide.mpp))
            tested = patches.chosen(~_is_correcting(patches))
            agreeing = int((distances(transform, matches.moving, matches.fixed) < TOLERANCE_PX).sum())
            overlap = dice(structure.tissue_yx, fixed.tissue_yx, transform)
            yield _Tried(transform, is_mirrored, tested, overlap, agreeing)


def _suggestions(one: _Side, other: _Side, matches: Matches) -> Iterator[Affine]:
    yield from (consensus.transform for consensus in find_consensus(matches, _SUGGESTIONS))
    shrink = max(set(one.by_shrink) & set(other.by_shrink))
    for transform in search_turns(one.by_shrink[shrink], other.by_shrink[shrink], _SUGGESTIONS):
        yield _at_finest(transform, shrink)


def _corrected(suggestion: Affine, one: _Side, other: _Side) -> Affine | None:
    """A suggestion corrected on ever finer images; None where too few patches agree on a correction."""
    transform = suggestion
    for shrink in sorted(set(one.by_shrink) & set(other.by_shrink), reverse=True):
        corrected = _corrected_at(shrink, transform, one, other)
        if corrected is None and shrink == 1:
            return None
        transform = corrected or transform
    return transform


def _corrected_at(shrink: int, transform: Affine, one: _Side, other: _Side) -> Affine | None:
    """A transform corrected twice on images `shrink` times coarser. The finest use half of the patches."""
    coarse = _centred(transform, shrink)
    reach_px = reach_at(one.slide.mpp * shrink)
    for _ in range(2):
        patches = find_patches(one.by_shrink[shrink], other.by_shrink[shrink], coarse, reach_px)
        if shrink == 1:
            patches = patches.chosen(_is_correcting(patches))
        fitted = fit_robustly(
            patches.expected, patches.expected + patches.offsets, 0.8 * patches.near_px, is_affine=shrink < 4
        )
        if fitted is None or not is_plausible(fitted[0].after(coarse)):
            return None
        coarse = fitted[0].after(coarse)
    return _at_finest(coarse, shrink)


def _centred(transform: Affine, shrink: int) -> Affine:
    """A transform between the finest images, between images `shrink` times coarser; pixels count from their centres."""
    shift = Affine(1, 0, 0.5, 0, 1, 0.5)
    scaled = shift.after(transform).after(shift.inverse()).scaled(moving=1 / shrink, fixed=1 / shrink)
    return shift.inverse().after(scaled).after(shift)


def _at_finest(transform: Affine, shrink: int) -> Affine:
    """The reverse of `_centred`."""
    shift = Affine(1, 0, 0.5, 0, 1, 0.5)
    scaled = shift.after(transform).after(shift.inverse()).scaled(moving=shrink, fixed=shrink)
    return shift.inverse().after(scaled).after(shift)


def _is_correcting(patches: Patches) -> NDArray[np.bool_]:
    """Every second patch, as squares of a chessboard, so that both halves cover the tissue. Patches lie on a grid of
    the fixed slide, so a square is in the same half each time."""
    cells = np.floor(patches.expected / PATCH_PX).astype(np.int64)
    return np.asarray(cells.sum(1) % 2 == 0, np.bool_)
