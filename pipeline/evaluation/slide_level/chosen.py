"""Which patients or slides of a manifest a slide-level model may be tested on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pipeline.cohort.manifest import Cohort, Split
from pipeline.errors import LeakageError
from pipeline.slide_level import SlideModel
from pipeline.slide_level.clinical import refuse_without_patient
from training.foundation.errors import BadRecipeError, EmptyTableError
from training.foundation.words.counts import counted, first_of
from training.foundation.words.unit_digest import unit_digest


@dataclass(frozen=True)
class Chosen:
    """Units of a manifest, by their part in one model."""

    tested: tuple[str, ...]
    """Units to evaluate, in the manifest's order."""
    trained: tuple[str, ...]
    """Units that trained or chose the model, in the manifest's order."""
    others: int
    """Units that are neither, and are left out."""
    is_new_cohort: bool
    """Whether the model knows none of the manifest's units: all of them are evaluated."""
    slides_of: Mapping[str, tuple[str, ...]]
    """Slides of each unit, in the order of their ids."""
    patient_of: Mapping[str, str]


def choose_units(model: SlideModel, cohort: Cohort, split: Split) -> Chosen:
    """The units to evaluate: for "test" the package's test units; else those that it was trained on.

    Raises:
        LeakageError: a tested unit, or a patient of one, trained or chose the model.
        EmptyTableError: no unit of this split. BadManifestError: a slide has no patient.
    """
    refuse_without_patient(cohort)
    slides_of: defaultdict[str, list[str]] = defaultdict(list)
    splits: defaultdict[str, set[str | None]] = defaultdict(set)
    patient_of: dict[str, str] = {}
    for entry in cohort.included:
        unit = entry.slide_id if model.config.level == "slide" else str(entry.patient_id)
        slides_of[unit].append(entry.slide_id)
        splits[unit].add(entry.split)
        patient_of[unit] = str(entry.patient_id)
    trained = _in_order(slides_of, model.config.trained_units)
    tested = _in_order(slides_of, model.config.test_units)
    is_new_cohort = not tested and not trained
    if split == "test":
        tested = list(slides_of) if is_new_cohort else tested
        _refuse_leak(model, cohort, tested, trained, (splits, patient_of))
    else:
        tested = [unit for unit in trained if ("val" in splits[unit]) == (split == "val")]
    if not tested:
        raise EmptyTableError(
            f"{cohort.path}: has none of the {model.config.level}s of split {split!r} of model {model.model_id}. Give "
            "the manifest that it was trained from, or choose another --split."
        )
    others = len(slides_of) - len({*tested, *trained})
    in_order = {unit: tuple(sorted(slides)) for unit, slides in slides_of.items()}
    return Chosen(tuple(tested), tuple(trained), others, is_new_cohort, in_order, patient_of)


def refuse_tested_twice(chosen: Mapping[str, Chosen]) -> None:
    """Refuse models that are not folds of one cross-validation.

    Args:
        chosen: by model.

    Raises:
        BadRecipeError: two models are tested on the same unit.
    """
    first: dict[str, str] = {}
    for model_id, units in chosen.items():
        for unit in units.tested:
            other = first.setdefault(unit, model_id)
            if other != model_id:
                raise BadRecipeError(
                    f"{unit} would count twice: it is tested by {other} and by {model_id}. Evaluate together only "
                    "models of different folds."
                )


def _in_order(slides_of: Mapping[str, Sequence[str]], digests: Collection[str]) -> list[str]:
    """Units that a package lists, in the manifest's order."""
    known = set(digests)
    return [unit for unit in slides_of if unit_digest(unit) in known]


def _refuse_leak(
    model: SlideModel,
    cohort: Cohort,
    tested: Sequence[str],
    trained: Sequence[str],
    facts: tuple[Mapping[str, set[str | None]], Mapping[str, str]],
) -> None:
    splits, patient_of = facts
    if not tested:
        if trained:
            raise LeakageError(
                f"{cohort.path}: has none of the test {model.config.level}s of model {model.model_id}, but "
                f"{len(trained)} that it was trained on, such as {trained[0]}. Give a manifest with its test "
                f"{model.config.level}s, or one of {model.config.level}s that are all new to it."
            )
        return
    patients = {patient_of[unit] for unit in trained}
    leaked = {unit for unit in tested if unit in set(trained) or patient_of[unit] in patients}
    if all(splits[unit] == {"test"} for unit in tested):  # otherwise the split was not the manifest's, but of folds
        leaked |= {unit for unit in trained if "test" in splits[unit]}
    if leaked:
        shown = first_of(sorted(leaked), 5)
        raise LeakageError(
            f"{cohort.path}: {counted(len(leaked), 'tested ' + model.config.level)} trained or chose model "
            f"{model.model_id}, or shares the patient with one that did: {shown}. Give the manifest that the model was "
            "trained from."
        )
