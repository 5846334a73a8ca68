"""A name in two Unicode forms is one name wherever people, patients, classes or accounts are compared."""

import json
import unicodedata

import pandas as pd
import pytest

from pathology_app.people.account_file import AccountFile
from pathology_app.people.accounts import Accounts
from pathology_app.people.actors import actor_text
from pathology_app.people.passwords import hash_password, is_password
from pipeline.annotations import read_annotations, write_annotations
from pipeline.cohort.manifest import init_cohort, load_cohort
from pipeline.cohort.pseudonyms import pseudonymize_cohort
from pipeline.cohort.split import assign_splits
from pipeline.errors import BadAnnotationError, BadManifestError, LeakageError
from pipeline.naming.sources import SourceNames
from pipeline.settings.config import SplitConfig, TileConfig
from pipeline.study.leakage import check_leakage
from pipeline.study.privacy.keyed import PseudonymKey
from pipeline.study.privacy.names import Names
from pipeline.study.protocol import Endpoint, Signer
from pipeline.study.reading.questions import Question
from pipeline.tiles.table import read_table, write_table
from pipeline.tiles.table_checks import content_sha256
from training.foundation.errors import BadRecipeError
from training.foundation.settings import parse_section
from training.foundation.words.class_names import check_class_name
from training.foundation.words.names import comparable

NFC = unicodedata.normalize("NFC", "Müller-Åström")
NFD = unicodedata.normalize("NFD", NFC)
FORMS = (NFC, NFD)


def manifest(tmp_path, *rows, header="path,slide_id,patient_id,split,label,site,scanner"):
    (tmp_path / "cohort.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return tmp_path / "cohort.csv"


def test_the_two_forms_differ_and_compare_as_one():
    assert NFC != NFD
    assert comparable(NFC) == comparable(NFD) == NFC
    assert comparable("ﬁ ª") == "ﬁ ª"  # letters that only look alike are not merged


def test_a_manifest_holds_one_form(tmp_path):
    rows = [f"{i}.svs,S-{i},{name},test,{name},{name},{name}" for i, name in enumerate(FORMS)]
    first, second = load_cohort(manifest(tmp_path, *rows)).entries
    for what in ("patient_id", "label", "site", "scanner"):
        assert getattr(first, what) == getattr(second, what) == NFC


def test_a_patient_in_two_forms_is_not_in_two_splits(tmp_path):
    rows = [f"a.svs,a,{NFC},train,,,", f"b.svs,b,{NFD},test,,,"]
    with pytest.raises(LeakageError, match=r"is in 2 splits"):
        assign_splits(load_cohort(manifest(tmp_path, *rows)).entries, SplitConfig())
    cohort = load_cohort(manifest(tmp_path, *(f"{i}.svs,S-{i},{name},,,," for i, name in enumerate(FORMS * 5))))
    for seed in range(20):
        assert len(set(assign_splits(cohort.entries, SplitConfig(seed=seed)).values())) == 1


def test_a_patient_in_two_forms_has_one_pseudonym(tmp_path):
    source = manifest(tmp_path, *(f"{i}.svs,S-{i},{name},,,{name}," for i, name in enumerate(FORMS)))
    done = pseudonymize_cohort(source, tmp_path / "map.csv", tmp_path / "out.csv")
    assert done.num_patients == 1
    assert len({e.patient_id for e in load_cohort(tmp_path / "out.csv").entries}) == 1
    decomposed = unicodedata.normalize("NFD", (tmp_path / "map.csv").read_text())
    (tmp_path / "map.csv").write_text(decomposed)  # as another computer may have stored it
    assert pseudonymize_cohort(source, tmp_path / "map.csv", tmp_path / "out.csv").num_new == 0
    key = PseudonymKey(b"0" * 32)
    assert key.pseudonym("patient", NFC) == key.pseudonym("patient", NFD)


def test_invisible_differences_between_names_are_refused(tmp_path):
    for invisible in ("\u200b", "\u00a0", "\ufeff", "\u200d", "\u2060", "\ufe0f", "\u034f", "\u3164", "\u2800"):
        for column in ("patient_id", "label", "site"):
            with pytest.raises(BadManifestError, match=r"cannot be printed"):
                load_cohort(manifest(tmp_path, f"a.svs,x{invisible}y", header=f"path,{column}"))
        with pytest.raises(ValueError, match="cannot be printed"):
            check_class_name(f"a{invisible}b")


def as_form(feature_class):
    ring = [[0, 0], [9, 0], [9, 9], [0, 0]]
    return {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "properties": {"classification": {"name": feature_class, "color": [1, 2, 3]}},
    }


@pytest.mark.parametrize("to", ["qupath", "asap", "imagescope"])
def test_annotation_classes_have_one_form_in_every_format(tmp_path, to):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([as_form(name) for name in FORMS]), encoding="utf-8")
    file = read_annotations(path)
    write_annotations(tmp_path / to, file, to)
    text = unicodedata.normalize("NFD", (tmp_path / to).read_text("utf-8"))
    (tmp_path / to).write_text(text, encoding="utf-8")
    for annotations in (file, read_annotations(tmp_path / to)):
        assert annotations.count_by_class() == {NFC: 2}
        assert annotations.class_colors == {NFC: (1, 2, 3)}


