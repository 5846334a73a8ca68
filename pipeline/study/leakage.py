"""Check for patients and slides of a study that its models were trained on.

A model package names no patient. It has the fingerprint of the tile set that it was trained on: if that tile set is in
the project, its patients and slides are known, and none of them may be in the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from pathlib import Path

import numpy as np

from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alikes, shown_slides, slides_by_patient
from pipeline.cohort.manifest import Cohort
from pipeline.errors import LeakageError
from pipeline.project import Project
from pipeline.tiles.dataset import NO_PATIENT, TileDataset
from training.foundation.errors import GemslideError
from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file
from training.foundation.words.counts import counted
from training.foundation.words.names import comparable

SEEN = ("train", "val")
"""Splits that shaped a model: its weights, and the choice of the epoch to keep."""
MAX_SHOWN = 10


def check_leakage(cohort: Cohort, packages: Mapping[str, Path], project: Project) -> list[str]:
    """Compare a cohort with the training data of models.

    Returns:
        a sentence for each model whose training data are not in this project, or on slides without a patient, so that
        they could not be compared.

    Raises:
        LeakageError: a patient or a slide of the cohort was in a model's training or validation, or looks like one that
            was.
    """
    unknown = []
    for model_id, package in packages.items():
        dataset = _trained_on(package, project)
        if dataset is None:
            unknown.append(
                f"model {model_id}: the tile set that it was trained on is not in {project.tiles_dir}, so it is not "
                "known whether its patients are in the study. Compare the lists yourself."
            )
        else:
            unknown += _compare(cohort, dataset, model_id)
    return unknown


def _compare(cohort: Cohort, dataset: TileDataset, model_id: str) -> list[str]:
    seen = np.isin(dataset.splits, SEEN)
    groups, slides = set(map(comparable, dataset.groups[seen].tolist())), set(dataset.slides[seen].tolist())
    patients = {group for group in groups if not group.startswith(NO_PATIENT)}
    known = [entry.slide_id for entry in cohort.included if entry.slide_id in slides or entry.patient_id in patients]
    if known:
        more = f" and {len(known) - MAX_SHOWN} more" if len(known) > MAX_SHOWN else ""
        raise LeakageError(
            f"model {model_id} was trained on patients or slides of this cohort: {', '.join(known[:MAX_SHOWN])}{more}. "
            "Exclude them with a reason in the manifest, or study another model."
        )
    _check_look_alikes(cohort, patients, model_id)
    without = sum(entry.patient_id is None for entry in cohort.included)
    unnamed = len(groups) - len(patients)
    if not without and not unnamed:
        return []
    return [
        f"model {model_id}: {counted(without, 'slide')} of the cohort and {counted(unnamed, 'slide')} of the model's "
        "training without a patient_id were compared by their ids only, so it is not known whether the model was "
        "trained on their patients. Fill in the column `patient_id`, or compare the lists yourself."
    ]


def _check_look_alikes(cohort: Cohort, seen: Set[str], model_id: str) -> None:
    slides = slides_by_patient(cohort.included)
    for group in look_alikes([*sorted(seen), *slides]):
        own, others = [name for name in group if name in slides], [name for name in group if name in seen]
        if own and others:
            named = ", ".join(f"{name!r} ({shown_slides(slides[name])})" for name in own)
            raise LeakageError(
                f"model {model_id} was trained on patient {others[0]!r}, who looks like patient {named} of this "
                f"cohort. {WHAT_TO_DO}; or exclude them with a reason in the manifest."
            )


def _trained_on(package: Path, project: Project) -> TileDataset | None:
    """The project's tile set whose fingerprint is in a package."""
    try:
        config = read_json_file(package / "config.json", max_bytes=MAX_CONFIG_BYTES)
        fingerprint, classes = config["gemslide"]["split_sha256"], config["class_names"]
    except (OSError, ValueError, LookupError, TypeError):  # reported when the model is loaded
        return None
    for path in sorted(project.tiles_dir.glob("[!.]*.parquet")):
        try:
            dataset = TileDataset(project.root, path.stem, classes)
        except (GemslideError, OSError):  # other classes, or a damaged table
            continue
        if dataset.fingerprint == fingerprint:
            return dataset
    return None
