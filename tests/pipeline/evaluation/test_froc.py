"""Lesion-level FROC: a case worked by hand, comparison with MONAI's functions, and from outlines to a mask."""

import warnings

import numpy as np
import pytest
from shapely.geometry import box

from pipeline.errors import BadAnnotationError
from pipeline.evaluation.statistics.froc import SlideHits, froc, froc_curve, hit_slide, sensitivities
from pipeline.evaluation.statistics.lesions import evaluation_downsample, lesions_of, number_lesions, rasterised

MPP0, DOWNSAMPLE = (
    0.5,
    16,
)  # a mask of 8 µm/px: grown by less than 75 / 16 = 4.6875 px, isolated below 275 / 8 = 34.375 px


def mask():
    """Two lesions and isolated tumour cells on a slide of 3200 × 2400 px."""
    mask_yx = np.zeros((150, 200), bool)
    mask_yx[20:60, 20:60] = True  # grown by 4 px to 48 × 48: longer axis 4 · 48 / √12 = 55 px
    mask_yx[100:140, 100:120] = True  # 48 × 28: 55 px
    mask_yx[20:24, 150:154] = True  # about 12 × 12: 14 px, isolated tumour cells
    return mask_yx


def candidates(*rows):
    """(confidence, x, y) of pixels of the mask, in level-0 pixels."""
    return np.array([(p, x * DOWNSAMPLE + 8, y * DOWNSAMPLE + 8) for p, x, y in rows], float).reshape(-1, 3)


TUMOUR_SLIDE = candidates(
    (0.90, 40, 40),  # lesion 1
    (0.60, 45, 45),  # lesion 1 again: neither counted again nor a false positive
    (0.80, 17, 40),  # 3 px left of lesion 1: inside, because the lesion was grown
    (0.95, 151, 21),  # isolated tumour cells: neither
    (0.70, 190, 140),  # outside any lesion: false positive
    (0.30, 110, 120),  # lesion 2
)
NEGATIVE_SLIDE = candidates((0.85, 5, 5), (0.20, 100, 100))


@pytest.fixture(scope="module")
def lesions():
    return number_lesions(mask(), mpp0=MPP0, downsample=DOWNSAMPLE)


@pytest.fixture(scope="module")
def slides(lesions):
    return [hit_slide("a", "p", TUMOUR_SLIDE, lesions), hit_slide("b", "q", NEGATIVE_SLIDE, None)]


def test_lesions_grow_by_less_than_half_of_75_um_and_small_ones_are_isolated_cells(lesions):
    assert lesions.count == 3
    assert len(lesions.isolated) == 1
    assert lesions.number_yx[16, 40] == lesions.number_yx[40, 40] > 0  # 4 px above the outline: 4 < 4.6875
    assert lesions.number_yx[15, 40] == 0  # 5 px
    assert lesions.number_yx[22, 152] == lesions.isolated[0]


def test_a_hole_belongs_to_its_lesion_and_lesions_that_touch_by_a_corner_are_one():
    mask_yx = np.zeros((150, 200), bool)
    mask_yx[20:80, 20:80] = True
    mask_yx[35:65, 35:65] = False
    mask_yx[88:130, 88:130] = True  # 8 px right and below: after growing they meet at their corners
    labelled = number_lesions(mask_yx, mpp0=MPP0, downsample=DOWNSAMPLE)

    assert labelled.number_yx[50, 50] > 0
    apart = mask_yx.copy()
    apart[:, 80:] = np.roll(mask_yx[:, 80:], 12, axis=1)
    assert number_lesions(apart, mpp0=MPP0, downsample=DOWNSAMPLE).count == 2


def test_each_lesion_counts_once_with_its_best_score(slides):
    assert slides[0].false_positives.tolist() == [0.7]
    assert sorted(slides[0].lesion_scores.tolist()) == [0.0, 0.3, 0.9]
    assert slides[0].num_lesions == 2
    assert slides[1].false_positives.tolist() == [0.85, 0.2]


def test_the_curve_and_the_score_are_those_worked_out_by_hand(slides):
    # Distinct scores: 0 (isolated cells), 0.2, 0.3, 0.7, 0.85, 0.9; the lowest is dropped. From 0.9 down, two slides:
    #   from 0.9: 0 FP, 1 of 2 lesions | 0.85: 1 FP, 1 | 0.7: 2 FP, 1 | 0.3: 2 FP, 2 | 0.2: 3 FP, 2
    false_positives, sensitivity = froc_curve(slides)
    assert false_positives.tolist() == [0, 0, 0.5, 1, 1, 1.5]
    assert sensitivity.tolist() == [0, 0.5, 0.5, 0.5, 1, 1]

    # at 1/4 and 1/2 false positives per slide one lesion of two, from 1 on both
    assert sensitivities((false_positives, sensitivity)).tolist() == [0.5, 0.5, 1, 1, 1, 1]
    result = froc("tumour", slides, isolated=1, candidates=8, resamples=100, seed=0)
    assert result.score.value == pytest.approx(5 / 6)
    assert (result.lesions, result.isolated, result.slides) == (2, 1, 2)
    assert result.score.low is None  # two patients are too few for an interval


