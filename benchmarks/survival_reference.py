"""Reference figures of survival measures by scikit-survival and lifelines, which the tests compare ours with.

    python -m venv /tmp/survival && /tmp/survival/bin/pip install scikit-survival lifelines
    /tmp/survival/bin/python -m benchmarks.survival_reference > benchmarks/results/survival_reference.jsonl

Runs in an environment of its own: scikit-survival is licensed under the GPL, and lifelines 0.30 requires pandas below
3. Neither is a dependency of ours, and both are only called.

Data sets are two that come with lifelines: rearrest of 432 released prisoners in weeks (Rossi, Berk & Lenihan 1980),
recurrence of breast cancer in 686 women in days (GBSG-2: Schumacher et al., J Clin Oncol 12:2086, 1994). Risks are
fixed linear combinations of their columns, rounded to two decimals, so that many are tied, as are many times in weeks.
Rows of even index are for training, the others for testing. Predicted survival at the horizons is
exp(−rate · t · exp(risk − mean risk in training)), a formula that needs no fitted model.

Prints a JSON line per data set: `data` (all that the figures are computed from), `lifelines`, `scikit-survival`,
`versions`. The committed ones are in benchmarks/results/survival_reference.jsonl.
"""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_gbsg2, load_rossi
from lifelines.statistics import multivariate_logrank_test
from lifelines.utils import concordance_index
from numpy.typing import NDArray
from sksurv.linear_model.coxph import BreslowEstimator
from sksurv.metrics import brier_score, concordance_index_censored, concordance_index_ipcw, integrated_brier_score
from sksurv.util import Surv

LIBRARIES = ("scikit-survival", "lifelines", "numpy", "scipy", "pandas", "scikit-learn")


@dataclass(frozen=True)
class Work:
    """A data set: follow-up, a group of each patient, a risk, and the horizons of its scores."""

    name: str
    unit: str
    times_n: NDArray[np.float64]
    events_n: NDArray[np.bool_]
    groups_n: NDArray[np.int64]
    group_names: tuple[str, ...]
    risks_n: NDArray[np.float64]
    tau: float
    horizons_h: tuple[float, ...]
    rate: float
    """Hazard per unit of time in the formula of predicted survival."""


def rossi() -> Work:
    table = load_rossi()
    coefficients = {"fin": -0.38, "age": -0.057, "race": 0.31, "wexp": -0.15, "mar": -0.43, "paro": -0.08, "prio": 0.09}
    return Work(
        name="rossi",
        unit="weeks",
        times_n=table["week"].to_numpy(np.float64),
        events_n=table["arrest"].to_numpy() == 1,
        groups_n=table["fin"].to_numpy(np.int64),
        group_names=("no financial aid", "financial aid"),
        risks_n=risk_of(table, coefficients),
        tau=52.0,
        horizons_h=(4.0, 8.5, 13.0, 20.0, 26.0, 39.0, 45.0, 51.0),
        rate=0.006,
    )


def gbsg2() -> Work:
    table = load_gbsg2()
    grade = table["tgrade"].map({"I": 0, "II": 1, "III": 2}).to_numpy(np.int64)
    coded = table.assign(
        treated=table["horTh"] == "yes", post=table["menostat"] == "Post", grade_2=grade == 1, grade_3=grade == 2
    )
    coefficients = {
        "treated": -0.35, "age": -0.0095, "post": 0.26, "tsize": 0.0078, "grade_2": 0.64, "grade_3": 0.78,
        "pnodes": 0.049, "progrec": -0.0022, "estrec": 0.0002,
    }  # fmt: skip
    return Work(
        name="gbsg2",
        unit="days",
        times_n=table["time"].to_numpy(np.float64),
        events_n=table["cens"].to_numpy() == 1,
        groups_n=grade,
        group_names=("grade I", "grade II", "grade III"),
        risks_n=risk_of(coded, coefficients),
        tau=2000.0,
        horizons_h=(180.0, 365.0, 730.0, 1095.0, 1460.0, 1825.0, 2190.0),
        rate=0.0004,
    )


