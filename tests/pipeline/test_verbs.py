"""The command line as users see it: verbs, help, exit codes, one message."""

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from pathology_app.commands import app, view
from pipeline.cli import cli
from pipeline.settings.config import Settings, load_settings
from tests.small_trained_project import make_slide, make_sources
from training.foundation.errors import BadRecipeError

MAX_OWN_OPTIONS = 5
MORE_OPTIONS = {
    "ingest": 6,
    "plan show": 6,
    "features import": 6,
    "folds": 6,
    "evaluate": 6,
    "study init": 6,
    "export": 6,
}
"""A plan's options are mostly given alone; those of the others say what a file does not, and how to divide patients."""
COMMON = {"project", "as_json", "help"}


def commands():
    def walk(command, path):
        if hasattr(command, "commands"):
            for name, child in command.commands.items():
                yield from walk(child, f"{path} {name}".strip())
        else:
            yield path, command

    return dict(walk(get_command(cli), ""))


def options_of(command):
    return [p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name not in COMMON]


def test_the_verbs_are_those_of_the_contract_and_have_at_most_five_options_of_their_own():
    visible = {name: command for name, command in commands().items() if not command.hidden}

    assert set(visible) == {
        "doctor", "info", "cohort init", "cohort check", "cohort pseudonymize",
        "annotations check", "annotations convert", "annotations import", "annotations export",
        "annotations table", "register", "ingest", "verify", "tissue", "qc",
        "tile", "plan show", "plan audit", "plan layers", "train", "embed", "infer", "evaluate", "compare", "export",
        "demo",
        "model export", "model import", "model check", "model card", "check-invariance",
        "study init", "study begin", "study run", "study work", "study script", "study status", "study pause",
        "study resume", "study retry", "study prioritize", "study amend", "study erase", "study export",
        "study reproduce", "study report", "study verify", "study key", "study anchor", "study countersign",
        "study sign", "log show", "log verify", "encoder add", "encoder check", "encoder list", "features list",
        "features export", "features import", "folds",
    }  # fmt: skip
    for name, command in visible.items():
        assert len(options_of(command)) <= MORE_OPTIONS.get(name, MAX_OWN_OPTIONS), name


@pytest.mark.parametrize("verb", commands())
def test_help_says_every_default(gemslide, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "200")
    shown = " ".join(gemslide(*verb.split(), "--help").out.split())

    for parameter in commands()[verb].params:
        assert "[default" not in (parameter.help or ""), "Rich takes it for markup and shows nothing"
        if isinstance(parameter.show_default, str):
            assert f"[default: ({parameter.show_default})]" in shown
        elif parameter.show_default and not parameter.hidden and isinstance(parameter.default, str | int | Path):
            default = parameter.default
            assert isinstance(default, bool) or f"[default: {default}]" in shown, parameter.name


def test_the_app_s_help_says_every_default():
    for command in (app, view):
        assert not [text for text in re.findall(r"help=.*", inspect.getsource(command)) if "[default" in text]


def test_one_slide_can_be_given_an_id_and_several_cannot(gemslide, tmp_path):
    make_slide(tmp_path / "Jane Roe.tiff", 1)

    done = gemslide("ingest", tmp_path / "Jane Roe.tiff", "--slide-id", "S-1", "--project", tmp_path / "p", "--json")
    two = gemslide("ingest", "a.svs", "b.svs", "--slide-id", "S-1", "--project", tmp_path / "p", "--json")

    assert (done.code, json.loads(done.out)["slide_id"]) == (0, "S-1")
    assert "named after" not in done.err
    assert (two.code, json.loads(two.out)["code"]) == (1, "bad_recipe")
    assert "--slide-id S-1 names one slide" in two.err


def test_the_app_s_verbs_are_found_by_entry_point(gemslide_process):
    done = gemslide_process("--help")

    assert done.code == 0
    assert " app " in done.out
    assert " view " in done.out
    assert "Research use only" in done.out


