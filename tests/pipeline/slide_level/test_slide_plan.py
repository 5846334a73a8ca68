"""`gemslide plan` of a slide-level recipe: sub-graphs beside data parallelism, and the memory of the largest bag."""

from __future__ import annotations

import json

import pytest

from tests.pipeline.slide_level.planted_cohort import DIMS, plant, write_recipe


@pytest.fixture(scope="module")
def planted(small_project, tmp_path_factory):
    store = small_project.project.store_path(small_project.test_slide)
    return plant(store, tmp_path_factory.mktemp("planted"))


def plan(gemslide, planted, *options, **recipe):
    path = write_recipe(planted.project.root, **{"model": "transformer", **recipe})
    return gemslide("plan", path, "--project", planted.project.root, *options)


def test_sub_graphs_stand_beside_data_parallelism_on_as_many_ranks(gemslide, planted):
    *rows, report = map(json.loads, plan(gemslide, planted, "--json").out.splitlines())

    assert report["network"] == f"transformer of {DIMS} features, hidden 32, 2 layers, 2 heads"
    assert report["bag"] == {"unit": "patient", "max_tiles": 40}
    kept = [row for row in rows if row["recompute"] == "none"]
    table = {(row["strategy"], tuple(row["parts"]), row["num_ranks"]): row for row in kept}
    alone, sub_graphs, ddp = table["single", (), 1], table["single", (2,), 2], table["ddp", (), 2]
    assert alone["time"] == 1
    assert ddp["time"] == pytest.approx(0.5)  # four bags on two ranks, in operations
    assert 0.5 < sub_graphs["time"] < 1  # what lies outside branches is computed by both
    assert sub_graphs["weight_bytes"] < ddp["weight_bytes"] == alone["weight_bytes"]


def test_a_recipe_of_sub_graphs_is_its_own_row(gemslide, planted):
    done = plan(gemslide, planted, strategy="subgraph", stages="1\nnum_subgraphs = 2")

    assert done.code == 0, done.err
    assert "parts          P = 2 of the stages, by branches" in done.out
    assert "each one patient, here of 40 tiles, the most the recipe allows" in done.out
    (own,) = [line for line in done.out.splitlines() if "<- this recipe" in line]
    assert own.split()[:3] == ["single,", "in", "parts"]


def test_a_cluster_gives_its_seconds(gemslide, planted):
    *rows, report = map(json.loads, plan(gemslide, planted, "--json", "--cluster", "abci_v100").out.splitlines())

    assert report["machine"] == "ABCI: nodes of 4 V100, EDR InfiniBand (not measured)"
    assert all(row["seconds"] > 0 for row in rows)
    assert report["step_s"] > 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tile-px", "32"), "--tile-px is for recipes of tiles"),
        (("--world", "2"), "--world is for recipes of tiles"),
        (("--memory", "1GB"), "--memory is for recipes of tiles"),
        (("--calibrate",), "no tiles to measure"),
    ],
)
def test_what_is_for_tiles_only_is_refused(gemslide, planted, options, says):
    done = plan(gemslide, planted, *options)

    assert done.code == 1
    assert says in done.err
