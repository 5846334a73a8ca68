"""Train, validation and test by patient: no patient on two sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.cohort.manifest import SlideEntry, Split
from pipeline.errors import BadManifestError, LeakageError
from pipeline.settings.config import SplitConfig
from training.foundation.errors import BadRecipeError


def assign_splits(entries: Sequence[SlideEntry], config: SplitConfig) -> dict[str, Split | None]:
    """Split of each slide_id. A patient named in the manifest with a split takes all slides along.

    Patients without one are assigned by `config`, the same way for the same seed. A manifest that names neither
    patients nor splits gives None everywhere: its tiles can be inferred, not trained on.

    Raises:
        LeakageError: a patient's slides stand in two splits.
        BadManifestError: a split is wanted but a slide has no patient_id.
    """
    if not any(entry.split or entry.patient_id for entry in entries):
        return {entry.slide_id: None for entry in entries}
    without = [entry.slide_id for entry in entries if not entry.patient_id]
    if without:
        raise BadManifestError(
            f"slides {', '.join(without[:5])}{' …' if len(without) > 5 else ''} have no patient_id: "
            "a split needs it, else one patient could stand on both sides. Fill the column `patient_id`."
        )
    given = _given(entries)
    assigned = _assign(sorted({str(e.patient_id) for e in entries} - set(given)), config)
    by_patient = {**assigned, **given}
    return {entry.slide_id: by_patient[str(entry.patient_id)] for entry in entries}


def _given(entries: Sequence[SlideEntry]) -> dict[str, Split]:
    found: dict[str, dict[Split, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        if entry.split:
            found[str(entry.patient_id)][entry.split].append(entry.slide_id)
    for patient, splits in found.items():
        if len(splits) > 1:
            where = "; ".join(f"{split}: {', '.join(slides)}" for split, slides in sorted(splits.items()))
            raise LeakageError(
                f"patient {patient} stands in {len(splits)} splits ({where}). "
                "Put all slides of a patient into one split of the cohort manifest."
            )
    return {patient: next(iter(splits)) for patient, splits in found.items()}


def _assign(patients: list[str], config: SplitConfig) -> dict[str, Split]:
    shares = np.array([config.train, config.val, config.test])
    if shares.sum() <= 0:
        raise BadRecipeError(f"[tile.split] train, val and test are {shares.tolist()}: at least one must be above 0.")
    names: tuple[Split, ...] = ("train", "val", "test")
    bounds = np.round(np.cumsum(shares / shares.sum()) * len(patients)).astype(int)
    shuffled = [patients[i] for i in np.random.default_rng(config.seed).permutation(len(patients))]
    return {p: names[int(np.searchsorted(bounds, i, side="right"))] for i, p in enumerate(shuffled)}