def test_doctor_finds_nothing_required_missing(gemslide_process):
    done = gemslide_process("doctor", "--json")
    findings = {line["name"]: line for line in map(json.loads, done.out.splitlines())}

    assert done.code == 0
    assert findings["zarr codec imagecodecs_jpeg"]["value"] == "pipeline.store.zarr_codecs"
    assert all(f["is_good"] for f in findings.values() if f["is_required"])


def test_the_workflow_by_hand(gemslide_process, tmp_path):
    manifest = make_sources(tmp_path / "in")
    project = tmp_path / "p"

    checked = gemslide_process("cohort", "check", manifest, "--project", project)
    ingested = gemslide_process("ingest", manifest, "--project", project, "--json")
    again = gemslide_process("ingest", manifest, "--project", project, "--json")
    tiled = gemslide_process("tile", manifest, "--project", project, "--tile-px", 32, "--tile-mpp", 1.0, "--json")
    info = gemslide_process("info", project / "slides/small-val.ome.zarr", "--json")

    assert (checked.code, ingested.code, again.code, tiled.code, info.code) == (0,) * 5, ingested.err + tiled.err
    assert [json.loads(line)["status"] for line in ingested.out.splitlines()] == ["done"] * 3
    assert [json.loads(line)["status"] for line in again.out.splitlines()] == ["skipped"] * 3
    assert (project / "tiles/tiles.parquet").exists()
    assert json.loads(info.out)["slide_id"] == "small-val"
    assert len(list((project / "runs").glob("*.json"))) == 3


def test_failed_slides_end_in_a_table_and_do_not_stop_the_others(gemslide, tmp_path):
    make_slide(tmp_path / "good.tiff", 1)
    (tmp_path / "pointer.ndpi").write_text("version https://git-lfs\noid sha256:00\n")
    (tmp_path / "cut.tiff").write_bytes((tmp_path / "good.tiff").read_bytes()[:9000])
    sources = [tmp_path / name for name in ("pointer.ndpi", "cut.tiff", "good.tiff", "missing.svs")]

    done = gemslide("ingest", *sources, "--project", tmp_path / "p", "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}

    assert done.code == 1
    assert {name: line["status"] for name, line in lines.items()} == {
        "pointer": "unreadable", "cut": "unreadable", "good": "done", "missing": "unreadable",
    }  # fmt: skip
    assert "git lfs pull" in lines["pointer"]["message"]
    assert lines["cut"]["code"] in ("corrupt_tile", "unreadable")
    assert "3 of 4 not done" in done.err
    assert [p.name for p in (tmp_path / "p/slides").iterdir()] == ["good.ome.zarr"]


def test_missing_mpp_names_the_remedy_and_an_absurd_one_is_refused(gemslide, tmp_path):
    import tifffile

    make_slide(tmp_path / "a.tiff", 1)
    with tifffile.TiffFile(tmp_path / "a.tiff", mode="r+") as tiff:
        for page in tiff.pages:
            page.tags["ResolutionUnit"].overwrite(1)

    missing = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "p", "--json")
    absurd = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "p", "--mpp", 352.8, "--json")
    given = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "p", "--mpp", 0.5, "--json")

    assert json.loads(missing.out)["code"] == json.loads(absurd.out)["code"] == "missing_mpp"
    assert "--mpp" in json.loads(missing.out)["message"]
    assert (missing.code, absurd.code, given.code) == (1, 1, 0)


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (("patient-1", "patient-0"), "leakage", "patient patient-0 is in 2 splits"),
        (("file-val.geojson", "none.geojson"), "bad_annotation", "no such file"),
        (("annotations", "anotations"), "bad_manifest", "did you mean `annotations`"),
    ],
)
def test_a_bad_cohort_is_one_message_and_leaves_no_table(gemslide, small_project, tmp_path, change, code, says):
    manifest = make_sources(tmp_path / "in")
    manifest.write_text(manifest.read_text().replace(*change))
    (tmp_path / "p").mkdir()
    (tmp_path / "p/slides").symlink_to(small_project.project.slides_dir)

    done = gemslide("tile", manifest, "--project", tmp_path / "p", "--tile-px", 32, "--tile-mpp", 1, "--json")

    assert done.code == 1
    assert json.loads(done.out)["code"] == code
    assert says in json.loads(done.out)["message"]
    assert not list((tmp_path / "p").glob("tiles/*"))


