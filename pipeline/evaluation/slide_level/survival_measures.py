"""Measures of predicted survival: concordance, Brier score, calibration, and two groups by risk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.slide_level.material import Material, Predictions
from pipeline.evaluation.slide_level.result import RiskGroup, SurvivalPart
from pipeline.evaluation.statistics.bootstrap import Resamples, Values
from pipeline.evaluation.statistics.survival.brier import brier_scores, integrated_brier_score
from pipeline.evaluation.statistics.survival.censoring import Censoring, censoring_of
from pipeline.evaluation.statistics.survival.concordance import harrells_c, unos_c
from pipeline.evaluation.statistics.survival.groups import RISK_GROUPS, GroupCurve, group_curves, split_by_risk
from pipeline.evaluation.statistics.survival.horizon_calibration import survival_calibration
from pipeline.evaluation.statistics.survival.log_rank import log_rank

HARRELL, UNO, BRIER = "Harrell's C", "Uno's C", "integrated Brier score"
NUM_HORIZONS = 25
LATE = 0.9
"""Share of the training units whose follow-up has ended by the last horizon: later, few are left to weigh others by."""
UNITS_PER_BIN = 10


@dataclass(frozen=True)
class FollowUp:
    """What measures of survival need besides predictions."""

    times_n: Values
    events_n: NDArray[np.bool_]
    censoring: Censoring | None
    tau: float
    """Events from here on count neither for Uno's C nor for the Brier score."""

    @classmethod
    def of(cls, material: Material) -> FollowUp:
        times, events = material.truth_nc[:, 0], material.truth_nc[:, 1] == 1
        trained = material.trained_nc
        if not len(trained) or not trained[:, 1].any():
            return cls(times, events, None, float(times.max()))
        tau = min(float(np.quantile(trained[:, 0], LATE)), float(times.max()))
        return cls(times, events, censoring_of(trained[:, 0], trained[:, 1] == 1), tau)

    def horizons(self, last_time: float) -> Values:
        """Times at which the Brier score is measured, from the first event on; none if there are fewer than two."""
        before_last = self.times_n[self.times_n < self.times_n.max()]
        if not self.events_n.any() or not len(before_last):
            return np.zeros(0)
        first = float(self.times_n[self.events_n].min())
        last = min(self.tau, last_time, float(before_last.max()))
        return np.linspace(first, last, NUM_HORIZONS) if last > first else np.zeros(0)


Measure = Callable[[NDArray[np.int64]], float | None]
"""A measure of some units, by their indices; a unit may be there several times."""


def survival_measures(follow_up: FollowUp, predictions: Predictions) -> dict[str, Measure]:
    """The measures that can be computed, by name."""
    measures: dict[str, Measure] = {HARRELL: partial(_harrell, follow_up, predictions.values_nk[:, 0])}
    if follow_up.censoring is None:
        return measures
    measures[UNO] = partial(_uno, follow_up, predictions.values_nk[:, 0])
    horizons = follow_up.horizons(predictions.last_time)
    if len(horizons):
        measures[BRIER] = partial(_brier, follow_up, predictions.survival(horizons), horizons)
    return measures


def resampled_by_unit(measure: Measure, resamples: Resamples) -> Values:
    """A measure in each resample of the patients, (resamples,); NaN where it is not defined."""
    values = np.full(len(resamples.counts_rp), np.nan)
    for index, counts_p in enumerate(resamples.counts_rp):
        drawn = np.repeat(np.arange(len(resamples.patient_of)), counts_p[resamples.patient_of])
        value = measure(drawn)
        values[index] = np.nan if value is None else value
    return values


def _harrell(follow_up: FollowUp, risks_n: Values, chosen: NDArray[np.int64]) -> float | None:
    events = follow_up.events_n[chosen]
    return harrells_c(follow_up.times_n[chosen], events, risks_n[chosen]).value if events.any() else None


