"""Patients or slides with their features and targets, for training.

Training finds this class by the entry-point group `gemslide.bags`, so that neither package imports the other.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.cohort.manifest import Cohort, Split, load_cohort
from pipeline.errors import BadManifestError
from pipeline.project import Project
from pipeline.slide_level.clinical import Clinical, Unit, load_clinical
from pipeline.slide_level.folds import check_no_leak, read_folds, split_of
from pipeline.slide_level.stored_bags import SlideFeatures, check_alike, encoder_of, open_slide_features, read_bag
from pipeline.slide_level.targets import TargetRow, TargetTable, target_values, units_of
from training.foundation.errors import EmptyTableError, GemslideError
from training.foundation.settings import parse_section
from training.foundation.words.counts import counted, first_of

SHOWN = 5


class FeatureBags:
    """A cohort's patients or slides, in the form that `training.data.bag_source.BagSource` requires.

    Attributes:
        unit: "patient" or "slide".
        units: str of shape (units,); those without features are left out.
        patients: str of shape (units,): the patient of each.
        splits: str of shape (units,): "train", "val", "test".
        num_tiles: int64 of shape (units,), over all slides of a unit.
        dims: features of a tile.
        values: float64 of shape (units, columns), NaN where missing.
        classes: {target: classes in order}.
        encoder: for the model package to record.
        fingerprint: SHA-256 over units, splits, targets and features; identifies what a model was trained on.
    """

    Error = GemslideError
    """Base of all errors raised here that a person should read; each has a `code`."""

    def __init__(self, project_dir: Path, data: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> None:
        """Open the features of a cohort.

        Args:
            data: `[data]` of a slide-level recipe, as JSON.
            targets: its `[[target]]` tables.

        Raises:
            BadManifestError, LeakageError: a manifest, table or folds that cannot be used.
            EmptyTableError: no slide has features, or a target without values.
            UnreadableError, WrongSlideError: features that are damaged or do not belong together.
        """
        project = Project(Path(project_dir))
        cohort = load_cohort(project.root / data["cohort"])
        clinical = load_clinical(project.root / data["table"]) if data.get("table") else None
        self.unit: Unit = data["unit"]
        split_by_patient = _splits(project, cohort, clinical, data)
        training = {patient for patient, split in split_by_patient.items() if split == "train"}
        rows = [_row(target) for target in targets]
        table = target_values(rows, cohort, clinical, units_of(cohort, self.unit, training))
        self._notes = table.notes
        self._slides, self._without = _features(project, cohort, self.unit, data["encoder"])
        kept = [index for index, name in enumerate(table.units) if name in self._slides]
        self.units = np.array([table.units[index] for index in kept], dtype=str)
        self.patients = _patients_of(cohort, self.unit, self.units)
        self.splits = np.array([split_by_patient[patient] for patient in self.patients.tolist()], dtype=str)
        self.values, self.classes = table.values_nc[kept], table.classes
        everything = [slide for name in self.units for slide in self._slides[name]]
        check_alike(everything)
        self.dims, self.encoder = everything[0].stored.dims, encoder_of(everything)
        self.num_tiles = np.array([sum(s.stored.num_tiles for s in self._slides[name]) for name in self.units])
        self.fingerprint = self._fingerprint(table)

    def __len__(self) -> int:
        return len(self.units)

    def read(self, unit: int, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Features and positions of a unit's tiles, float32 (tiles, dims + 2): see `stored_bags.read_bag`."""
        return read_bag(self._slides[str(self.units[unit])], rows)

    def slides_of(self, unit: int) -> list[SlideFeatures]:
        """The slides of a unit, in the order of its tiles."""
        return self._slides[str(self.units[unit])]

    def warnings(self) -> list[str]:
        """Clauses about slides, and values of targets, that are left out."""
        if not self._without:
            return list(self._notes)
        shown = first_of(self._without, SHOWN)
        have = counted(len(self._without), "slide has", "slides have")
        are = "is" if len(self._without) == 1 else "are"
        return [f"{have} no features of this encoder and {are} left out: {shown}", *self._notes]

    def _fingerprint(self, table: TargetTable) -> str:
        digest = hashlib.sha256(json.dumps([table.columns, {**self.classes}], sort_keys=True).encode())
        for name, split, values in zip(self.units.tolist(), self.splits.tolist(), self.values, strict=True):
            hashes = [slide.stored.attributes["values_sha256"] for slide in self._slides[name]]
            digest.update(json.dumps([name, split, [float(value).hex() for value in values], hashes]).encode())
        return digest.hexdigest()


def _row(target: Mapping[str, Any]) -> TargetRow:
    keys = ("name", "columns", "kind", "weight", "classes", "loss")
    given = {key: target[key] for key in keys if key in target}
    return parse_section(TargetRow, given, where="[[target]] of the recipe")


def _splits(project: Project, cohort: Cohort, clinical: Clinical | None, data: Mapping[str, Any]) -> dict[str, Split]:
    """Split of each patient: of the folds, or of the manifest's column."""
    if data.get("folds"):
        return split_of(read_folds(project.root / data["folds"], cohort, clinical), data.get("fold", 0))
    by_split: defaultdict[str, set[str]] = defaultdict(set)
    splits: dict[str, Split] = {}
    for entry in cohort.included:
        if entry.patient_id is None or entry.split is None:
            raise BadManifestError(
                f"{cohort.path}: slide {entry.slide_id} has no {'patient_id' if entry.split else 'split'}. Fill in the "
                "columns `patient_id` and `split`, or make folds with `gemslide folds` and name their file in "
                "[data] folds."
            )
        by_split[entry.split].add(entry.patient_id)
        splits[entry.patient_id] = entry.split
    check_no_leak(by_split["train"], by_split["val"], by_split["test"])
    return splits


def _patients_of(cohort: Cohort, unit: Unit, units: NDArray[np.str_]) -> NDArray[np.str_]:
    patient_of = {e.slide_id if unit == "slide" else str(e.patient_id): str(e.patient_id) for e in cohort.included}
    return np.array([patient_of[name] for name in units.tolist()], dtype=str)


def _features(
    project: Project, cohort: Cohort, unit: Unit, encoder: str
) -> tuple[dict[str, list[SlideFeatures]], list[str]]:
    """Slides with features by unit, and the slides without."""
    found: defaultdict[str, list[SlideFeatures]] = defaultdict(list)
    without = []
    for entry in sorted(cohort.included, key=lambda entry: entry.slide_id):
        slide = open_slide_features(project, entry.slide_id, encoder)
        if slide is None:
            without.append(entry.slide_id)
        else:
            found[entry.slide_id if unit == "slide" else str(entry.patient_id)].append(slide)
    if not found:
        raise EmptyTableError(
            f"{cohort.path}: none of {counted(len(without), 'slide')} has features of encoder {encoder!r}. Run "
            f"`gemslide embed {encoder} {cohort.path.name}` first."
        )
    return dict(found), without