def risk_of(table: pd.DataFrame, coefficients: dict[str, float]) -> NDArray[np.float64]:
    return np.round(sum(table[name].to_numpy(np.float64) * weight for name, weight in coefficients.items()), 2)


def main() -> None:
    for work in (rossi(), gbsg2()):
        line = {
            "benchmark": "survival_reference",
            "dataset": work.name,
            "data": data_of(work),
            "lifelines": by_lifelines(work),
            "scikit-survival": by_scikit_survival(work),
            "command": "python -m benchmarks.survival_reference",
            "versions": {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}},
        }
        print(json.dumps(line))


def data_of(work: Work) -> dict[str, Any]:
    return {
        "unit": work.unit,
        "times": work.times_n.tolist(),
        "events": work.events_n.astype(int).tolist(),
        "groups": work.groups_n.tolist(),
        "group_names": work.group_names,
        "risks": work.risks_n.tolist(),
        "tau": work.tau,
        "horizons": work.horizons_h,
        "rate": work.rate,
    }


def by_lifelines(work: Work) -> dict[str, Any]:
    """Kaplan and Meier's estimate at the times of events, log-rank test of the groups, Harrell's C, Breslow's baseline.

    The baseline is of a Cox model fitted to the groups alone; `log_hazards` are its patients' risks.
    """
    estimate = KaplanMeierFitter().fit(work.times_n, work.events_n)
    table = estimate.event_table[estimate.event_table["observed"] > 0]
    limits = estimate.confidence_interval_.loc[table.index]
    test = multivariate_logrank_test(work.times_n, work.groups_n, work.events_n)
    frame = pd.DataFrame({"time": work.times_n, "event": work.events_n, "group": work.groups_n})
    cox = CoxPHFitter().fit(frame, "time", "event")
    baseline = cox.baseline_cumulative_hazard_.loc[table.index]
    return {
        "times": table.index.tolist(),
        "at_risk": table["at_risk"].tolist(),
        "observed": table["observed"].tolist(),
        "survival": estimate.survival_function_.loc[table.index].iloc[:, 0].tolist(),
        "low": limits.iloc[:, 0].tolist(),
        "high": limits.iloc[:, 1].tolist(),
        "median": float(estimate.median_survival_time_) if np.isfinite(estimate.median_survival_time_) else None,
        "log_rank": {"statistic": float(test.test_statistic), "p_value": float(test.p_value)},
        "harrell": float(concordance_index(work.times_n, -work.risks_n, work.events_n)),
        "log_hazards": cox.predict_log_partial_hazard(frame).tolist(),
        "cumulative_hazard": baseline.iloc[:, 0].tolist(),
    }


def by_scikit_survival(work: Work) -> dict[str, Any]:
    """Harrell's C with its pairs, Uno's C, Brier scores and Breslow's baseline for the fixed risks."""
    outcome = Surv.from_arrays(work.events_n, work.times_n)
    train, test = outcome[::2], outcome[1::2]
    risks_train, risks_test = work.risks_n[::2], work.risks_n[1::2]
    horizons = np.array(work.horizons_h)
    survival = np.exp(-work.rate * horizons * np.exp(risks_test - risks_train.mean())[:, None])
    harrell = concordance_index_censored(work.events_n, work.times_n, work.risks_n)
    uno = concordance_index_ipcw(train, test, risks_test, tau=work.tau)
    baseline = BreslowEstimator().fit(work.risks_n, work.events_n, work.times_n).cum_baseline_hazard_
    return {
        "harrell": {
            "c": float(harrell[0]),
            "concordant": int(harrell[1]),
            "discordant": int(harrell[2]),
            "tied": int(harrell[3]),
        },
        "uno": float(uno[0]),
        "brier": brier_score(train, test, survival, horizons)[1].tolist(),
        "integrated_brier": float(integrated_brier_score(train, test, survival, horizons)),
        "baseline": {"times": baseline.x.tolist(), "cumulative_hazard": baseline.y.tolist()},
    }


if __name__ == "__main__":
    main()
