"""Reference figures of two data sets by lifelines and scikit-survival (benchmarks/survival_reference.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parents[3] / "benchmarks/results/survival_reference.jsonl"


@dataclass(frozen=True)
class Figures:
    """A data set, and what the two libraries computed from it."""

    times_n: np.ndarray
    events_n: np.ndarray
    groups_n: np.ndarray
    group_names: tuple[str, ...]
    risks_n: np.ndarray
    tau: float
    horizons_h: np.ndarray
    rate: float
    lifelines: dict[str, Any]
    sksurv: dict[str, Any]


def figures_of(dataset: str) -> Figures:
    lines = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    line = next(line for line in lines if line["dataset"] == dataset)
    data = line["data"]
    return Figures(
        times_n=np.array(data["times"]),
        events_n=np.array(data["events"]) == 1,
        groups_n=np.array(data["groups"]),
        group_names=tuple(data["group_names"]),
        risks_n=np.array(data["risks"]),
        tau=data["tau"],
        horizons_h=np.array(data["horizons"]),
        rate=data["rate"],
        lifelines=line["lifelines"],
        sksurv=line["scikit-survival"],
    )