def _uno(follow_up: FollowUp, risks_n: Values, chosen: NDArray[np.int64]) -> float | None:
    events = follow_up.events_n[chosen]
    if not events.any() or follow_up.censoring is None:
        return None
    try:
        return unos_c(follow_up.times_n[chosen], events, risks_n[chosen], follow_up.censoring, tau=follow_up.tau).value
    except ValueError:  # no training unit was followed for as long as these
        return None


def _brier(follow_up: FollowUp, survival_nh: Values, horizons_h: Values, chosen: NDArray[np.int64]) -> float | None:
    times, events = follow_up.times_n[chosen], follow_up.events_n[chosen]
    if not events.any() or times.max() <= horizons_h[-1] or follow_up.censoring is None:
        return None
    try:
        scores = brier_scores(times, events, survival_nh[chosen], horizons_h, follow_up.censoring)
    except ValueError:  # no training unit was followed for as long as these
        return None
    return integrated_brier_score(scores, horizons_h)


def survival_part(material: Material, follow_up: FollowUp, bins: int) -> SurvivalPart:
    """Calibration at the median follow-up, and two groups by risk."""
    notes: list[str] = []
    times, events, model = follow_up.times_n, follow_up.events_n, material.model
    horizons = follow_up.horizons(model.last_time)
    horizon = float(np.median(times))
    part = SurvivalPart(
        events=int(events.sum()),
        median_follow_up=horizon,
        tau=None if follow_up.censoring is None else follow_up.tau,
        horizons=(float(horizons[0]), float(horizons[-1])) if len(horizons) else None,
    )
    if not events.any():
        return part.with_notes("No tested unit has an event: nothing about survival can be measured.")
    if follow_up.censoring is None:
        notes.append("Uno's C and the Brier score are not available: no training unit with a value is in the manifest.")
    if horizon <= model.last_time:
        predicted = model.survival(np.array([horizon]))[:, 0]
        number = min(bins, max(1, len(times) // UNITS_PER_BIN))
        part = part.with_calibration(survival_calibration(times, events, predicted, horizon, bins=number))
    else:
        notes.append(f"Calibration is not available: survival at {horizon:g} is not predicted.")
    if model.median_risk is None:
        return part.with_notes(*notes, "The package states no median risk, so there are no groups.")
    split = split_by_risk(model.values_nk[:, 0], model.median_risk)
    curves = group_curves(times, events, split.groups_n, RISK_GROUPS)
    tested = log_rank(times, events, split.groups_n, RISK_GROUPS)
    notes += [text for text in (split.statement, tested.reason) if text]
    return part.with_groups(tuple(map(_group, curves)), tested, model.median_risk).with_notes(*notes)


def _group(group: GroupCurve) -> RiskGroup:
    """A group's curve as numbers that JSON can hold: limits that are not known are None."""
    if group.curve is None:
        return RiskGroup(group.name, 0, 0)
    curve = group.curve
    low, high = ([None if np.isnan(value) else float(value) for value in side] for side in (curve.low_e, curve.high_e))
    return RiskGroup(
        name=group.name,
        patients=group.patients,
        events=group.events,
        median=curve.median(),
        last_time=curve.last_time,
        times=tuple(curve.times_e.tolist()),
        survival=tuple(curve.survival_e.tolist()),
        low=tuple(low),
        high=tuple(high),
    )


def deviance_residuals(material: Material) -> Values | None:
    """How unexpected each unit's outcome is, (units,); None if survival is not predicted.

    Martingale residuals, made symmetric (Therneau, Grambsch & Fleming, Biometrika 77:147, 1990): above 0 for an event
    earlier than predicted, below 0 for a follow-up longer than predicted.
    """
    model = material.model
    if not model.curves:
        return None
    events = material.truth_nc[:, 1] == 1
    times = np.minimum(material.truth_nc[:, 0], model.last_time)
    distinct, at = np.unique(times, return_inverse=True)
    own = model.survival(distinct)[np.arange(len(times)), at]
    expected = -np.log(np.clip(own, 1e-12, 1.0))
    residual = events - expected
    inner = residual + np.where(events, np.log(np.maximum(expected, 1e-12)), 0.0)
    return np.asarray(np.sign(residual) * np.sqrt(np.maximum(-2 * inner, 0.0)), np.float64)
