"""Folds for cross-validation: by patient always, stratified by class or event and, as far as that allows, by site.

Fold f is tested by the model that is trained without it and without fold f + 1, which validates:

    folds         0      1      2      3      4
    model 0     test    val   train  train  train
    model 1    train   test    val   train  train
    model 4     val   train  train  train   test
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alikes
from pipeline.cohort.manifest import Cohort, Split
from pipeline.errors import BadManifestError, LeakageError
from pipeline.files import sha256_of, write_new_text
from pipeline.ledger.chain import canonical, digest
from pipeline.slide_level.clinical import Clinical, Unit, check_clinical, refuse_without_patient, unit_cells
from pipeline.slide_level.targets import class_cells, event_numbers
from training.foundation.errors import BadRecipeError, EmptyTableError, UnreadableError
from training.foundation.reading import read_json_file, read_regular
from training.foundation.words.counts import counted
from training.foundation.words.findings import message_of
from training.foundation.words.names import comparable

VERSION = 1
MIN_FOLDS = 3
"""One each to train, to validate and to test."""
MAX_SEED = 2**53
"""Whole numbers that every JSON parser keeps."""
MAX_BYTES = 64 * 2**20
MAX_SHOWN = 5
"""Names in a message."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class FoldUnit:
    """One patient or slide, as it counts in the balance of folds."""

    name: str
    patient: str
    stratum: str | None = None
    """Class or event; None where it has no value."""
    site: str | None = None


