"""Slide lists of other programs are read as they are."""

from __future__ import annotations

import pytest

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError


@pytest.fixture
def folder(tmp_path):
    for name in ("a.svs", "b.tiff", "TCGA-3L-AA1B.0123.svs"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def read(folder, text: str) -> list[dict[str, object]]:
    (folder / "list.csv").write_text(text)
    return [entry.model_dump(exclude_none=True) for entry in load_cohort(folder / "list.csv").entries]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("sample_id,image_path,mask_path\nS-1,a.svs,m.tif\n", {"path": "a.svs", "slide_id": "S-1"}),
        ("sample_id,image_path,spacing_at_level_0\nS-1,a.svs,0.5\n", {"path": "a.svs", "slide_id": "S-1", "mpp": 0.5}),
        ("wsi,mpp\na.svs,0.25\n", {"path": "a.svs", "slide_id": "a", "mpp": 0.25}),
        ("wsi\na\n", {"path": "a.svs", "slide_id": "a"}),
        ("PATIENT,FILENAME\nP-1,b\n", {"path": "b.tiff", "slide_id": "b", "patient_id": "P-1"}),
        (
            "case_id,slide_id,label\nP-1,TCGA-3L-AA1B.0123,tumour\n",
            {
                "path": "TCGA-3L-AA1B.0123.svs",
                "slide_id": "TCGA-3L-AA1B.0123",
                "patient_id": "P-1",
                "label": "tumour",
            },
        ),
    ],
)
def test_their_columns_mean_ours(folder, text, first):
    assert read(folder, text) == [first]


def test_a_name_of_several_files_or_none_stays_for_the_check_to_say_so(folder):
    (folder / "a.ndpi").write_bytes(b"")
    assert [entry["path"] for entry in read(folder, "wsi\na\nnobody\n")] == ["a", "nobody"]


def test_a_list_of_nobody_known_is_refused(folder):
    with pytest.raises(BadManifestError, match="no column `path`; found slide, thing"):
        read(folder, "slide,thing\na,b\n")


def test_a_manifest_of_ours_keeps_its_strictness(folder):
    with pytest.raises(BadManifestError, match="unknown column `wsi`"):
        read(folder, "path,wsi\na.svs,b\n")


@pytest.mark.parametrize("text", ["wsi\n\0\n", "wsi,mpp\na,-1\n", "wsi\na\na\n", "wsi\na,b,c\n"])
def test_what_is_wrong_in_them_is_one_clear_error(folder, text):
    with pytest.raises(BadManifestError):
        read(folder, text)


LISTS = [
    ("sample_id,image_path", "S-1,a.svs", "S-2,b.tiff"),
    ("wsi", "a", "b"),
    ("PATIENT,FILENAME", "P-1,a", "P-2,b"),
    ("case_id,slide_id,label", "P-1,a,x", "P-2,b,y"),
]


@pytest.mark.parametrize(("header", "first", "second"), LISTS)
@pytest.mark.parametrize("spelt", [str.lower, str.upper, str.title])
def test_a_list_s_columns_with_a_manifest_s_names_keep_their_meaning(folder, header, first, second, spelt):
    names = spelt("site,split,exclude")
    entries = read(folder, f"{header},{names}\n{first},North,train,\n{second},South,test,pen everywhere\n")

    assert [(entry["site"], entry["split"], entry.get("exclude")) for entry in entries] == [
        ("North", "train", None),
        ("South", "test", "pen everywhere"),
    ]


@pytest.mark.parametrize(("header", "first", "second"), LISTS)
def test_a_list_s_split_that_is_none_of_ours_is_refused(folder, header, first, second):
    with pytest.raises(BadManifestError, match="line 3: `split` = 'holdout'"):
        read(folder, f"{header},split\n{first},train\n{second},holdout\n")


@pytest.mark.parametrize("header", ["wsi,path_,PATH", "wsi,mpp,MPP", "PATIENT,FILENAME,patient_id", "wsi,split,Split"])
def test_two_columns_of_one_meaning_are_refused(folder, header):
    with pytest.raises(BadManifestError, match=r"list both mean `\w+`\. Keep one"):
        read(folder, f"{header}\n{header}\n")


def test_ignored_columns_and_excluded_slides_are_said(folder, gemslide):
    (folder / "list.csv").write_text("wsi,exclude,mask,x.y\na,,m,1\nb,blurred,m,2\n")
    assert load_cohort(folder / "list.csv").ignored_columns == ("mask", "x.y")

    for verb in (("cohort", "check"), ("ingest",), ("tile",)):
        done = gemslide(*verb, folder / "list.csv", "--project", folder / "project")
        assert "note: 1 of 2 slides is excluded by the column `exclude`" in done.err
        assert "mean nothing in a manifest and were ignored: 'mask', 'x.y'." in done.err


def test_a_manifest_that_is_read_whole_has_no_notes(folder):
    (folder / "list.csv").write_text("path,exclude\na.svs,\n")
    assert load_cohort(folder / "list.csv").notes == []
