"""Folds: by patient, balanced, the same for the same seed, and refused where a patient leaks or the file was edited."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.errors import BadManifestError, LeakageError
from pipeline.files import sha256_of
from pipeline.ledger import canonical, digest
from pipeline.slide_level import (
    Folds,
    FoldUnit,
    check_no_leak,
    fold_units,
    load_clinical,
    make_folds,
    read_folds,
    split_of,
    write_folds,
)
from training.foundation.errors import BadRecipeError, EmptyTableError, UnreadableError

NO_SHA = "0" * 64
CLASSES = ("low", "mid", "high")
SITES = ("Ulm", "Köln", None)


def folds_of(units: list[FoldUnit], number: int = 3, seed: int = 0) -> Folds:
    return make_folds(units, number, seed, unit="patient", stratified_by=["label"], cohort_sha256=NO_SHA)


def patients_of(counts: dict[tuple[str | None, str | None], int]) -> list[FoldUnit]:
    """One unit per patient, as many as each class and site has."""
    names = (f"patient {number}" for number in itertools.count())
    return [
        FoldUnit(name, name, stratum, site)
        for (stratum, site), count in counts.items()
        for name in itertools.islice(names, count)
    ]


def spread(values: list[int]) -> int:
    return max(values) - min(values)


counts_by_class_and_site = st.dictionaries(
    st.tuples(st.sampled_from(CLASSES), st.sampled_from(SITES)), st.integers(1, 20), min_size=1
)


@given(counts_by_class_and_site, st.integers(3, 6), st.integers(0, 99))
def test_every_class_and_each_class_at_a_site_is_spread_evenly(counts, number, seed):
    units = patients_of(counts)
    per_class = Counter(unit.stratum for unit in units)
    assume(min(per_class.values()) >= number)

    fold_of = folds_of(units, number, seed).patients

    assert fold_of.keys() == {unit.patient for unit in units}
    for name in per_class:
        assert spread([sum(fold_of[u.patient] == f and u.stratum == name for u in units) for f in range(number)]) <= 1
    for key in counts:
        at = [
            sum(fold_of[unit.patient] == fold and (unit.stratum, unit.site) == key for unit in units)
            for fold in range(number)
        ]
        assert spread(at) <= 1


@given(st.dictionaries(st.sampled_from((*CLASSES, None)), st.integers(6, 30), min_size=1), st.integers(3, 6))
def test_where_sites_do_not_matter_folds_are_equally_large(counts, number):
    folds = folds_of(patients_of({(stratum, None): count for stratum, count in counts.items()}), number)

    assert spread(list(Counter(folds.patients.values()).values())) <= 1


slides = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from((*CLASSES, None)), st.sampled_from(SITES)), min_size=40, max_size=90
)


@given(slides, st.integers(0, 9), st.randoms())
@settings(max_examples=50)
def test_slides_of_different_classes_follow_their_patient_whatever_their_order(slides, seed, shuffled):
    units = [FoldUnit(f"s{i}", f"patient {who}", *rest) for i, (who, *rest) in enumerate(slides)]
    again = shuffled.sample(units, len(units))
    try:
        folds = folds_of(units, 3, seed)
    except EmptyTableError:
        with pytest.raises(EmptyTableError):
            folds_of(again, 3, seed)
        return

    assert canonical(folds.model_dump(mode="json")) == canonical(folds_of(again, 3, seed).model_dump(mode="json"))
    for fold in range(3):
        test = [unit for unit in units if folds.patients[unit.patient] == fold]
        assert {unit.stratum for unit in units} - {None} <= {unit.stratum for unit in test}
        by_split = split_of(folds, fold)
        assert set(by_split) == {unit.patient for unit in units}


def test_another_seed_gives_other_folds_that_are_as_even():
    units = patients_of({("low", None): 20, ("high", None): 9})

    one, other = folds_of(units, seed=1), folds_of(units, seed=2)

    assert one.patients != other.patients
    assert sorted(Counter(one.patients.values()).values()) == sorted(Counter(other.patients.values()).values())


def test_each_fold_is_tested_once_validates_once_and_trains_otherwise():
    folds = folds_of(patients_of({("low", None): 12}), 4)

    for patient, own in folds.patients.items():
        splits = [split_of(folds, fold)[patient] for fold in range(4)]
        assert splits[own] == "test"
        assert splits[own - 1] == "val"
        assert splits.count("train") == 2
    for fold in (-1, 4):
        with pytest.raises(BadRecipeError, match=rf"fold = {fold}: the folds' file has 4 folds, 0 to 3"):
            split_of(folds, fold)


def test_too_few_patients_of_a_class_or_folds_are_refused():
    with pytest.raises(EmptyTableError, match=r"too few patients for 5 folds.*'high' has 4 patients. Use fewer folds"):
        folds_of(patients_of({("low", None): 9, ("high", None): 4}), 5)
    with pytest.raises(EmptyTableError, match="2 patients for 3 folds"):
        folds_of(patients_of({(None, None): 2}))
    with pytest.raises(BadRecipeError, match="2 folds with seed 0: there must be at least 3"):
        folds_of(patients_of({("low", None): 9}), 2)
    slides_of_few = [FoldUnit(f"s{i}", f"patient {i % 2}", "high") for i in range(8)]
    with pytest.raises(EmptyTableError, match="'high' has 2 patients"):
        folds_of([*slides_of_few, *[FoldUnit(f"t{i}", f"other {i}", "low") for i in range(8)]])


def test_patients_that_look_like_one_stay_together_and_count_once():
    alike = [FoldUnit(name, name, "low") for name in ("P-7", "p-007", "P - 7")]
    others = [FoldUnit(name, name, "low") for name in ("Ada", "Bo", "Cy", "Di")]

    fold_of = folds_of([*alike, *others]).patients

    assert fold_of["P-7"] == fold_of["p-007"] == fold_of["P - 7"]
    with pytest.raises(EmptyTableError, match="'low' has 2 patients"):
        folds_of([*alike[:2], FoldUnit("Ada", "Ada", "low"), *patients_of({("high", None): 3})])


def test_a_planted_patient_is_found_in_two_splits():
    check_no_leak(["P-1", "P-2"], ["P-3"], ["P-4"])

    with pytest.raises(LeakageError, match="patient 'P-2' is in train and in test"):
        check_no_leak(["P-1", "P-2"], ["P-3"], ["P-4", "P-2"])
    with pytest.raises(LeakageError, match="'P-3' in val; 'p-03' in test"):
        check_no_leak(["P-1", "P-2"], ["P-3"], ["P-4", "p-03"])
    with pytest.raises(LeakageError, match="is in train and in val"):
        check_no_leak(["M\u00fcller"], ["Mu\u0308ller"], [])


@pytest.fixture
def cohort(tmp_path: Path) -> Cohort:
    """Nine patients with two slides each, but for the first, at two sites, and three classes."""
    rows = [
        f"{p}-{s}.svs,p{p}-{s},P{p},{'Ulm' if p < 4 else 'Bonn'},{CLASSES[p % 3]}"
        for p in range(9)
        for s in range(1 if p == 0 else 2)
    ]
    (tmp_path / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,site,label", *rows]))
    return load_cohort(tmp_path / "cohort.csv")


def made_for(cohort: Cohort) -> Folds:
    units = fold_units(cohort, None, "patient", by="label", event=None)
    sha256 = sha256_of(cohort.path)
    return make_folds(units, 3, 7, unit="patient", stratified_by=["label"], cohort_sha256=sha256)


def test_the_same_seed_gives_the_same_bytes_and_they_are_read_back(tmp_path, cohort):
    for name in ("a.json", "b.json", "a.json"):
        write_folds(tmp_path / name, made_for(cohort))

    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert read_folds(tmp_path / "a.json", cohort) == made_for(cohort)
    content = json.loads((tmp_path / "a.json").read_text())
    assert content.pop("sha256") == digest(content)
    assert content.keys() == {
        "version", "seed", "number", "unit", "stratified_by", "cohort_sha256", "table_sha256", "patients",
    }  # fmt: skip


def test_other_folds_are_not_overwritten(tmp_path, cohort):
    folds = made_for(cohort)
    write_folds(tmp_path / "folds.json", folds)

    with pytest.raises(BadManifestError, match="already exists with other folds"):
        write_folds(tmp_path / "folds.json", folds.model_copy(update={"seed": 8}))
    assert read_folds(tmp_path / "folds.json", cohort) == folds
    with pytest.raises(BadManifestError, match="already exists"):
        write_folds(tmp_path, folds)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"P1":', '"P99":', "was edited since it was written"),
        ('"seed":7', '"seed":8', "was edited since it was written"),
        ('"number":3', '"number":4', "not in folds 0 to 3"),
        ('"number":3', '"number":true', "number: Input should be a valid integer"),
        ('"seed":7', '"seed":7,"more":1', "more: Extra inputs"),
        ('"seed":7', '"seed":NaN', "seed"),
        ('"seed":7', '"seed":7,"seed":7', "the key 'seed' appears twice"),
        ('"version":1', '"version":2', "has version 2; this program reads 1"),
        ('"version":1', '"wersion":1', "has version None"),
        ('"sha256":', '"sha":', "is not a file of folds"),
        ("}", "", "cannot be read as folds"),
    ],
)
def test_an_edited_file_is_refused(tmp_path, cohort, old, new, says):
    write_folds(tmp_path / "folds.json", made_for(cohort))
    text = (tmp_path / "folds.json").read_text()
    assert old in text
    (tmp_path / "folds.json").write_text(text.replace(old, new))

    with pytest.raises(UnreadableError, match=says):
        read_folds(tmp_path / "folds.json", cohort)


def test_a_patient_moved_to_another_fold_is_refused(tmp_path, cohort):
    write_folds(tmp_path / "folds.json", made_for(cohort))
    content = json.loads((tmp_path / "folds.json").read_text())
    content["patients"]["P1"] = (content["patients"]["P1"] + 1) % 3
    (tmp_path / "folds.json").write_text(json.dumps(content))

    with pytest.raises(UnreadableError, match="was edited since it was written"):
        read_folds(tmp_path / "folds.json", cohort)


def test_a_file_that_is_only_laid_out_otherwise_is_read(tmp_path, cohort):
    write_folds(tmp_path / "folds.json", made_for(cohort))
    content = json.loads((tmp_path / "folds.json").read_text())
    (tmp_path / "folds.json").write_text(json.dumps(content, indent=4))

    assert read_folds(tmp_path / "folds.json", cohort) == made_for(cohort)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "[" * 200_000, '{"version": 1, "sha256": [[]]}', '{"sha256": "\\ud800"}'],
    ids=["empty", "list", "null", "deep", "hollow", "half a character"],
)
def test_something_else_is_refused_by_name(tmp_path, cohort, text):
    (tmp_path / "folds.json").write_text(text)

    for path in (tmp_path / "folds.json", tmp_path / "none.json", tmp_path):
        with pytest.raises(UnreadableError, match=str(path)):
            read_folds(path, cohort)


def changed(cohort: Cohort, old: str, new: str) -> Cohort:
    text = cohort.path.read_text()
    assert old in text
    cohort.path.write_text(text.replace(old, new))
    return load_cohort(cohort.path)


def test_folds_of_another_cohort_are_refused(tmp_path, cohort):
    folds = made_for(cohort)
    write_folds(tmp_path / "folds.json", folds)

    with pytest.raises(BadManifestError, match="was made from another manifest"):
        read_folds(tmp_path / "folds.json", changed(cohort, "Ulm", "Köln"))
    with pytest.raises(BadManifestError, match=r"patients P99 are in no fold"):
        read_folds(tmp_path / "folds.json", changed(cohort, ",P1,", ",P99,"))


def test_folds_of_another_table_are_refused(tmp_path, cohort):
    (tmp_path / "clinical.csv").write_text("patient_id,age\nP1,7\n")
    clinical = load_clinical(tmp_path / "clinical.csv")
    write_folds(tmp_path / "folds.json", made_for(cohort).model_copy(update={"table_sha256": NO_SHA}))

    with pytest.raises(BadManifestError, match="was made from another clinical table"):
        read_folds(tmp_path / "folds.json", cohort, clinical)
    assert read_folds(tmp_path / "folds.json", cohort).table_sha256 == NO_SHA


def test_a_forged_file_that_parts_look_alikes_or_adds_a_patient_is_refused(tmp_path, cohort):
    cohort = changed(cohort, ",P1,", ",p 2,")
    cohort = changed(cohort, ",P2,", ",P 02,")
    folds = made_for(cohort)
    assert folds.patients["p 2"] == folds.patients["P 02"]
    parted = folds.patients | {"p 2": (folds.patients["p 2"] + 1) % 3}

    write_folds(tmp_path / "parted.json", folds.model_copy(update={"patients": parted}))
    write_folds(tmp_path / "added.json", folds.model_copy(update={"patients": folds.patients | {"X": 0}}))

    with pytest.raises(LeakageError, match=r"look like one are apart: 'P 02' in fold . of .*; 'p 2' in fold"):
        read_folds(tmp_path / "parted.json", cohort)
    with pytest.raises(BadManifestError, match="patients X are in a fold, but not in the cohort"):
        read_folds(tmp_path / "added.json", cohort)


def test_classes_and_events_make_the_strata_and_sites_are_known(tmp_path, cohort):
    events = [f"P{p},{'dead' if p % 2 else 'alive'}" for p in range(8)]
    (tmp_path / "clinical.csv").write_text("\n".join(["patient_id,Tod", *events, "P8,NA"]))
    clinical = load_clinical(tmp_path / "clinical.csv")

    both = {u.name: u for u in fold_units(cohort, clinical, "patient", by="label", event="Tod")}
    assert both["P1"] == FoldUnit("P1", "P1", "mid, event", "Ulm")
    assert (both["P4"].stratum, both["P8"].stratum) == ("mid, no event", None)
    by_slide = fold_units(cohort, clinical, "slide", by=None, event="Tod")
    assert (len(by_slide), by_slide[1]) == (17, FoldUnit("p1-0", "P1", "event", "Ulm"))
    (tmp_path / "clinical.csv").write_text("patient_id,Tod\nP1,NA\n")
    with pytest.raises(EmptyTableError, match="no patient has a value in `Tod`"):
        fold_units(cohort, load_clinical(tmp_path / "clinical.csv"), "patient", by=None, event="Tod")


@pytest.mark.parametrize("unit", ["patient", "slide"])
def test_slides_without_a_patient_have_no_folds(cohort, unit):
    with pytest.raises(BadManifestError, match="slides p1-0, p1-1 have no patient_id"):
        fold_units(changed(cohort, ",P1,", ",,"), None, unit, by="label", event=None)


def test_the_verb_writes_folds_and_prints_their_counts(gemslide, tmp_path, cohort):
    done = gemslide("folds", cohort.path, "--project", tmp_path / "p", "--number", 3, "--by", "label")

    assert (done.code, done.err) == (0, "")
    folds = read_folds(tmp_path / "p/folds.json", cohort)
    assert (folds.seed, folds.unit, folds.stratified_by, folds.table_sha256) == (0, "patient", ("label",), None)
    lines = [line.replace("│", " ").split() for line in done.out.splitlines()]
    for fold in range(3):
        assert [str(fold), "1", "1", "1", "3"] in lines
    assert "9 patients in 3 folds, seed 0" in done.out


def test_the_verb_s_json_names_no_patient(gemslide, tmp_path, cohort):
    rows = [f"P{p},pT{p % 3},{p % 2}" for p in range(9)]
    (tmp_path / "clinical.csv").write_text("\n".join(["patient_id,T.Stadium,Tod (ja)", *rows]))
    options = ("--project", tmp_path, "--table", tmp_path / "clinical.csv", "--number", 3, "--out", tmp_path / "f.json")

    done = gemslide("folds", cohort.path, *options, "--by", "T.Stadium", "--json")

    line = json.loads(done.out)
    assert (line["stratified_by"], line["unit"], line["number"]) == (["T.Stadium"], "patient", 3)
    assert line["folds"][2] == {"fold": 2, "patients": 3, "counts": {"pT0": 1, "pT1": 1, "pT2": 1}}
    assert line["table_sha256"] == sha256_of(tmp_path / "clinical.csv")
    assert not [patient for patient in read_folds(tmp_path / "f.json", cohort).patients if f'"{patient}"' in done.out]
    again = gemslide("folds", cohort.path, *options, "--event", "Tod (ja)")
    assert (again.code, "already exists with other folds" in again.err) == (1, True)
    wrong = gemslide("folds", cohort.path, *options, "--event", "T.Stadium", "--json")
    assert json.loads(wrong.out)["code"] == "bad_manifest"
    assert "does not say whether the event happened" in wrong.err
    assert "clinical.csv" not in wrong.out + wrong.err


def test_the_verb_says_what_it_counted_and_whom_it_kept_together(gemslide, tmp_path, cohort):
    cohort = changed(cohort, "p1-0,P1,Ulm,mid", "p1-0,P1,Ulm,low")
    cohort = changed(cohort, ",P8,", ",p 03,")

    done = gemslide("folds", cohort.path, "--project", tmp_path, "--number", 3, "--by", "label")

    assert done.code == 0
    assert "patient 'P1' has slides with different values of `label`: 'low'" in done.err
    assert "so slides are counted" in done.err
    assert "warning: patients 'P3', 'p 03' look like one, and are in one fold" in done.err
    assert "9 patients, 17 slides in 3 folds" in done.out
    folds = read_folds(tmp_path / "folds.json", cohort)
    assert (folds.unit, folds.patients["P3"]) == ("slide", folds.patients["p 03"])


def test_the_verb_refuses_what_has_no_column_or_no_patients_enough(gemslide, tmp_path, cohort):
    none = gemslide("folds", cohort.path, "--project", tmp_path)
    few = gemslide("folds", cohort.path, "--project", tmp_path, "--by", "label", "--json")

    assert (none.code, "no column to stratify by" in none.err) == (1, True)
    assert (few.code, json.loads(few.out)["code"]) == (1, "empty_table")
    assert "too few patients for 5 folds" in few.err
    assert not (tmp_path / "folds.json").exists()
