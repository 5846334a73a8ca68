"""Registration from the same places clicked on two slides."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.errors import BadAnnotationError
from pipeline.registration import Affine, Points, as_points, distances, fit_affine, fit_similarity
from pipeline.review.registrations.registration import Registration, SlidePixels, check_transform

Point = tuple[float, float]
MIN_POINTS, MAX_POINTS = 2, 50
MIN_APART_UM = 20.0
"""Closer points do not determine a turn."""
_BEYOND = 0.5
"""Points may lie outside a slide by this share of its size: a page shows the surroundings, too."""


def register_points(moving: SlidePixels, fixed: SlidePixels, pairs: Sequence[tuple[Point, Point]]) -> Registration:
    """The registration that brings clicked places of one slide to those of another, in level-0 pixels.

    Two pairs give a turn and a shift, and the error by how much the distances between them differ. Three or more give
    an affine transform, and from four on the error is how far a pair is off, at the median, that was left out.

    Raises:
        BadAnnotationError: too few or too many pairs, outside a slide, too close together, on one line, or with a
            result that no two sections can have.
    """
    names = f"slides {moving.slide_id} and {fixed.slide_id}"
    if not MIN_POINTS <= len(pairs) <= MAX_POINTS:
        raise BadAnnotationError(f"{names}: {len(pairs)} pairs of points; {MIN_POINTS} to {MAX_POINTS} are accepted.")
    from_um, to_um = (_in_um([pair[side] for pair in pairs], slide) for side, slide in enumerate((moving, fixed)))
    in_um, error_um = _two(from_um, to_um) if len(pairs) == 2 else _several(from_um, to_um)
    check_transform(in_um, names)
    transform = in_um.scaled(moving=1 / moving.mpp0, fixed=1 / fixed.mpp0)
    return Registration(
        moving.slide_id, fixed.slide_id, transform, "points", error_um, len(pairs), moving.sha256, fixed.sha256
    )


def _in_um(points: Sequence[Point], slide: SlidePixels) -> Points:
    for x_px0, y_px0 in points:
        for value, size in zip((x_px0, y_px0), slide.size_wh_px0, strict=True):
            if not (math.isfinite(value) and -_BEYOND * size <= value <= (1 + _BEYOND) * size):
                width, height = slide.size_wh_px0
                raise BadAnnotationError(
                    f"slide {slide.slide_id}: the point ({x_px0:.6g}, {y_px0:.6g}) is not on the slide, which has "
                    f"{width} × {height} px. Click places on the tissue."
                )
    in_um = as_points(points) * slide.mpp0
    spread = float(np.linalg.norm(in_um - in_um.mean(0), axis=1).max())
    if 2 * spread < MIN_APART_UM:
        raise BadAnnotationError(
            f"slide {slide.slide_id}: the points are within {2 * spread:.1f} µm of each other; at least "
            f"{MIN_APART_UM:.0f} µm are needed. Click places far apart."
        )
    return in_um


def _two(from_um: Points, to_um: Points) -> tuple[Affine, float]:
    """A turn and a shift: sizes are known in µm, so that a difference between the distances is the error."""
    similar = fit_similarity(from_um, to_um)
    turn = similar.matrix[:2, :2] / similar.scale
    shift = to_um.mean(0) - turn @ from_um.mean(0)
    rigid = Affine.of_matrix(np.column_stack([turn, shift]))
    return rigid, float(distances(rigid, from_um, to_um).max())


def _several(from_um: Points, to_um: Points) -> tuple[Affine, float | None]:
    whole = fit_affine(from_um, to_um)
    if len(from_um) == 3:
        return whole, None
    off = []
    for index in range(len(from_um)):
        others = np.arange(len(from_um)) != index
        try:
            without = fit_affine(from_um[others], to_um[others])
        except BadAnnotationError:  # the others are on one line: this point cannot be left out
            continue
        off.append(float(distances(without, from_um[index : index + 1], to_um[index : index + 1])[0]))
    return whole, float(np.median(off)) if off else None
