"""Lesion-level FROC exactly as CAMELYON16's evaluation defines it (Ehteshami Bejnordi et al. 2017, JAMA 318:2199).

A lesion has the highest score of the candidates in it; candidates in isolated tumour cells count neither as right nor
as wrong; all others are false positives. Over all slides, thresholds are the distinct scores except the lowest (a
lesion that no candidate hit has score 0, as has every lesion of isolated tumour cells), and sensitivity is interpolated
linearly at 1/4, 1/2, 1, 2, 4 and 8 false positives per slide. The score is the mean of the six.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, Values, estimate
from pipeline.evaluation.statistics.lesions import Lesions

FALSE_POSITIVES_PER_SLIDE = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

Candidates = NDArray[np.float64]
"""(candidates, 3): confidence, x and y in level-0 pixels."""


@dataclass(frozen=True)
class SlideHits:
    """Lesions hit by the candidates of one slide, and false positives."""

    slide_id: str
    patient: str
    false_positives: Values
    """Score of each false positive."""
    lesion_scores: Values
    """Best score in each lesion; 0 if it has no candidate, and in isolated tumour cells."""
    num_lesions: int
    """Number without isolated tumour cells."""

    @property
    def num_found(self) -> int:
        """Number of lesions with a candidate in them."""
        return int((self.lesion_scores > 0).sum())


@dataclass(frozen=True)
class Froc:
    """The curve, and sensitivity at the six rates."""

    class_name: str
    score: Estimate
    sensitivities: tuple[Estimate, ...]
    """Sensitivity at each of `FALSE_POSITIVES_PER_SLIDE`."""
    curve_fp: tuple[float, ...]
    """False positives per slide, ascending, and the sensitivity at each."""
    curve_sensitivity: tuple[float, ...]
    slides: int
    patients: int
    lesions: int
    isolated: int
    """Isolated tumour cells, which are not counted."""
    candidates: int


def hit_slide(slide_id: str, patient: str, candidates: Candidates, lesions: Lesions | None) -> SlideHits:
    """Compare a slide's candidates with its lesions.

    Args:
        lesions: None on a slide without any: all candidates are false positives.
    """
    if lesions is None:
        return SlideHits(slide_id, patient, candidates[:, 0], np.zeros(0), 0)
    number = lesions.at(candidates[:, 1], candidates[:, 2])
    scores = np.zeros(lesions.count)
    counted = (number > 0) & ~np.isin(number, lesions.isolated)
    np.maximum.at(scores, number[counted] - 1, candidates[counted, 0])
    return SlideHits(slide_id, patient, candidates[number == 0, 0], scores, lesions.count - len(lesions.isolated))


def froc_curve(slides: Sequence[SlideHits], weights: Values | None = None) -> tuple[Values, Values] | None:
    """False positives per slide (ascending) and sensitivity; None if there is no lesion to count.

    Args:
        weights: how often each slide counts; None: once. A slide of weight 0 is ignored.
    """
    weight = np.ones(len(slides)) if weights is None else weights
    lesions = float(sum(w * slide.num_lesions for w, slide in zip(weight, slides, strict=True)))
    if lesions == 0:
        return None
    fp, fp_weight = _joined([slide.false_positives for slide in slides], weight)
    tp, tp_weight = _joined([slide.lesion_scores for slide in slides], weight)
    thresholds = np.unique(np.concatenate([fp, tp]))[1:]
    false_positives = [*_weight_from(thresholds, fp, fp_weight), 0.0]
    true_positives = [*_weight_from(thresholds, tp, tp_weight), 0.0]
    return np.asarray(false_positives[::-1]) / weight.sum(), np.asarray(true_positives[::-1]) / lesions


def sensitivities(curve: tuple[Values, Values] | None) -> Values:
    """Sensitivity at the six rates, by linear interpolation; beyond the curve's end, its last. NaN without a curve."""
    rates = np.asarray(FALSE_POSITIVES_PER_SLIDE)
    return np.full(len(rates), np.nan) if curve is None else np.interp(rates, *curve)


def froc(
    class_name: str, slides: Sequence[SlideHits], *, isolated: int, candidates: int, resamples: int, seed: int
) -> Froc | None:
    """The FROC of one class with intervals by patient; None if there is no lesion to count."""
    curve = froc_curve(slides)
    if curve is None:
        return None
    drawn = Resamples.draw([slide.patient for slide in slides], resamples=resamples, seed=seed)
    at = np.array(
        [sensitivities(froc_curve(slides, row[drawn.patient_of].astype(np.float64))) for row in drawn.counts_rp]
    )
    at = at.reshape(-1, len(FALSE_POSITIVES_PER_SLIDE))
    values = sensitivities(curve)
    return Froc(
        class_name=class_name,
        score=estimate(float(values.mean()), at.mean(1)),
        sensitivities=tuple(estimate(float(v), column) for v, column in zip(values, at.T, strict=True)),
        curve_fp=tuple(curve[0].tolist()),
        curve_sensitivity=tuple(curve[1].tolist()),
        slides=len(slides),
        patients=drawn.num_patients,
        lesions=sum(slide.num_lesions for slide in slides),
        isolated=isolated,
        candidates=candidates,
    )


def _joined(parts: Sequence[Values], weight: Values) -> tuple[Values, Values]:
    """The scores of all slides with a weight above 0, and the weight of each."""
    kept = [(part, w) for part, w in zip(parts, weight, strict=True) if w > 0]
    if not kept:
        return np.zeros(0), np.zeros(0)
    return np.concatenate([p for p, _ in kept]), np.concatenate([np.full(len(p), w) for p, w in kept])


def _weight_from(thresholds: Values, scores: Values, weight: Values) -> list[float]:
    """For each threshold, the weight of the scores that reach it."""
    order = np.argsort(scores, kind="stable")
    below = np.concatenate([[0.0], np.cumsum(weight[order])])
    reached = below[-1] - below[np.searchsorted(scores[order], thresholds, side="left")]
    return [float(value) for value in reached]
