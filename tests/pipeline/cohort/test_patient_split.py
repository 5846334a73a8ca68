import pytest

from pipeline.cohort.manifest import SlideEntry
from pipeline.cohort.split import assign_splits
from pipeline.errors import BadManifestError, LeakageError
from pipeline.settings.config import SplitConfig


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
