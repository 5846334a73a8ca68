"""Pseudonyms are random, kept stable by their map, and the map is never in a project."""

import csv
import fcntl
import os
import re
import stat

import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.cohort.pseudonyms import pseudonymize_cohort, read_map
from pipeline.errors import BadManifestError
from training.foundation.errors import LockedError

ROWS = """path,slide_id,patient_id,site,mpp,annotations,label,split,exclude
scans/Doe_Jane-1.svs,Doe_Jane-1,Doe Jane,North,0.25,scans/Doe_Jane-1.geojson,tumour,train,
scans/Doe_Jane-2.svs,Doe_Jane-2,Doe Jane,North,,,,train,
scans/Roe-1.svs,Roe-1,"Roe, Richard",South,,,normal,test,
scans/Poe-1.svs,Poe-1,,,,,,,out of focus
"""


@pytest.fixture
def cohort(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in/cohort.csv"
    path.write_text(ROWS, encoding="utf-8")
    return path


@pytest.fixture
def secret(tmp_path):
    """The folder outside the project."""
    (tmp_path / "secret").mkdir()
    return tmp_path / "secret"


def pseudonymize(cohort, secret, **options):
    return pseudonymize_cohort(cohort, secret / "map.csv", secret / "pseudo.csv", **options)


def test_names_become_pseudonyms_and_everything_else_stays(cohort, secret):
    done = pseudonymize(cohort, secret)
    before, after = load_cohort(cohort), load_cohort(secret / "pseudo.csv")

    assert (done.num_slides, done.num_patients, done.num_new) == (4, 2, 8)
    for old, new in zip(before.entries, after.entries, strict=True):
        assert re.fullmatch(r"slide-[0-9a-f]{10}", new.slide_id)
        assert (new.mpp, new.label, new.split, new.exclude) == (old.mpp, old.label, old.split, old.exclude)
        assert after.slide_path(new).resolve() == before.slide_path(old).resolve()
    first, second, third, last = after.entries
    assert after.annotations_path(first).resolve() == before.annotations_path(before.entries[0]).resolve()
    assert first.patient_id == second.patient_id != third.patient_id
    assert first.site == second.site != third.site
    assert (last.patient_id, last.site) == (None, None)


def test_the_same_map_again_gives_the_same_pseudonyms_and_is_extended(cohort, secret):
    pseudonymize(cohort, secret)
    first = load_cohort(secret / "pseudo.csv").entries
    cohort.write_text(ROWS + "scans/Doe_Jane-3.svs,Doe_Jane-3,Doe Jane,North,,,,train,\n", encoding="utf-8")

    done = pseudonymize(cohort, secret)
    again = load_cohort(secret / "pseudo.csv").entries

    assert done.num_new == 1
    assert again[:4] == first
    assert again[4].patient_id == first[0].patient_id


def test_another_map_gives_other_pseudonyms(cohort, secret, tmp_path):
    pseudonymize(cohort, secret)
    pseudonymize_cohort(cohort, tmp_path / "other/map.csv", tmp_path / "other/pseudo.csv")

    ours, theirs = ({row.pseudonym for row in read_map(f / "map.csv").rows} for f in (secret, tmp_path / "other"))
    assert not ours & theirs


def test_the_map_leads_back_to_names_and_files(cohort, secret, tmp_path):
    pseudonymize(cohort, secret)
    with (secret / "map.csv").open(newline="") as stream:
        rows = {row["original"]: row for row in csv.DictReader(stream)}

    assert rows["Roe, Richard"]["kind"] == "patient"
    assert rows["Doe_Jane-1"]["path"] == str(tmp_path / "in/scans/Doe_Jane-1.svs")
    assert rows["North"]["pseudonym"].startswith("site-")


def test_only_the_owner_may_read_the_map_and_the_new_manifest(cohort, secret):
    pseudonymize(cohort, secret)
    os.chmod(secret / "map.csv", 0o644)
    pseudonymize(cohort, secret)

    assert [stat.S_IMODE((secret / name).stat().st_mode) for name in ("map.csv", "pseudo.csv")] == [0o600, 0o600]
    assert sorted(p.name for p in secret.iterdir()) == [".map.csv.lock", "map.csv", "pseudo.csv"]


def test_blocks_get_pseudonyms_unless_asked_to_stay_and_stains_stay(cohort, secret):
    cohort.write_text(
        "path,slide_id,patient_id,block,stain\n"
        "scans/a.svs,a,Doe Jane,S21-4711 A1,HE\nscans/b.svs,b,Doe Jane,S21-4711 A1,Ki67\nscans/c.svs,c,Doe Jane,,HE\n",
        encoding="utf-8",
    )
    pseudonymize(cohort, secret)
    first, second, third = load_cohort(secret / "pseudo.csv").entries
    assert re.fullmatch(r"block-[0-9a-f]{10}", first.block)
    assert (second.block, third.block) == (first.block, None)
    assert [entry.stain for entry in (first, second, third)] == ["HE", "Ki67", "HE"]
    assert "4711" not in (secret / "pseudo.csv").read_text()

    pseudonymize(cohort, secret, keep=["block"])
    assert [entry.block for entry in load_cohort(secret / "pseudo.csv").entries] == ["S21-4711 A1", "S21-4711 A1", None]


def test_sites_stay_when_asked(cohort, secret):
    pseudonymize(cohort, secret, keep=["site"])

    assert [entry.site for entry in load_cohort(secret / "pseudo.csv").entries] == ["North", "North", "South", None]


@pytest.mark.parametrize("sign", ["gemslide.toml", "slides/a.ome.zarr/zarr.json", "runs/20261120T120000Z-abcdef.json"])
@pytest.mark.parametrize("which", ["map", "manifest"])
def test_neither_map_nor_manifest_may_lie_in_a_project(cohort, secret, tmp_path, sign, which):
    (tmp_path / "study" / sign).parent.mkdir(parents=True)
    (tmp_path / "study" / sign).write_text("")
    inside = tmp_path / "study/deep/down"
    places = (inside / "m.csv", secret / "o.csv") if which == "map" else (secret / "m.csv", inside / "o.csv")

    with pytest.raises(BadManifestError, match="must not be inside the project folder"):
        pseudonymize_cohort(cohort, *places)

    assert not inside.exists()
    assert list(secret.iterdir()) == []


def test_a_project_that_is_named_is_kept_free_although_it_is_empty(cohort, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "study")

    with pytest.raises(BadManifestError, match="must not be inside"):
        pseudonymize_cohort(cohort, tmp_path / "link/map.csv", tmp_path / "p.csv", project=tmp_path / "study")


def test_a_folder_of_slide_files_is_no_project(cohort, tmp_path):
    (tmp_path / "in/slides").mkdir()

    assert pseudonymize_cohort(cohort, tmp_path / "in/map.csv", tmp_path / "in/p.csv").num_new == 8


def test_a_file_somebody_else_made_is_not_replaced(cohort, secret):
    (secret / "pseudo.csv").write_text("path\nmine.svs\n")

    with pytest.raises(BadManifestError, match="was not made with the map"):
        pseudonymize(cohort, secret)

    assert (secret / "pseudo.csv").read_text() == "path\nmine.svs\n"
    assert not (secret / "map.csv").exists()


def test_the_manifest_itself_is_never_the_target(cohort, secret):
    with pytest.raises(BadManifestError, match="must be three files"):
        pseudonymize_cohort(cohort, secret / "map.csv", cohort)


def test_pseudonyms_are_not_given_pseudonyms(cohort, secret, tmp_path):
    pseudonymize(cohort, secret)

    with pytest.raises(BadManifestError, match="is already a pseudonym of the map"):
        pseudonymize_cohort(secret / "pseudo.csv", secret / "map.csv", tmp_path / "twice.csv")


def test_the_same_id_for_another_file_is_refused(cohort, secret):
    pseudonymize(cohort, secret)
    cohort.write_text(ROWS.replace("scans/Roe-1.svs", "elsewhere/Roe-1.svs"))

    with pytest.raises(BadManifestError, match=r"If the file was moved, correct its path"):
        pseudonymize(cohort, secret)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path\na.svs\n", "is not a map of pseudonyms"),
        ("kind,original,pseudonym,path\npatient,Doe\n", "line 2"),
        ("kind,original,pseudonym,path\npatient,Doe,p-1,\npatient,Roe,p-1,\n", "more than one line"),
        ("", "cannot be read"),
    ],
)
def test_a_damaged_map_is_refused_and_kept(cohort, secret, text, says):
    (secret / "map.csv").write_text(text)

    with pytest.raises(BadManifestError, match=says):
        pseudonymize(cohort, secret)

    assert (secret / "map.csv").read_text() == text


