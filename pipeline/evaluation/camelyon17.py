"""CAMELYON17: a patient's pN stage from the labels of the lymph nodes, and the kappa used for the challenge's ranking.

Bándi et al. 2019 (IEEE Trans Med Imaging 38:550). A node (slide) is negative, itc (isolated tumour cells), micro (above
0.2 mm) or macro (above 2 mm). Kappa is Cohen's with quadratic weights over the five stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score, confusion_matrix

from pipeline.evaluation.statistics.agreement import kappa_of_tables
from pipeline.evaluation.statistics.bootstrap import Estimate, Resamples, estimate

NODE_LABELS = ("negative", "itc", "micro", "macro")
STAGES = ("pN0", "pN0(i+)", "pN1mi", "pN1", "pN2")
MICRO_UM, MACRO_UM = 200.0, 2000.0
MANY_NODES = 4
"""With at least this many nodes with metastases, one of them a macrometastasis, the stage is pN2."""


@dataclass(frozen=True)
class Staging:
    """Patients' stages: reference against prediction."""

    kappa: Estimate
    patients: tuple[tuple[str, str, str], ...]
    """Patient, reference stage, predicted stage."""
    confusion: NDArray[np.int64]
    """Patients, rows = reference, columns = prediction, in the order of `STAGES`."""


def node_label(extent_um: float) -> str:
    """The label of a node whose largest tumour area is this long."""
    if extent_um > MACRO_UM:
        return "macro"
    if extent_um > MICRO_UM:
        return "micro"
    return "itc" if extent_um > 0 else "negative"


def patient_stage(nodes: Sequence[str]) -> str:
    """The stage from the labels of a patient's nodes. Isolated tumour cells do not count as a metastasis."""
    counts = Counter(nodes)
    if counts["macro"]:
        return "pN2" if counts["macro"] + counts["micro"] >= MANY_NODES else "pN1"
    if counts["micro"]:
        return "pN1mi"
    return "pN0(i+)" if counts["itc"] else "pN0"


def staging(
    patients: Sequence[str], reference: Sequence[str], predicted: Sequence[str], *, resamples: int, seed: int
) -> Staging | None:
    """Stages and kappa with its interval.

    Args:
        patients, reference, predicted: per slide; node labels for the last two.

    Returns:
        None with fewer than two patients.
    """
    names = sorted(set(patients))
    if len(names) < 2:
        return None
    stages = np.stack([_stages(names, patients, nodes) for nodes in (reference, predicted)], axis=1)
    drawn = Resamples.draw(names, resamples=resamples, seed=seed)
    one_hot = np.zeros((len(names), len(STAGES), len(STAGES)))
    one_hot[np.arange(len(names)), stages[:, 0], stages[:, 1]] = 1
    kappa = _kappa(stages)
    return Staging(
        kappa=estimate(kappa, kappa_of_tables(drawn.totals(drawn.sum_by_patient(one_hot)), "quadratic")),
        patients=tuple((name, STAGES[a], STAGES[b]) for name, (a, b) in zip(names, stages, strict=True)),
        confusion=np.asarray(confusion_matrix(stages[:, 0], stages[:, 1], labels=range(len(STAGES))), np.int64),
    )


def _stages(names: Sequence[str], patients: Sequence[str], nodes: Sequence[str]) -> NDArray[np.int64]:
    """Index of the stage of each named patient."""
    own: dict[str, list[str]] = {name: [] for name in names}
    for patient, node in zip(patients, nodes, strict=True):
        own[patient].append(node)
    return np.array([STAGES.index(patient_stage(own[name])) for name in names], np.int64)


def _kappa(stages: NDArray[np.int64]) -> float | None:
    if len(np.unique(stages)) < 2:
        return None
    return float(cohen_kappa_score(stages[:, 0], stages[:, 1], labels=range(len(STAGES)), weights="quadratic"))
