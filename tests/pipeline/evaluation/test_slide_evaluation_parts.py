"""Parts of the evaluation of slide-level models: linear models, clinical columns, measures of survival."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.errors import BadManifestError
from pipeline.evaluation.slide_level.compare import hazards_of
from pipeline.evaluation.slide_level.covariates import covariate_matrix, read_covariates
from pipeline.evaluation.slide_level.cox_ridge import cox_ridge
from pipeline.evaluation.slide_level.linear import STRENGTHS, Known, assign_folds, fit_linear
from pipeline.evaluation.slide_level.material import THE_MODEL, CoxCurves, DiscreteCurves, Material, Predictions, pooled
from pipeline.evaluation.slide_level.measures import measure
from pipeline.evaluation.slide_level.survival_measures import FollowUp, deviance_residuals, survival_part
from pipeline.evaluation.statistics.bootstrap import Resamples
from pipeline.evaluation.statistics.survival.breslow import breslow
from pipeline.evaluation.statistics.survival.brier import brier_scores, integrated_brier_score
from pipeline.evaluation.statistics.survival.censoring import censoring_of
from pipeline.evaluation.statistics.survival.concordance import harrells_c, unos_c
from pipeline.settings.config import EvaluateConfig
from pipeline.slide_level.clinical import load_clinical
from training.foundation.errors import BadRecipeError

SURVIVAL = {"name": "survival", "kind": "cox", "classes": [], "bounds": []}


def followed(number=60, seed=0):
    """Risks, times that fall with them, and events, of which some are censored and some times are equal."""
    random = np.random.default_rng(seed)
    risks = random.normal(size=number)
    times = np.ceil(10 * random.exponential(size=number) * np.exp(-risks)) + 1
    return risks, times, random.random(number) < 0.7


def material(risks, times, events, median=0.0, *, trained=None):
    """A cohort whose own follow-up, or another's, is also that of the training patients."""
    truth = np.stack([times, events.astype(float)], axis=1)
    trained_risks, trained_nc = (risks, truth) if trained is None else trained
    hazard = breslow(trained_nc[:, 0], trained_nc[:, 1] == 1, trained_risks)
    names = tuple(f"P-{index}" for index in range(len(times)))
    own = Predictions(risks[:, None], median, (CoxCurves(hazard, risks),))
    return Material(SURVIVAL, names, ("m-1",) * len(times), np.array(names), truth, trained_nc, {THE_MODEL: own})


def measured(of: Material, bootstrap=50):
    resamples = Resamples.draw(of.patients, resamples=bootstrap, seed=0)
    return measure(of, of.model, resamples, EvaluateConfig(bootstrap=bootstrap)).measures


def test_survival_measures_are_those_of_the_statistics():
    trained_risks, trained_times, trained_events = followed(80, 1)
    trained = trained_risks, np.stack([trained_times, trained_events], axis=1).astype(float)
    risks, times, events = followed()
    of = material(risks, times, events, trained=trained)
    found = measured(of)

    censoring = censoring_of(trained_times, trained_events)
    tau = min(np.quantile(trained_times, 0.9), times.max())
    horizons = FollowUp.of(of).horizons(of.model.last_time)
    survival = breslow(trained_times, trained_events, trained_risks).survival(risks, horizons)
    brier = integrated_brier_score(brier_scores(times, events, survival, horizons, censoring), horizons)
    assert found["Harrell's C"].value == harrells_c(times, events, risks).value
    assert found["Uno's C"].value == unos_c(times, events, risks, censoring, tau=tau).value
    assert found["integrated Brier score"].value == brier
    assert 0 < brier < 0.25
    assert all(m.low < m.value < m.high for m in found.values())


def test_risks_of_the_opposite_sign_have_a_concordance_below_a_half():
    risks, times, events = followed()
    right, flipped = (measured(material(sign * risks, times, events)) for sign in (1, -1))

    assert right["Harrell's C"].value > 0.6
    assert flipped["Harrell's C"].value < 0.4
    assert flipped["Harrell's C"].high < 0.5
    assert right["Harrell's C"].value + flipped["Harrell's C"].value == pytest.approx(1)


def test_an_empty_risk_group_says_so():
    risks, times, events = followed()
    part = survival_part(material(risks, times, events, median=-100.0), FollowUp.of(material(risks, times, events)), 10)

    assert [(group.name, group.patients) for group in part.groups] == [("low risk", 0), ("high risk", len(risks))]
    assert part.log_rank.p_value is None
    assert any(note.startswith("No patient has low risk") for note in part.notes)
    assert any("no patients in low risk" in note for note in part.notes)


def test_without_events_or_training_patients_nothing_is_invented():
    risks, times, events = followed()
    of = material(risks, times, events)
    nobody = Material(**{**vars(of), "truth_nc": np.stack([times, np.zeros(len(times))], axis=1)})
    part = survival_part(nobody, FollowUp.of(nobody), 10)
    assert "No tested unit has an event" in part.notes[0]
    assert all(m.value is None for m in measured(nobody).values())

    model = Predictions(risks[:, None], 0.0)
    alone = Material(**{**vars(of), "trained_nc": np.zeros((0, 2)), "by_method": {THE_MODEL: model}})
    assert measured(alone)["Uno's C"].value is None
    assert measured(alone)["Harrell's C"].value is not None
    part = survival_part(alone, FollowUp.of(alone), 10)
    assert len(part.groups) == 2
    assert part.calibration == ()