def test_a_class_name_is_as_long_in_both_forms(tmp_path):
    name = unicodedata.normalize("NFD", "ü" * 100)
    assert check_class_name(name) == "ü" * 100
    (tmp_path / "a.json").write_text(json.dumps([as_form("ü" * 101)]), encoding="utf-8")
    with pytest.raises(BadAnnotationError, match="1 to 100 characters"):
        read_annotations(tmp_path / "a.json")


def test_settings_and_protocols_hold_one_form():
    assert TileConfig(classes=(NFD,), ignore_classes=(NFD,)).classes == (NFC,)
    assert Endpoint(name=NFD, measure="auc", model="m", class_name=NFD).class_name == NFC
    assert Signer(name=NFD, key_id="0" * 16, may=("approved",)).name == NFC
    question = Question(name="q", ask="?", kind="choice", choices=(NFD, "b"))
    assert question.check(NFD) == question.check(NFC) == NFC
    with pytest.raises(ValueError, match="a choice appears twice"):
        Question(name="q", ask="?", kind="choice", choices=FORMS)


def split_table(small_project, patient_of):
    """Small project's tile table with other patients, as written by a computer that decomposes names."""
    table = read_table(small_project.project.tile_table_path("small"))
    frame = table.frame.copy()
    frame["patient_id"] = frame["split"].map(patient_of)
    return frame, {**table.metadata, "content_sha256": content_sha256(frame, table.metadata)}


def test_a_tile_table_with_a_patient_in_two_forms_and_splits_is_refused(small_project, tmp_path):
    from pipeline.tiles.table import TileTable

    frame, metadata = split_table(small_project, {"train": NFC, "val": "x", "test": NFD})
    write_table(tmp_path / "t.parquet", TileTable(frame, metadata))
    with pytest.raises(LeakageError, match="is in the splits test, train"):
        read_table(tmp_path / "t.parquet")


def test_a_tile_table_is_read_in_one_form(small_project, tmp_path):
    from pipeline.tiles.table import TileTable

    frame, metadata = split_table(small_project, {"train": NFD, "val": "x", "test": "y"})
    write_table(tmp_path / "t.parquet", TileTable(frame, metadata))
    table = read_table(tmp_path / "t.parquet")
    assert set(table.frame["patient_id"]) == {NFC, "x", "y"}
    assert isinstance(table.frame["patient_id"], pd.Series)


def test_a_patient_of_training_in_another_form_is_found(small_project, tmp_path, monkeypatch):
    from pipeline.study import leakage

    class Trained:
        def __init__(self):
            import numpy as np

            self.splits, self.groups, self.slides = np.array(["train"]), np.array([NFD]), np.array(["other"])

    monkeypatch.setattr(leakage, "_trained_on", lambda *_: Trained())
    with pytest.raises(LeakageError, match="was trained on patients"):
        check_leakage(load_cohort(manifest(tmp_path, f"a.svs,a,{NFC},,,,")), {"m": tmp_path}, small_project.project)


def test_accounts_and_passwords_are_one_in_both_forms(tmp_path):
    person = {"name": "ada", "roles": ["reader"], "email": f"{NFD}@example.org", "subject": NFD, "reader": "r-1"}
    twin = {**person, "name": "bob", "email": f"{NFC}@example.org", "subject": "", "reader": ""}
    with pytest.raises(BadRecipeError, match="two people have the email"):
        parse_section(AccountFile, {"person": [person, twin]}, where="accounts.toml")
    (tmp_path / "accounts.toml").write_text(
        "[[person]]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in person.items())
    )
    (tmp_path / "accounts.toml").chmod(0o600)
    accounts = Accounts(tmp_path / "accounts.toml")
    assert [accounts.find_by_provider(name, None).name for name in FORMS] == ["ada", "ada"]
    hashed = hash_password(f"{NFD} long enough")
    assert is_password(f"{NFC} long enough", hashed)
    assert is_password(f"{NFD} long enough", hashed)
    assert actor_text(NFD) == actor_text(NFC)


def test_names_that_must_not_leave_are_found_in_both_forms(tmp_path):
    for name, text in zip(FORMS, reversed(FORMS), strict=True):
        assert Names.of([name]).first_in(f"report of {text}, 1950")
        slide = tmp_path / f"{name}.svs"
        assert "ller" not in SourceNames(slide).removed_from(f"{tmp_path}/{text}.svs: damaged")


@pytest.mark.parametrize(("on_disk", "in_table"), [FORMS, FORMS[::-1]])
def test_files_are_found_whatever_form_their_names_have(tmp_path, on_disk, in_table):
    folder = tmp_path / on_disk
    folder.mkdir()
    for suffix in ("svs", "geojson"):
        (folder / f"{on_disk}.{suffix}").touch()
    path = manifest(
        tmp_path, f"{in_table}/{in_table}.svs,S-1,{in_table}/{in_table}.geojson", header="path,slide_id,annotations"
    )
    cohort = load_cohort(path)
    assert cohort.slide_path(cohort.entries[0]) == folder / f"{on_disk}.svs"
    assert cohort.annotations_path(cohort.entries[0]) == folder / f"{on_disk}.geojson"
    made = init_cohort(tmp_path, tmp_path / "new.csv")
    assert made.entries[0].slide_id == "M-ller--str-m"
    assert made.slide_path(made.entries[0]).exists()
