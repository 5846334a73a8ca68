"""`gemslide plan` as users run it."""

import json
from xml.etree import ElementTree

import pytest

from tests.small_trained_project import write_recipe


@pytest.fixture
def recipe(tmp_path):
    return write_recipe(tmp_path / "mine.toml", strategy="mast", num_stages=2)


def test_a_plan_is_words_of_a_terminal_s_width(gemslide, recipe):
    done = gemslide("plan", recipe, "--tile-px", 32)

    assert done.code == 0, done.err
    assert "master (mast in the recipe)" in done.out
    assert "--nproc 2" in done.out
    assert "live GB, peak" in done.out
    assert "<- this recipe" in done.out
    assert "Live bytes are the activations" in done.out
    assert "When a tile fits on one device with recompute, ddp is faster" in " ".join(done.out.split())
    assert "B0      F1'" in done.out
    assert max(map(len, done.out.splitlines())) <= 100


def test_a_plan_is_one_json_line_for_programs(gemslide, recipe, tmp_path):
    done = gemslide("plan", recipe, "--tile-px", 32, "--json", "--draw", tmp_path / "out.svg")
    (line,) = done.out.splitlines()
    report = json.loads(line)

    assert (report["strategy"], report["named"], report["batch_size"]) == ("master", "mast", 8)
    assert report["drawn_in"] == str(tmp_path / "out.svg")
    tree = ElementTree.fromstring((tmp_path / "out.svg").read_text(encoding="utf-8"))
    assert tree.findtext("{http://www.w3.org/2000/svg}title") == "master: S = 2 stages, N = 2 micro-batches"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml", "out.svg"]


def test_the_tile_side_comes_from_the_tile_set_and_the_memory_is_what_the_run_then_had(gemslide, small_project):
    done = gemslide(
        "plan", small_project.project.root.parent / "small.toml", "--project", small_project.project.root, "--json"
    )
    records = [json.loads(path.read_text()) for path in (small_project.project.root / "runs").glob("*.json")]
    (record,) = (record for record in records if record["verb"] == "train")

    report = json.loads(done.out)
    assert report["tile_px"] == 32
    assert [rank["peak_live_bytes"] for rank in report["ranks"]] == record["memory"]["live"]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], "empty_table", "--tile-px 1024"),
        (["--tile-px", 32, "--draw", "none/out.svg"], "unreadable", "there is no folder"),
        (["--tile-px", 32, "--draw", "."], "unreadable", "this is a folder"),
        (["--tile-px", 32, "--draw", "/proc/out.svg"], "unreadable", "/proc"),
        (["--tile-px", 32, "--memory", "16"], "bad_recipe", "--memory '16': not a size"),
        (["--tile-px", 32, "--memory", "0GB"], "bad_recipe", "such as 16GiB or 8GB"),
        (["--tile-px", 32, "--memory", "1GiB"], "not_calibrated", "--calibrate"),
        (["--tile-px", 32, "--world", "4"], "not_calibrated", "--calibrate"),
    ],
)
def test_what_cannot_be_done_is_one_message(gemslide, recipe, tmp_path, arguments, code, says):
    done = gemslide("plan", recipe, "--json", *arguments, cwd=tmp_path)

    assert done.code == 1
    assert json.loads(done.out)["code"] == code
    assert says in json.loads(done.out)["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_recipe_with_more_stages_than_blocks_is_refused_in_the_words_of_the_engine(gemslide, tmp_path):
    done = gemslide("plan", write_recipe(tmp_path / "a.toml", strategy="1f1b", num_stages=9), "--tile-px", 32)

    assert done.code == 1
    assert "error [bad_recipe]: cannot cut 5 blocks into 9 stages" in done.err


def test_an_unknown_recipe_names_the_shipped_ones(gemslide):
    done = gemslide("plan", "none.toml")

    assert done.code == 1
    assert "resnet110_1024.toml" in done.err
