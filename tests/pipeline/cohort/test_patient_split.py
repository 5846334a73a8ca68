import json

import pytest

from pipeline.cohort.look_alikes import look_alikes
from pipeline.cohort.manifest import SlideEntry
from pipeline.cohort.split import assign_splits
from pipeline.errors import BadManifestError, LeakageError
from pipeline.settings.config import SplitConfig
from tests.small_trained_project import make_slide


def entry(slide_id, patient_id=None, split=None):
    return SlideEntry(path=f"{slide_id}.svs", slide_id=slide_id, patient_id=patient_id, split=split)


def test_a_patient_in_two_splits_is_refused_with_the_slides():
    entries = [entry("a", "p1", "train"), entry("b", "p1", "test"), entry("c", "p2", "val")]

    with pytest.raises(LeakageError, match=r"patient p1 is in 2 splits \(test: b; train: a\)"):
        assign_splits(entries, SplitConfig())


def test_all_slides_of_a_patient_follow_the_one_with_a_split():
    splits = assign_splits([entry("a", "p1", "test"), entry("b", "p1"), entry("c", "p2")], SplitConfig())

    assert splits["a"] == splits["b"] == "test"


def test_patients_are_assigned_by_share_and_seed_alone():
    entries = [entry(f"s{i}-{k}", f"p{i}") for i in range(20) for k in range(2)]

    first = assign_splits(entries, SplitConfig(train=0.6, val=0.2, test=0.2, seed=1))
    again = assign_splits(entries[::-1], SplitConfig(train=0.6, val=0.2, test=0.2, seed=1))
    other = assign_splits(entries, SplitConfig(train=0.6, val=0.2, test=0.2, seed=2))

    assert first == again
    assert first != other
    assert sorted(list(first.values()).count(s) for s in ("train", "val", "test")) == [8, 8, 24]
    assert all(first[f"s{i}-0"] == first[f"s{i}-1"] for i in range(20))


def test_a_split_without_patients_is_refused():
    with pytest.raises(BadManifestError, match="have no patient_id"):
        assign_splits([entry("a", None, "train"), entry("b", "p2", "test")], SplitConfig())


def test_a_manifest_without_patients_and_splits_gives_tiles_to_infer_only():
    assert assign_splits([entry("a"), entry("b")], SplitConfig()) == {"a": None, "b": None}


ALIKE = {
    "capitals": ("P-7", "p-7"),
    "blanks within": ("P 7", "P7"),
    "two blanks": ("Ada  Lovelace", "ada lovelace"),
    "leading zeros": ("0012", "12"),
    "leading zeros after letters": ("P-007", "P-7"),
    "a decimal point": ("12", "12.0"),
    "a decimal comma": ("0012", "12,00"),
    "thousands": ("1,234", "1234"),
    "Excel's apostrophe": ("'0012", "0012"),
    "quotes": ("O'Brien", "O\u2019Brien"),
    "an acute accent for a quote": ("O´Brien", "O'Brien"),
    "a non-breaking hyphen": ("P-7", "P\u20117"),
    "an en dash": ("P-7", "P\u20137"),
    "a minus": ("P-7", "P\u22127"),
    "full width": ("P-7", "Ｐ－７"),
    "a ligature": ("Fischer", "\ufb01scher"),
    "ß": ("Weiß", "WEISS"),
    "Arabic digits": ("P-12", "P-\u0661\u0662"),
    "a Cyrillic letter": ("PAC-7", "P\u0410C-7"),
    "a date by a spreadsheet": ("2024-01-05", "05.01.2024"),
    "a date in short": ("5.1.2024", "1/5/24"),
    "a date and a time": ("2024-01-05", "2024-01-05 00:00:00"),
    "a date by its month": ("2024-03-05", "5. März 2024"),
    "a date by its number": ("2024-01-05", "45296"),
    "a date without separators": ("2024-01-05", "20240105"),
    "what a spreadsheet takes for a date": ("1-5", "05-Jan"),
}
APART = [
    ("P-7", "P-70", "P-17", "Q-7"),
    ("1-11", "11-1"),
    ("1-2", "1/2"),
    ("2024-01-05", "2024-05-01", "2023-01-05"),
    ("01/05/2024", "05/01/2024"),
    ("12.5", "12.0", "125"),
    ("TCGA-A2-A04P", "TCGA-A2-A04Q", "TCGA-A2-A0EP"),
    ("Müller", "Muller", "Mueller"),
    ("100", "1000", "10"),
    ("MAR-1", "MAR-2", "MARTIN-1"),
    ("45296", "45297"),
]


@pytest.mark.parametrize("what", ALIKE)
def test_a_patient_in_two_spellings_is_not_in_two_splits(what):
    one, other = ALIKE[what]
    with pytest.raises(LeakageError, match="look like one are in different splits") as caught:
        assign_splits([entry("a", one, "train"), entry("b", other, "test"), entry("c", "else")], SplitConfig())
    for said in (f"{one!r} in train (slide a)", f"{other!r} in test (slide b)", "write both alike"):
        assert said in str(caught.value)
    assign_splits([entry("a", one, "train"), entry("b", other, "train"), entry("c", "else", "test")], SplitConfig())


@pytest.mark.parametrize("patients", APART, ids=lambda patients: patients[0])
def test_patients_who_differ_in_more_than_their_spelling_are_left_alone(patients):
    assert look_alikes(patients) == []


def test_a_check_finds_every_row_of_a_patient_who_looks_like_another(gemslide, tmp_path):
    for seed, name in enumerate("abcd"):
        make_slide(tmp_path / f"{name}.tiff", seed)
    rows = ["a.tiff,a,P-7", "b.tiff,b,p 7", "c.tiff,c,P-07", "d.tiff,d,p_007"]
    (tmp_path / "cohort.csv").write_text("\n".join(["path,slide_id,patient_id,split", *(f"{r},test" for r in rows)]))
    done = gemslide("cohort", "check", tmp_path / "cohort.csv", "--project", tmp_path, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert (done.code, {name: line["code"] for name, line in lines.items()}) == (
        1, {"a": None, "b": None, "c": "bad_manifest", "d": "bad_manifest"},
    )  # fmt: skip
    assert "its patient 'P-07' looks like patient 'P-7' (slide a)" in lines["c"]["message"]
