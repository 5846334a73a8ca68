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