def test_two_processes_do_not_extend_one_map_at_once(cohort, secret):
    with (secret / ".map.csv.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        with pytest.raises(LockedError, match="another process is extending it"):
            pseudonymize(cohort, secret)

    assert pseudonymize(cohort, secret).num_new == 8


def test_the_command_says_where_the_way_back_lies(gemslide, cohort, secret):
    done = gemslide("cohort", "pseudonymize", cohort, "--map", secret / "map.csv", "--out", secret / "pseudo.csv")
    refused = gemslide("cohort", "pseudonymize", cohort, "--map", cohort, "--out", secret / "x.csv")

    assert (done.code, refused.code) == (0, 1)
    assert "4 slides, 2 patients; 8 new pseudonyms" in done.out
    assert "is the only way back to the names" in done.out
    assert "error [bad_manifest]" in refused.err


def test_patients_who_look_like_one_are_named_because_their_pseudonyms_do_not(gemslide, tmp_path):
    (tmp_path / "real.csv").write_text("path,slide_id,patient_id\na.svs,a,P-7\nb.svs,b,p 07\nc.svs,c,P-07\n")
    done = gemslide(
        "cohort", "pseudonymize", tmp_path / "real.csv", "--map", tmp_path / "map.csv", "--out", tmp_path / "out.csv"
    )
    assert done.code == 0
    assert "warning: patients 'P-7', 'P-07' look like one, but got different pseudonyms" in done.err
