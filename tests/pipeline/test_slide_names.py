"""Names of slides, models and tile sets: the same for all verbs, and a misspelt name is reported at once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pipeline.errors import BadManifestError, NoSlidesError
from pipeline.naming.models import did_you_mean, find_package
from pipeline.naming.slides import find_slide, find_slide_id, find_slide_ids, find_store, find_stores
from pipeline.project import Project
from training.foundation.errors import UnreadableError

STARTED_WITH = """
import json, sys
from pipeline.cli import cli
for arguments in json.loads(sys.argv[1]):
    try:
        cli(arguments)
    except SystemExit as ended:
        print(json.dumps([ended.code, "torch" in sys.modules]))
"""


@pytest.fixture
def project(tmp_path):
    """Project with plain folders in place of stores, which are never opened here."""
    for slide_id in ("small-test", "small-val"):
        (tmp_path / "p/slides" / f"{slide_id}.ome.zarr").mkdir(parents=True)
    return Project(tmp_path / "p")


def test_a_slide_goes_by_its_id_its_store_s_name_or_its_store_s_path(project):
    store = project.store_path("small-val")

    for name in ("small-val", "small-val.ome.zarr", str(store), f"{store}/"):
        assert find_store(name, project) == find_slide(name, project).resolve() == store
        assert find_slide_id(name, project) == "small-val"
    assert find_slide_ids(["small-val", str(store)], project) == ["small-val"]
    assert find_slide_ids([], project) == ["small-test", "small-val"]
    assert find_stores([], project) == [project.store_path(slide_id) for slide_id in ("small-test", "small-val")]


def test_a_plain_name_is_the_project_s_slide_and_a_path_is_a_path(project, tmp_path, monkeypatch):
    (tmp_path / "small-val").mkdir()
    monkeypatch.chdir(tmp_path)

    assert find_slide("small-val", project) == project.store_path("small-val")
    assert find_slide("./small-val", project).resolve() == tmp_path / "small-val"


@pytest.mark.parametrize("find", [find_slide, find_store, find_slide_id])
def test_a_misspelt_slide_is_said_with_what_was_meant(project, find):
    with pytest.raises(UnreadableError, match=r"smal-test: no such slide .* Did you mean small-test"):
        find("smal-test", project)


def test_a_slide_file_is_told_from_a_store(project, tmp_path):
    (tmp_path / "a.svs").touch()

    assert find_slide(str(tmp_path / "a.svs"), project) == tmp_path / "a.svs"
    with pytest.raises(UnreadableError, match=r"a\.svs: is a file, not a store\. Ingest it first"):
        find_store(str(tmp_path / "a.svs"), project)


def test_a_manifest_stands_for_its_slides_and_for_nothing_beside_it(project, tmp_path):
    manifest = tmp_path / "c.csv"
    manifest.write_text("path,slide_id,exclude\na.svs,A,\nb.svs,B,torn\n")
    (tmp_path / "none.csv").write_text("path,slide_id,exclude\nb.svs,B,torn\n")

    assert find_slide_ids([str(manifest)], project) == ["A"]
    with pytest.raises(BadManifestError, match="give slides or one manifest, not both"):
        find_slide_ids([str(manifest), "small-val"], project)
    with pytest.raises(BadManifestError, match="excludes all that it lists, 1 slide "):
        find_slide_ids([str(tmp_path / "none.csv")], project)


@pytest.mark.parametrize(
    "arguments", [["verify"], ["qc"], ["tile"], ["infer", "{package}"], ["export", "S-1", "out.tiff"]]
)
def test_a_project_without_slides_has_one_code_in_all_verbs(gemslide, small_project, tmp_path, arguments):
    package = small_project.project.model_path(small_project.model_id)
    done = gemslide(*(part.format(package=package) for part in arguments), "--project", tmp_path, "--json")

    assert (done.code, json.loads(done.out)["code"]) == (1, "no_slides")


def test_misspelt_names_are_said_before_torch_is_imported(small_project, tmp_path):
    (tmp_path / "none").mkdir()
    at = ["--project", str(small_project.project.root)]
    typed = {
        "Did you mean small-test": ["infer", small_project.model_id, "smal-test", *at],
        "no such model": ["infer", "nobody", *at],
        f"Did you mean {small_project.model_id}?": ["evaluate", f"{small_project.model_id}x", *at],
        "Did you mean small?": ["evaluate", small_project.model_id, "--tile-set", "smal", *at],
        "no such slide": ["qc", "small-tset", *at],
        "no slides": ["qc", "--project", str(tmp_path / "none")],
    }

    done = subprocess.run(
        [sys.executable, "-c", STARTED_WITH, json.dumps(list(typed.values()))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert [json.loads(line) for line in done.stdout.splitlines()] == [[1, False]] * len(typed)
    for words, line in zip(typed, done.stderr.splitlines(), strict=True):
        assert words in line


def test_of_many_names_the_nearest_are_shown_and_else_the_first():
    known = [f"slide-{number:02}" for number in range(20)]

    assert did_you_mean("slide_07", known).startswith("Did you mean slide-07")
    assert did_you_mean("x", known) == (
        "There are: slide-00, slide-01, slide-02, slide-03, slide-04, slide-05, slide-06, slide-07 and 12 more."
    )


def test_a_project_without_models_says_how_to_make_one(project):
    with pytest.raises(UnreadableError, match=r"no such model .* `gemslide train`"):
        find_package("small", project)


def test_a_project_without_slides_says_so_of_a_name_too(tmp_path):
    with pytest.raises(NoSlidesError, match="S-1: no such slide"):
        find_slide_id("S-1", Project(tmp_path))
