"""Train, validation and test split by patient: no patient is in two splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alikes, shown_slides, slides_by_patient
from pipeline.cohort.manifest import SlideEntry, Split
from pipeline.errors import BadManifestError, LeakageError
from pipeline.settings.config import SplitConfig
from training.foundation.errors import BadRecipeError


def assign_splits(entries: Sequence[SlideEntry], config: SplitConfig) -> dict[str, Split | None]:
    """Split of each slide_id. A patient's split in the manifest applies to all slides of the patient.

    Patients without one are assigned by `config`, reproducibly for the same seed. A manifest that names neither
    patients nor splits gives None throughout: its tiles are for inference, not training.

    Raises:
        LeakageError: a patient's slides are in two splits, or those of two patients that look like one.
        BadManifestError: a split is needed but a slide has no patient_id.
    """
    if not any(entry.split or entry.patient_id for entry in entries):
        return {entry.slide_id: None for entry in entries}
    without = [entry.slide_id for entry in entries if not entry.patient_id]
    if without:
        raise BadManifestError(
            f"slides {', '.join(without[:5])}{' …' if len(without) > 5 else ''} have no patient_id: "
            "a split needs it, or one patient could be in two splits. Fill in the column `patient_id`."
        )
    given = _given(entries)
    assigned = _assign(sorted({str(e.patient_id) for e in entries} - set(given)), config)
    by_patient = {**assigned, **given}
    _check_look_alikes(entries, by_patient)
    return {entry.slide_id: by_patient[str(entry.patient_id)] for entry in entries}


def _check_look_alikes(entries: Sequence[SlideEntry], split_of: dict[str, Split]) -> None:
    slides = slides_by_patient(entries)
    for group in look_alikes(slides):
        if len({split_of[patient] for patient in group}) > 1:
            where = "; ".join(
                f"{patient!r} in {split_of[patient]} ({shown_slides(slides[patient])})" for patient in group
            )
            raise LeakageError(
                f"patients that look like one are in different splits: {where}. {WHAT_TO_DO}, or put both into one "
                "split by the column `split`."
            )


def _given(entries: Sequence[SlideEntry]) -> dict[str, Split]:
    slides_of: dict[str, dict[Split, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        if entry.split:
            slides_of[str(entry.patient_id)][entry.split].append(entry.slide_id)
    for patient, splits in slides_of.items():
        if len(splits) > 1:
            where = "; ".join(f"{split}: {', '.join(slides)}" for split, slides in sorted(splits.items()))
            raise LeakageError(
                f"patient {patient} is in {len(splits)} splits ({where}). "
                "Put all slides of a patient into one split of the cohort manifest."
            )
    return {patient: next(iter(splits)) for patient, splits in slides_of.items()}


def _assign(patients: list[str], config: SplitConfig) -> dict[str, Split]:
    shares = np.array([config.train, config.val, config.test])
    if shares.sum() <= 0:
        raise BadRecipeError(f"[tile.split] train, val and test are {shares.tolist()}: at least one must be above 0.")
    names: tuple[Split, ...] = ("train", "val", "test")
    bounds = np.round(np.cumsum(shares / shares.sum()) * len(patients)).astype(int)
    shuffled = [patients[i] for i in np.random.default_rng(config.seed).permutation(len(patients))]
    return {p: names[int(np.searchsorted(bounds, i, side="right"))] for i, p in enumerate(shuffled)}
