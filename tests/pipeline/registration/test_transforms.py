"""Affine transforms: fitted, inverted, scaled and described."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.errors import BadAnnotationError
from pipeline.registration import Affine, as_points, fit_affine, fit_similarity

POINTS = as_points([(0, 0), (900, 40), (130, 700), (500, 333)])
BENT = Affine(0.98, -0.21, 55.0, 0.19, 1.03, -7.5)


def test_a_transform_and_its_inverse_undo_each_other() -> None:
    assert BENT.inverse().after(BENT).numbers == pytest.approx((1, 0, 0, 0, 1, 0), abs=1e-12)
    assert BENT.inverse().moved(BENT.moved(POINTS)) == pytest.approx(POINTS)


def test_in_other_units_it_moves_the_same_places() -> None:
    in_um = BENT.scaled(moving=0.25, fixed=0.5)
    assert in_um.moved(POINTS * 0.25) == pytest.approx(BENT.moved(POINTS) * 0.5)


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_points_give_back_the_similarity_that_moved_them(is_mirrored: bool) -> None:
    turn = np.radians(250)
    linear = 1.04 * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    linear = linear @ np.diag([-1.0 if is_mirrored else 1.0, 1.0])
    truth = Affine.of_matrix(np.column_stack([linear, (10.0, 20.0)]))
    found = fit_similarity(POINTS, truth.moved(POINTS), is_mirrored=is_mirrored)
    assert found.numbers == pytest.approx(truth.numbers)
    assert (found.degrees, found.scale, found.is_mirrored) == (pytest.approx(250), pytest.approx(1.04), is_mirrored)
    assert found.shear == pytest.approx(0, abs=1e-9)


def test_three_points_give_back_the_affine_transform() -> None:
    assert fit_affine(POINTS[:3], BENT.moved(POINTS[:3])).numbers == pytest.approx(BENT.numbers)


@pytest.mark.parametrize("points", [[(0, 0), (1, 1), (2, 2)], [(5, 5), (5, 5), (5, 5)], [(0, 0), (1, 1)]])
def test_points_on_a_line_give_no_affine_transform(points) -> None:
    with pytest.raises(BadAnnotationError):
        fit_affine(as_points(points), POINTS[: len(points)])
    with pytest.raises(BadAnnotationError):
        fit_affine(POINTS[: len(points)], as_points(points))


def test_points_in_one_place_give_no_turn() -> None:
    with pytest.raises(BadAnnotationError, match="all in one place"):
        fit_similarity(as_points([(3, 3), (3, 3)]), POINTS[:2])
