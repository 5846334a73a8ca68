"""Cost of intervals by patient: all measures of one class over 100,000 tiles of 200 patients, 1,000 resamples.

    .venv/bin/python -m benchmarks.evaluate [--tiles 100000] [--patients 200] [--resamples 1000] [--rounds 5]

Scores are half-precision, as predictions are stored. A round computes everything that a report states for the class:
ROC and precision-recall curves with bands, sensitivities, calibration, net benefit, and all intervals. Figures are
medians of processor time over the rounds. The naive way, scikit-learn's AUROC of the drawn tiles, is timed for twenty
resamples and scaled for comparison. Prints a JSON line; the committed ones are in benchmarks/results/evaluate.jsonl.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.machine import circumstances
from pipeline.evaluation.statistics.bootstrap import Resamples
from pipeline.evaluation.statistics.one_class import Cutoffs, auroc_resampled, class_result

NAIVE_RESAMPLES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=int, default=100_000)
    parser.add_argument("--patients", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    truth, scores, patients = tiles(given.tiles, given.patients)
    resamples = Resamples.draw(patients, resamples=given.resamples, seed=0)
    cutoffs = Cutoffs(threshold=0.5, specificities=(0.9, 0.95), bins=10)
    line = {
        **circumstances("benchmarks.evaluate"),
        "tiles": given.tiles,
        "patients": given.patients,
        "resamples": given.resamples,
        "rounds": given.rounds,
        "all_measures_s": median_s(lambda: class_result("x", truth, scores, resamples, cutoffs), given.rounds),
        "auroc_s": median_s(lambda: auroc_resampled(truth, scores, resamples), given.rounds),
        "naive_auroc_s": round(
            median_s(lambda: naive(truth, scores, resamples), given.rounds) * given.resamples / NAIVE_RESAMPLES, 1
        ),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    print(json.dumps(line))


def tiles(number: int, patients: int) -> tuple[NDArray[np.bool_], NDArray[np.float16], NDArray[np.str_]]:
    """Truth, scores and patients of tiles, with differences between patients."""
    random = np.random.default_rng(0)
    patient = random.integers(0, patients, number)
    truth = random.uniform(size=number) < random.beta(1, 3, patients)[patient]
    logits = random.normal(size=number) + 2.0 * truth - 1.0 + random.normal(0, 0.5, patients)[patient]
    return truth, (1 / (1 + np.exp(-logits))).astype(np.float16), patient.astype(str)


def naive(truth: NDArray[np.bool_], scores: NDArray[np.float16], resamples: Resamples) -> None:
    """AUROC of the tiles drawn in a few resamples."""
    for counts in resamples.counts_rp[:NAIVE_RESAMPLES]:
        drawn = np.repeat(np.arange(len(truth)), counts[resamples.patient_of].astype(int))
        roc_auc_score(truth[drawn], scores[drawn])


def median_s(work: Callable[[], object], rounds: int) -> float:
    """Median processor seconds of this process, which a loaded machine stretches less than wall-clock time."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return round(statistics.median(seconds), 2)


if __name__ == "__main__":
    main()