def test_the_lowest_score_is_dropped_as_the_challenge_does():
    """If every lesion is found and none is isolated, a real score is dropped: here a false positive of 0.2."""
    slides = [
        SlideHits("a", "p", np.array([0.7]), np.array([0.9, 0.3]), 2),
        SlideHits("b", "q", np.array([0.2]), [], 0),
    ]

    false_positives, _ = froc_curve(slides)

    assert false_positives.max() == 0.5


def test_nothing_found_is_a_sensitivity_of_nought_and_no_lesion_is_no_curve(lesions):
    nothing = hit_slide("a", "p", candidates(), lesions)

    assert sensitivities(froc_curve([nothing])).tolist() == [0] * 6
    assert froc_curve([hit_slide("b", "q", NEGATIVE_SLIDE, None)]) is None
    assert froc("x", [hit_slide("b", "q", NEGATIVE_SLIDE, None)], isolated=0, candidates=2, resamples=9, seed=0) is None


def test_intervals_draw_patients_and_a_patient_drawn_twice_counts_twice(slides):
    twice = froc_curve(slides, np.array([2.0, 1.0]))
    copies = froc_curve([slides[0], slides[0], slides[1]])
    assert all(np.array_equal(one, other) for one, other in zip(twice, copies, strict=True))
    without = froc_curve(slides, np.array([1.0, 0.0]))
    assert all(np.array_equal(one, other) for one, other in zip(without, froc_curve(slides[:1]), strict=True))

    many = [SlideHits(f"s{n}", f"p{n}", np.array([n / 20]), np.array([0.3 + n / 20, 0.0]), 2) for n in range(12)]
    result = froc("tumour", many, isolated=0, candidates=24, resamples=200, seed=1)
    assert result.score.low < result.score.value < result.score.high
    assert result.score.resamples == 200


@pytest.mark.parametrize("seed", range(3))
def test_monai_s_functions_agree_where_its_definition_is_the_challenge_s(seed):
    """MONAI grows by the same 75 µm and adds them to its `itc_diameter` of 200: 275 µm in both."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from monai.apps.pathology import utils  # slow to import, so only here
        from monai.metrics import froc as froc_of_monai
    random = np.random.default_rng(seed)
    mask_yx = np.zeros((150, 220), bool)
    for _ in range(7):
        y, x, height, width = random.integers((0, 0, 3, 3), (110, 180, 40, 40))
        mask_yx[y : y + height, x : x + width] = True
    ours = number_lesions(mask_yx, mpp0=MPP0, downsample=DOWNSAMPLE)
    theirs = utils.compute_multi_instance_mask(mask_yx.astype(np.uint8), 75 / (8 * 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-image renamed `major_axis_length`
        isolated = utils.compute_isolated_tumor_cells(theirs, (200 + 75) / 8)
    assert np.array_equal(ours.number_yx, theirs)
    assert list(ours.isolated) == isolated

    where = [(round(random.uniform(), 2), random.integers(220), random.integers(150)) for _ in range(40)]
    points = candidates(*where)
    hits = hit_slide("a", "p", points, ours)
    fp, tp, number = froc_of_monai.compute_fp_tp_probs(points[:, 0], points[:, 2], points[:, 1], theirs, isolated, 4)
    curve = froc_of_monai.compute_froc_curve_data(fp.astype(np.float32), tp, number, 1)
    assert (hits.num_lesions, len(hits.false_positives)) == (number, len(fp))
    assert sensitivities(froc_curve([hits])).mean() == pytest.approx(froc_of_monai.compute_froc_score(*curve))


def test_outlines_become_the_pixels_whose_centres_they_hold():
    size_wh_px0 = (3200, 2400)
    pixels = rasterised([box(160, 320, 480, 400)], size_wh_px0, DOWNSAMPLE)

    assert pixels.shape == (150, 200)
    assert np.argwhere(pixels).min(0).tolist() == [20, 10]
    assert np.argwhere(pixels).max(0).tolist() == [24, 29]
    assert pixels.sum() == 5 * 20


def test_an_outline_between_the_centres_is_not_lost_and_one_at_the_edge_stays_inside():
    labelled = lesions_of([box(100, 100, 103, 102), box(3195, 2395, 3200.5, 2400.5)], (3200, 2400), MPP0)

    assert (labelled.count, len(labelled.isolated)) == (2, 2)
    assert labelled.at(np.array([101.0]), np.array([101.0]))[0] > 0


def test_a_slide_that_claims_to_be_larger_than_any_is_refused_before_its_mask_is_made():
    with pytest.raises(BadAnnotationError, match=r"2097152 × 2097152 px at 0\.25 µm/px: the mask of its lesions would"):
        lesions_of([box(0, 0, 10, 10)], (2**21, 2**21), 0.25)


def test_the_mask_is_near_the_challenge_s_resolution():
    assert [evaluation_downsample(mpp) for mpp in (0.243, 0.25, 0.5, 1.0, 8.0, 30.0)] == [32, 32, 16, 8, 1, 1]
