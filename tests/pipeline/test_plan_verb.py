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


def json_lines(done):
    return [json.loads(line) for line in done.out.splitlines()]


def test_a_plan_is_a_json_line_for_each_row_and_one_for_itself(gemslide, recipe, tmp_path):
    done = gemslide("plan", recipe, "--tile-px", 32, "--json", "--draw", tmp_path / "out.svg")
    *rows, report = json_lines(done)

    assert [row["strategy"] for row in rows[:3]] == ["single", "mp-basic", "master"]
    assert {"recompute", "num_ranks", "time", "bubble", "kept_bytes", "weight_bytes"} <= rows[0].keys()
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

    report = json_lines(done)[-1]
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
        (["--tile-px", 32, "--cluster", "nowhere"], "bad_recipe", "among shipped ones: abci_v100, h100_nvlink"),
        (["--tile-px", 32, "--cluster", "abci_v100", "--memory", "1MB"], "out_of_memory", "with 0.001 GB each"),
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


def test_a_recipe_is_planned_for_a_cluster_that_is_not_at_hand(gemslide, recipe):
    done = gemslide("plan", recipe, "--tile-px", 32, "--cluster", "abci_v100", "--world", 2, "--json")
    *table, report = json_lines(done)
    rows = [row for row in table if "refused" not in row and row["strategy"] != "fsdp"]
    fsdp = next(row for row in table if row["strategy"] == "fsdp")

    assert report["machine"] == "ABCI: nodes of 4 V100, EDR InfiniBand (not measured)"
    assert report["search"] == {"num_ranks": 2, "cap_bytes": 16_000_000_000}
    assert {row["num_stages"] * row["data_parallel"] for row in rows} == {2}
    least_s = min(row["seconds"] for row in rows)
    slower = [row["seconds"] for row in rows if row["seconds"] > 1.01 * least_s]
    assert slower == sorted(slower)
    assert [row["seconds"] for row in rows[len(rows) - len(slower) :]] == slower
    assert report["step_s"] > 0
    ddp = next(row for row in rows if row["strategy"] == "ddp")
    assert fsdp["seconds"] > ddp["seconds"]
    assert fsdp["bytes"] < ddp["bytes"]
    assert not fsdp["has_runtime"]


def test_auto_is_chosen_for_a_cluster_and_shown_as_a_recipe_s_section(gemslide, recipe):
    recipe.write_text(
        recipe.read_text()
        .replace('strategy = "mast"\nnum_stages = 2', 'strategy = "auto"')
        .replace("data_parallel = 1\n", "")
    )
    without = gemslide("plan", recipe, "--tile-px", 32, "--cluster", "h100_nvlink")
    done = gemslide("plan", recipe, "--tile-px", 32, "--cluster", "h100_nvlink", "--world", 2)

    assert without.code == 1
    assert "add `--world N`" in without.err
    assert "(auto in the recipe)" in done.out
    assert "chosen         the fastest plan within 80 GB: " in done.out
    assert "[parallel]\nstrategy = " in done.out


def test_a_table_of_layers_is_projected_for_people_and_for_programs(gemslide, tmp_path):
    columns = "layer,x_channels,x_height,x_width,y_channels,y_height,y_width,kernel,weights,forward_s"
    (tmp_path / "layers.csv").write_text(
        f"{columns}\nstem,3,64,48,8,32,24,3,216,0.001\nhead,8,32,24,2,1,1,1,16,0.001\n"
    )
    asked = ("plan", "--layers", "layers.csv", "--cluster", "abci_v100", "--samples", 1000, "--batch", 8, "--world")

    shown = gemslide(*asked, "2,8", cwd=tmp_path).out
    rows = [json.loads(line) for line in gemslide(*asked, "2,8", "--json", cwd=tmp_path).out.splitlines()]
    wrong = gemslide(*asked, "2,many", cwd=tmp_path)

    assert "nothing was measured" in shown
    assert "without pipeline on 8: at most 2 ranks: a layer for each" in shown
    assert {"strategy", "world", "computing_s", "communication_s", "epoch_s", "bytes", "fits"} == rows[0].keys()
    assert [row["world"] for row in rows if row["strategy"] == "data"] == [2, 8]
    assert wrong.code == 1
    assert "--world '2,many': not numbers of ranks" in wrong.err


def test_an_audit_of_a_machine_that_was_not_measured_is_refused(gemslide, recipe, tmp_path):
    done = gemslide("plan", "audit", recipe, "--tile-px", 32, "--json", "--trace", "none/t.json", cwd=tmp_path)
    assert json.loads(done.out)["message"].startswith("--trace none/t.json: there is no folder")