def test_a_class_the_settings_do_not_know_is_refused(gemslide, small_project, tmp_path):
    (tmp_path / "slides").symlink_to(small_project.project.slides_dir)
    (tmp_path / "gemslide.toml").write_text('[tile]\ntile_px = 32\nmpp = 1.0\nclasses = ["cold"]\n')

    done = gemslide("tile", small_project.cohort, "--project", tmp_path, "--json")

    assert json.loads(done.out)["code"] == "bad_annotation"
    assert "'warm' is not among the classes cold" in json.loads(done.out)["message"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tile]\ntilepx = 3\n", r"unknown key \[tile\] tilepx: did you mean `tile_px`"),
        ("[ingest.tissue]\nmin_deltae = 3\n", r"unknown key \[ingest.tissue\] min_deltae: did you mean `min_delta_e`"),
        ("[tiles]\n", r"unknown key \[tiles\]: did you mean `tile`"),
        ("[infer]\nthreshold = 2\n", r"\[infer\] threshold = 2: Input should be less"),
        ("[infer\n", "not valid TOML"),
    ],
)
def test_misspelt_settings_are_refused_with_the_right_word(tmp_path, text, says):
    (tmp_path / "gemslide.toml").write_text(text)

    with pytest.raises(BadRecipeError, match=says):
        load_settings(tmp_path / "gemslide.toml")


def test_an_empty_settings_file_means_the_defaults(tmp_path):
    (tmp_path / "gemslide.toml").write_text("")

    assert load_settings(tmp_path / "gemslide.toml") == Settings()
    assert tomllib.loads("") == {}


def test_a_project_that_cannot_be_written_is_one_message(gemslide, tmp_path):
    make_slide(tmp_path / "a.tiff", 1)

    done = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "a.tiff" / "p", "--json")

    assert done.code == 1
    assert "Not a directory" in done.err


def test_a_message_with_brackets_is_shown_whole(gemslide, tmp_path):
    make_slide(tmp_path / "a.tiff", 1)
    (tmp_path / "[run 3] slide.svs").write_text("no slide")

    done = gemslide("ingest", tmp_path / "[run 3] slide.svs", "--project", tmp_path / "p")

    assert done.code == 1
    assert "[run 3] slide" in done.err


@pytest.mark.parametrize("library", ["imagecodecs", "openslide", "zarr", "cv2", "pydicom", "wsidicom"])
def test_doctor_works_where_a_library_is_missing(library):
    code = (
        f"import sys; sys.modules[{library!r}] = None; sys.argv = ['gemslide', 'doctor'];"
        "from pipeline.cli import cli; cli()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "MISSING" in done.stdout
    assert "make setup" in done.stdout


def test_a_shard_that_went_away_is_noticed_when_the_slide_is_ingested_again(gemslide, tmp_path):
    make_slide(tmp_path / "a.tiff", 1)
    first = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "p")
    (tmp_path / "p/slides/a.ome.zarr/0/0/c/0/0/0").unlink()

    again = gemslide("ingest", tmp_path / "a.tiff", "--project", tmp_path / "p", "--json")

    assert (first.code, again.code) == (0, 1)
    assert json.loads(again.out)["code"] == "unreadable"


def test_a_self_crossing_annotation_is_repaired_and_said_by_cohort_check(gemslide, tmp_path):
    manifest = make_sources(tmp_path / "in")
    path = tmp_path / "in/file-val.geojson"
    content = json.loads(path.read_text())
    ring = content["features"][0]["geometry"]["coordinates"][0]
    ring[1], ring[2] = ring[2], ring[1]
    path.write_text(json.dumps(content))

    done = gemslide("cohort", "check", manifest, "--json")

    messages = [line["message"] for line in map(json.loads, done.out.splitlines())]
    assert done.code == 0
    assert ["1 outline that crossed itself repaired" in message for message in messages] == [False, True, False]
