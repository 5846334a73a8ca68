import csv
import os
from pathlib import Path

import pytest

from pipeline.cohort.manifest import MAX_MANIFEST_BYTES, init_cohort, load_cohort
from pipeline.errors import BadManifestError


def write(tmp_path, text):
    path = tmp_path / "cohort.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_only_the_path_is_required(tmp_path):
    (entry,) = load_cohort(write(tmp_path, "path\nsub/A-1.svs\n")).entries

    assert (entry.slide_id, entry.patient_id, entry.mpp) == ("A-1", None, None)


def test_paths_are_relative_to_the_manifest(tmp_path):
    cohort = load_cohort(write(tmp_path, "path,annotations\nsub/a.svs,ann/a.geojson\n"))

    assert cohort.slide_path(cohort.entries[0]) == tmp_path / "sub/a.svs"
    assert cohort.annotations_path(cohort.entries[0]) == tmp_path / "ann/a.geojson"


def test_a_byte_order_mark_and_blank_cells_do_no_harm(tmp_path):
    path = tmp_path / "cohort.csv"
    path.write_bytes(b"\xef\xbb\xbfpath,mpp,split\na.svs, ,\n")

    assert load_cohort(path).entries[0].mpp is None


def test_excluded_slides_are_left_out(tmp_path):
    cohort = load_cohort(write(tmp_path, "path,exclude\na.svs,\nb.svs,out of focus\n"))

    assert [entry.slide_id for entry in cohort.included] == ["a"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path,pacient_id\na.svs,1\n", "unknown column `pacient_id`: did you mean `patient_id`"),
        ("slide\na.svs\n", "no column `path`"),
        ("path\n", "has no slides"),
        ("path,slide_id\na.svs,x\nb.svs,x\n", "slide_id x is on more than one row"),
        ("path,slide_id\na.svs,a b\n", "line 2"),
        ("path,split\na.svs,training\n", "'train', 'val' or 'test'"),
        ("path,mpp\na.svs,half\n", "`mpp` = 'half'"),
        ("path\na.svs,extra\n", "line 2: the number of fields differs"),
        ("path\nbad name.svs\n", "'bad name'"),
    ],
)
def test_a_manifest_that_does_not_hold_together_is_refused(tmp_path, text, says):
    with pytest.raises(BadManifestError, match=says):
        load_cohort(write(tmp_path, text))


def test_a_manifest_is_written_from_a_folder_with_annotations_beside_slides(tmp_path):
    (tmp_path / "in/sub").mkdir(parents=True)
    for name in ("in/b.svs", "in/sub/a,1.tiff", "in/b.geojson", "in/notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "in/sub/a,1.tiff").rename(tmp_path / "in/sub/a.tiff")

    cohort = init_cohort(tmp_path / "in", tmp_path / "out.csv")

    assert [entry.path for entry in cohort.entries] == ["in/b.svs", "in/sub/a.tiff"]
    assert cohort.entries[0].annotations == "in/b.geojson"
    with (tmp_path / "out.csv").open() as stream:
        assert len(next(csv.reader(stream))) == 14


def test_an_existing_manifest_is_not_overwritten(tmp_path):
    (tmp_path / "a.svs").touch()
    write(tmp_path, "path\nmine.svs\n")

    with pytest.raises(BadManifestError, match="already exists"):
        init_cohort(tmp_path, tmp_path / "cohort.csv")
    assert "mine" in (tmp_path / "cohort.csv").read_text()


def test_file_names_that_are_no_ids_or_the_same_get_ids_of_their_own(tmp_path):
    for name in ("in/S 2021-123 HE.svs", "in/ok.svs", "in/b/ok.svs", "in/.svs.svs"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    cohort = init_cohort(tmp_path / "in", tmp_path / "cohort.csv")

    assert {entry.path: entry.slide_id for entry in cohort.entries} == {
        "in/.svs.svs": "svs", "in/S 2021-123 HE.svs": "S-2021-123-HE", "in/b/ok.svs": "ok", "in/ok.svs": "ok-2",
    }  # fmt: skip


def test_empty_rows_of_a_spreadsheet_do_no_harm_and_a_doubled_column_is_refused(tmp_path):
    assert len(load_cohort(write(tmp_path, "path,mpp\na.svs,\n,\n,\n")).entries) == 1

    with pytest.raises(BadManifestError, match="`path` appears 2 times"):
        load_cohort(write(tmp_path, "path,path\na.svs,b.svs\n"))


@pytest.mark.parametrize("column", ["patient_id", "site", "scanner", "label"])
def test_a_cell_that_cannot_be_printed_is_refused(tmp_path, column):
    with pytest.raises(BadManifestError, match=rf"line 2: `{column}`.*U\+001B"):
        load_cohort(write(tmp_path, f"path,{column}\na.svs,x\x1b[31m\n"))


@pytest.mark.parametrize("text", ["path,annotations\na.svs,b\0.json\n", "path,slide_id\na\0.svs,a\n", "pa\0th\n"])
def test_a_nul_is_refused(tmp_path, text):
    with pytest.raises(BadManifestError):
        load_cohort(write(tmp_path, text))


def test_a_pipe_a_folder_and_a_file_without_end_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")

    for path in (tmp_path / "pipe.csv", tmp_path, Path("/dev/zero")):
        with pytest.raises(BadManifestError, match="not a regular file"):
            load_cohort(path)


def test_a_manifest_beyond_any_cohort_is_refused(tmp_path):
    with (tmp_path / "cohort.csv").open("wb") as stream:
        stream.truncate(MAX_MANIFEST_BYTES + 1)

    with pytest.raises(BadManifestError, match="longer than"):
        load_cohort(tmp_path / "cohort.csv")


@pytest.mark.parametrize(
    "text", ["x," * 100_000, "path," * 100_000, "path,mpp\na.svs," + "9" * 100_000, "path\n" + "a.svs\n" * 9999]
)
def test_a_message_stays_short_however_long_the_input_is(tmp_path, text):
    with pytest.raises(BadManifestError) as raised:
        load_cohort(write(tmp_path, text))

    assert len(str(raised.value)) < 1000