class Folds(BaseModel):
    """Which patient is in which fold, and what the folds were made from."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    seed: int = Field(ge=0, le=MAX_SEED)
    number: int = Field(ge=MIN_FOLDS)
    unit: Unit
    """What was counted."""
    stratified_by: tuple[str, ...] = Field(strict=False)  # a list in JSON
    """Columns of the manifest or the clinical table."""
    cohort_sha256: Sha256
    table_sha256: Sha256 | None
    patients: dict[str, int]
    """Fold of each patient, from 0."""

    @model_validator(mode="after")
    def _has_every_fold(self) -> Self:
        if set(self.patients.values()) != set(range(self.number)):
            raise ValueError(f"its patients are not in folds 0 to {self.number - 1}, each with at least one")
        return self


def fold_units(
    cohort: Cohort, clinical: Clinical | None, unit: Unit, *, by: str | None, event: str | None
) -> list[FoldUnit]:
    """The included slides or their patients, with classes of the column `by`, events of the column `event`, or both.

    Raises:
        BadManifestError: a slide without a patient, as `check_clinical` and `unit_cells`, or a value that is no class
            or no event.
        EmptyTableError: no unit has a value.
    """
    refuse_without_patient(cohort)
    if clinical is not None:
        check_clinical(clinical, cohort)
    parts: list[dict[str, str]] = []
    if by is not None:
        classes = class_cells(unit_cells(cohort, clinical, unit, by), by)
        parts.append({name: cell.text for name, cell in classes.items()})
    if event is not None:
        events = event_numbers(unit_cells(cohort, clinical, unit, event), event)
        parts.append({name: "event" if number else "no event" for name, number in events.items()})
    patients: dict[str, str] = {}
    sites: defaultdict[str, set[str]] = defaultdict(set)
    for entry in cohort.included:
        name = str(entry.patient_id) if unit == "patient" else entry.slide_id
        patients[name] = str(entry.patient_id)
        sites[name].update([entry.site] if entry.site else [])
    strata = {name: ", ".join(part[name] for part in parts) for name in patients if all(name in p for p in parts)}
    if parts and not strata:
        named = " and ".join(f"`{column}`" for column in (by, event) if column is not None)
        raise EmptyTableError(f"{cohort.path}: no {unit} has a value in {named}. Fill it in, or name another column.")
    return [
        FoldUnit(name, patient, strata.get(name) or None, ", ".join(sorted(sites[name])) or None)
        for name, patient in patients.items()
    ]


def make_folds(
    units: Sequence[FoldUnit],
    number: int,
    seed: int,
    *,
    unit: Unit,
    stratified_by: Sequence[str],
    cohort_sha256: str,
    table_sha256: str | None = None,
) -> Folds:
    """Assign patients to folds; the same units and seed give the same folds, in whatever order the units are.

    Patients who look like one stay in one fold. Otherwise, if each patient has one class, no class differs by more than
    one patient between folds.

    Raises:
        BadRecipeError: fewer than three folds, or a seed out of range.
        EmptyTableError: fewer patients, or patients of a class, than folds; or a fold that has none of a class.
    """
    if number < MIN_FOLDS or not 0 <= seed <= MAX_SEED:
        raise BadRecipeError(
            f"{counted(number, 'fold')} with seed {seed}: there must be at least {MIN_FOLDS}, to train, to validate "
            f"and to test, and the seed must be from 0 to {MAX_SEED}."
        )
    groups = _groups(units)
    _refuse_too_few(groups, number)
    balance, fold_of = _Balance(groups, number), dict[str, int]()
    for group in _in_order(groups, seed):
        fold_of |= dict.fromkeys(group.patients, balance.put(group))
    balance.refuse_gaps()
    return Folds(
        seed=seed,
        number=number,
        unit=unit,
        stratified_by=tuple(stratified_by),
        cohort_sha256=cohort_sha256,
        table_sha256=table_sha256,
        patients=dict(sorted(fold_of.items())),
    )


@dataclass(frozen=True)
class _Group:
    """A patient, or several who look like one: never divided."""

    patients: tuple[str, ...]
    units: tuple[FoldUnit, ...]

    @property
    def strata(self) -> frozenset[str]:
        return frozenset(unit.stratum for unit in self.units if unit.stratum is not None)


def _groups(units: Sequence[FoldUnit]) -> list[_Group]:
    """Units by patient, sorted by name."""
    of_patient: dict[str, list[FoldUnit]] = defaultdict(list)
    for unit in sorted(units, key=lambda unit: (unit.patient, unit.name)):
        of_patient[unit.patient].append(unit)
    together = {patient: {patient} for patient in of_patient}
    for alike in look_alikes(of_patient):
        joined = set().union(*(together[patient] for patient in alike))
        together |= dict.fromkeys(joined, joined)
    persons = {min(joined): tuple(sorted(joined)) for joined in together.values()}
    return [
        _Group(patients, tuple(unit for patient in patients for unit in of_patient[patient]))
        for _, patients in sorted(persons.items())
    ]


def _num_with(groups: Iterable[_Group]) -> Counter[str]:
    """Groups in which each class occurs."""
    return Counter(stratum for group in groups for stratum in group.strata)


def _refuse_too_few(groups: Sequence[_Group], number: int) -> None:
    if len(groups) < number:
        raise EmptyTableError(
            f"{counted(len(groups), 'patient')} for {number} folds: every fold needs one. Use fewer folds."
        )
    few = {stratum: count for stratum, count in _num_with(groups).items() if count < number}
    if few:
        named = "; ".join(f"{name!r} has {counted(few[name], 'patient')}" for name in sorted(few)[:MAX_SHOWN])
        more = f" and {counted(len(few) - MAX_SHOWN, 'other class', 'other classes')}" if len(few) > MAX_SHOWN else ""
        raise EmptyTableError(
            f"too few patients for {number} folds, in each of which every class must occur: {named}{more}. Use fewer "
            "folds, merge classes, or stratify by another column."
        )


class _Balance:
    """Units in each fold so far, by class and site, and the fold that has the least of what a group has."""

    def __init__(self, groups: Sequence[_Group], number: int) -> None:
        self._num_with = _num_with(groups)
        self._totals = Counter(unit.stratum for group in groups for unit in group.units)
        self._at_site: list[Counter[tuple[str | None, str | None]]] = [Counter() for _ in range(number)]
        self._of_stratum: list[Counter[str | None]] = [Counter() for _ in range(number)]

    def put(self, group: _Group) -> int:
        """Choose a group's fold, and count its units there.

        A fold that lacks a class of the group comes first, rarest class first; then the one with the fewest units of
        its classes at its sites; of its classes; of any. Each class counts relative to its number of units.
        """
        rarest_first = sorted(group.strata, key=lambda stratum: (self._num_with[stratum], stratum))

        def cost(fold: int) -> tuple[Any, ...]:
            at_site, of_stratum = self._at_site[fold], self._of_stratum[fold]
            return (
                tuple(of_stratum[stratum] > 0 for stratum in rarest_first),
                sum(at_site[unit.stratum, unit.site] / self._totals[unit.stratum] for unit in group.units),
                sum(of_stratum[unit.stratum] / self._totals[unit.stratum] for unit in group.units),
                of_stratum.total(),
            )

        fold = min(range(len(self._of_stratum)), key=cost)
        self._at_site[fold].update((unit.stratum, unit.site) for unit in group.units)
        self._of_stratum[fold].update(unit.stratum for unit in group.units)
        return fold

    def refuse_gaps(self) -> None:
        for fold, counts in enumerate(self._of_stratum):
            lacking = sorted(stratum for stratum in self._num_with if not counts[stratum])
            if lacking:
                patients = counted(self._num_with[lacking[0]], "patient has", "patients have")
                raise EmptyTableError(
                    f"fold {fold} has no patient with {lacking[0]!r}: {patients} it, together with other classes, and "
                    "could not be shared among all folds. Use another seed, or fewer folds."
                )


def _in_order(groups: Sequence[_Group], seed: int) -> list[_Group]:
    """Groups of the largest stratum first; in it, of the largest site, then the largest groups, then by the seed.

    The stratum of a group is its rarest class.
    """
    num_with = _num_with(groups)

    def stratum_of(group: _Group) -> str:
        return min(group.strata, key=lambda stratum: (num_with[stratum], stratum), default="")

    def sites_of(group: _Group) -> tuple[str, tuple[str, ...]]:
        return stratum_of(group), tuple(sorted({unit.site or "" for unit in group.units}))

    in_stratum, at_sites = Counter(map(stratum_of, groups)), Counter(map(sites_of, groups))

    def key(group: _Group) -> tuple[Any, ...]:
        stratum, sites = stratum_of(group), sites_of(group)
        # A hash, not a random number: adding a patient leaves the order of the others as it is.
        drawn = hashlib.sha256(f"{seed}\n{group.patients[0]}".encode()).digest()
        return -in_stratum[stratum], stratum, -at_sites[sites], sites, -len(group.units), drawn

    return sorted(groups, key=key)


def split_of(folds: Folds, fold: int) -> dict[str, Split]:
    """Split of each patient for the model that is tested on `fold`.

    Raises:
        BadRecipeError: no such fold.
    """
    if not 0 <= fold < folds.number:
        raise BadRecipeError(
            f"[data] fold = {fold}: the folds' file has {folds.number} folds, 0 to {folds.number - 1}."
        )
    names: dict[int, Split] = {fold: "test", (fold + 1) % folds.number: "val"}
    return {patient: names.get(own, "train") for patient, own in folds.patients.items()}


def check_no_leak(train: Iterable[str], val: Iterable[str], test: Iterable[str]) -> None:
    """Compare the patients of three splits.

    Raises:
        LeakageError: a patient is in two of them, or two patients that look like one are in different ones.
    """
    splits: dict[str, Split] = {}
    given: tuple[tuple[Split, Iterable[str]], ...] = (("train", train), ("val", val), ("test", test))
    for split, patients in given:
        for patient in map(comparable, patients):
            first = splits.setdefault(patient, split)
            if first != split:
                raise LeakageError(
                    f"patient {patient!r} is in {first} and in {split}. Put all slides of a patient into one split."
                )
    _refuse_apart(splits)


def _refuse_apart(places: Mapping[str, str]) -> None:
    """Refuse patients that look like one in different splits or folds."""
    for group in look_alikes(places):
        if len({places[patient] for patient in group}) > 1:
            where = "; ".join(f"{patient!r} in {places[patient]}" for patient in group)
            raise LeakageError(f"patients that look like one are apart: {where}. {WHAT_TO_DO}.")


def write_folds(path: Path, folds: Folds) -> None:
    """Write folds as canonical JSON, with the SHA-256 of the content.

    Raises:
        BadManifestError: the file exists and has other content.
        DiskFullError: not writable.
    """
    content = folds.model_dump(mode="json")
    text = canonical(content | {"sha256": digest(content)}) + "\n"
    try:
        write_new_text(path, text)
    except FileExistsError as error:
        if not _holds(path, text):
            raise BadManifestError(
                f"{path}: already exists with other folds, on which models may rely. Delete it, or choose another name."
            ) from error


def _holds(path: Path, text: str) -> bool:
    try:
        return read_regular(path, max_bytes=MAX_BYTES) == text.encode()
    except OSError:
        return False


def read_folds(path: Path, cohort: Cohort, clinical: Clinical | None = None) -> Folds:
    """Read folds that were made for a cohort.

    Raises:
        UnreadableError: missing, damaged, edited since it was written, or of another version.
        BadManifestError: a patient of the cohort is in no fold, or the folds were made from another manifest or
            clinical table.
        LeakageError: two patients that look like one are in different folds.
    """
    folds = _parse(path)
    refuse_without_patient(cohort)
    patients = {str(entry.patient_id) for entry in cohort.included}
    without, unknown = sorted(patients - folds.patients.keys()), sorted(folds.patients.keys() - patients)
    for names, what in ((without, "are in no fold"), (unknown, "are in a fold, but not in the cohort")):
        if names:
            named = f"{', '.join(names[:MAX_SHOWN])}{' …' if names[MAX_SHOWN:] else ''}"
            raise BadManifestError(f"{path}: patients {named} {what} ({cohort.path}). Make the folds again.")
    given = [(cohort.path, sha256_of(cohort.path), folds.cohort_sha256, "manifest")]
    if clinical is not None and folds.table_sha256 is not None:
        given.append((clinical.path, clinical.sha256, folds.table_sha256, "clinical table"))
    for source, sha256, expected, what in given:
        if sha256 != expected:
            raise BadManifestError(
                f"{path}: was made from another {what}, with the SHA-256 {expected[:12]}…; that of {source} is "
                f"{sha256[:12]}…. Use the {what} that it was made from, or make the folds again."
            )
    _refuse_apart({patient: f"fold {fold} of {path}" for patient, fold in folds.patients.items()})
    return folds


def _parse(path: Path) -> Folds:
    try:
        content = read_json_file(path, max_bytes=MAX_BYTES)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read as folds: {error}. Make it with `gemslide folds`.") from error
    if not isinstance(content, dict) or "sha256" not in content:
        raise UnreadableError(f"{path}: is not a file of folds. Make one with `gemslide folds`.")
    if content.get("version") != VERSION:
        raise UnreadableError(
            f"{path}: has version {content.get('version')!r:.40}; this program reads {VERSION}. Make the folds again."
        )
    expected = content.pop("sha256")
    try:
        folds = Folds.model_validate(content)
    except ValidationError as error:
        detail = error.errors()[0]
        name = ".".join(map(str, detail["loc"])) or "the folds"
        raise UnreadableError(
            f"{path}: was edited or damaged: {name:.80}: {message_of(detail):.200}. Make the folds again."
        ) from error
    sha256 = digest(folds.model_dump(mode="json"))
    if sha256 != expected:
        raise UnreadableError(
            f"{path}: was edited since it was written: its content has the SHA-256 {sha256[:12]}…, not "
            f"{expected!s:.12}…. Restore it from a backup, or make the folds again."
        )
    return folds