def testhazards_of_of_intervals_give_back_the_survival_at_their_ends():
    survival = np.array([[0.9, 0.5, 0.1], [1.0, 0.3, 0.0], [0.2, 0.0, 0.0]])
    bounds = (3.0, 8.0, 20.0)
    np.testing.assert_allclose(DiscreteCurves(hazards_of(survival), bounds).at(np.array(bounds)), survival, atol=1e-12)


def test_an_early_event_of_a_patient_at_low_risk_is_the_most_unexpected_one():
    risks, times, events = followed()
    risks[7], times[7], events[7] = -4.0, 1.0, True
    risks[8], times[8], events[8] = 3.0, times.max(), False
    residuals = deviance_residuals(material(risks, times, events))

    assert set(np.argsort(-np.abs(residuals))[:2].tolist()) == {7, 8}
    assert residuals[7] > 2 > -2 > residuals[8]


def test_pooled_risks_are_measured_from_each_model_s_own_median():
    first, second = followed(20, 1), followed(30, 2)
    parts = [material(*first, median=0.5), material(*second, median=-2.0)]
    both = pooled(parts)

    np.testing.assert_allclose(both.model.values_nk[:, 0], np.concatenate([first[0] - 0.5, second[0] + 2.0]))
    assert both.model.median_risk == 0.0
    time = np.array([3.0])
    expected = np.concatenate([part.model.survival(time) for part in parts])
    np.testing.assert_array_equal(both.model.survival(time), expected)


def naive_loss(x, times, events, beta, strength):
    """The penalised negative log partial likelihood, risk set by risk set."""
    risks = x @ beta
    terms = [np.log(np.exp(risks[times >= times[k]]).sum()) - risks[k] for k in np.flatnonzero(events)]
    return sum(terms) + strength / 2 * beta @ beta


@given(st.integers(0, 10_000), st.sampled_from(STRENGTHS))
def test_no_step_away_from_the_cox_model_s_coefficients_lowers_its_loss(seed, strength):
    random = np.random.default_rng(seed)
    x = random.normal(size=(25, 3)) * (1, 5, 0.2)
    times, events = random.integers(1, 9, 25).astype(float), random.random(25) < 0.6
    events[0] = True
    beta = cox_ridge(x, times, events, strength)
    least = naive_loss(x, times, events, beta, strength)

    for step in (*np.eye(3), *-np.eye(3)):
        assert naive_loss(x, times, events, beta + 1e-3 * step, strength) > least


def test_more_columns_than_units_give_the_predictions_of_all_columns():
    from sklearn.linear_model import Ridge

    random = np.random.default_rng(0)
    x, tested = random.normal(size=(20, 50)), random.normal(size=(7, 50))
    truth = x[:, :2].sum(1) + 0.1 * random.normal(size=20)
    fitted = fit_linear("number", Known(x, truth[:, None], [f"P-{n}" for n in range(20)]), tested, 0)

    scaled = (x - x.mean(0)) / x.std(0)
    directly = Ridge(alpha=fitted.strength).fit(scaled, truth).predict((tested - x.mean(0)) / x.std(0))
    np.testing.assert_allclose(fitted.tested_nk[:, 0], directly, rtol=1e-8)


def test_all_kinds_are_fitted_and_slides_of_a_patient_stay_in_one_fold():
    random = np.random.default_rng(3)
    x = random.normal(size=(40, 4))
    patients = [f"P-{n // 2}" for n in range(40)]
    grade = np.clip(np.round(x[:, 0] + 1), 0, 2)
    times = np.exp(-2 * x[:, 1]) + 0.1
    fold_n = assign_folds("class", Known(x, grade[:, None], patients))
    assert (fold_n[::2] == fold_n[1::2]).all()
    assert set(fold_n.tolist()) == set(range(5))

    classes = fit_linear("class", Known(x, grade[:, None], patients), x, 3)
    np.testing.assert_allclose(classes.tested_nk.sum(1), 1)
    assert (classes.tested_nk.argmax(1) == grade).mean() > 0.7
    survival = fit_linear("survival", Known(x, np.stack([times, np.ones(40)], 1), patients), x, 0)
    assert harrells_c(times, np.ones(40, bool), survival.tested_nk[:, 0]).value > 0.95


@pytest.fixture
def cohort():
    entries = tuple(SlideEntry(path=f"{n}.svs", slide_id=f"S-{n}", patient_id=f"P-{n}") for n in range(4))
    return Cohort(path=Path("cohort.csv"), entries=entries)


def test_numbers_categories_and_missing_values_become_columns(cohort, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("patient_id,age,centre\nP-0,50,x\nP-1,,y\nP-2,70,y\nP-3,65,z\n")
    read = read_covariates(("age", "centre"), cohort, load_clinical(table), "patient", ())
    matrix, names = covariate_matrix(read, [f"P-{n}" for n in range(4)], {"P-0", "P-1", "P-2"})

    assert names == ["age", "age is missing", "centre = x", "centre = y"]
    # The mean of the training units, 60, where there is none; z is no category of theirs.
    assert matrix.tolist() == [[50, 0, 1, 0], [60, 1, 0, 1], [70, 0, 0, 1], [65, 0, 0, 0]]


def test_covariates_that_can_be_read_in_two_ways_or_are_targets_are_refused(cohort, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text('patient_id,dose,months\nP-0,"1,234",1\nP-1,"2,5",2\n')
    clinical = load_clinical(table)

    with pytest.raises(BadManifestError, match="fraction or a number of thousands"):
        read_covariates(("dose",), cohort, clinical, "patient", ())
    with pytest.raises(BadRecipeError, match="would know the answer"):
        read_covariates(("months",), cohort, clinical, "patient", {"months"})
    with pytest.raises(BadManifestError, match="no column `size`"):
        read_covariates(("size",), cohort, clinical, "patient", ())
