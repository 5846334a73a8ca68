"""`strategy = "auto"`: the oracle chooses, the run trains as it chose, and goes on anywhere as if it had not."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.distributed.launch import run_ranks
from tests.distributed.starts import Death, train_forked, train_until_death
from tests.small_trained_project import RECIPE, TILES, Way, share_tiles
from training.engine.ranks import Ranks, alone
from training.engine.recompute import Recompute
from training.foundation.errors import GemslideError, NotCalibratedError, OutOfMemoryError
from training.machine import devices
from training.oracle.calibration import measure_blocks
from training.oracle.search.candidates import Candidate
from training.parallel.division import Division
from training.recipe.choice import on_one_rank, plans_on, with_candidate
from training.recipe.config import load_recipe
from training.recipe.dividing import with_parts_to_choose
from training.recipe.parallel import ParallelConfig
from training.recipe.planned import planned_of, with_seconds
from training.run.preflight import check_run
from training.tools.audit import audit, sampled
from training.tools.calibrate import measure
from training.tools.on_ranks import Measuring
from training.tools.show_plan import show_plan

PARALLEL = 'strategy = "auto"\nnum_microbatches = 4\nmicrobatch_size = 4\ntimeout_s = 120.0'

pytestmark = [pytest.mark.xdist_group("auto"), pytest.mark.usefixtures("one_thread")]


def write_auto(path):
    before, _, after = RECIPE.partition("[parallel]")
    after = after[after.index("[optim]") :].format(steps=4)
    path.write_text(f"{before}[parallel]\n{PARALLEL}\n{after}[checkpoint]\nevery_steps = 2\n")
    return path


def _measure(ranks: Ranks, recipe, project) -> None:
    measure_blocks.LEAST_SHARE, measure_blocks.BUDGET_S = 0.0, 1.0  # tests run beside each other
    ranks = ranks if ranks.num_ranks > 1 else alone()
    measure(Measuring(load_recipe(recipe), TILES.tile_px, ranks, devices.device_here()[0], project))


@pytest.fixture(scope="module")
def measured(small_project, tmp_path_factory):
    """A project whose machine has been measured for one rank and for two."""
    folder = tmp_path_factory.mktemp("auto")
    share_tiles(small_project.project, folder)
    recipe = write_auto(folder / "r.toml")
    for num_ranks in (1, 2):
        run_ranks(num_ranks, _measure, recipe, folder)
    return folder


@pytest.fixture
def project(measured, tmp_path):
    for name in ("slides", "tiles", "machines", "r.toml"):
        (tmp_path / name).symlink_to(measured / name)
    return tmp_path


def _record(folder):
    (path,) = (folder / "runs").glob("*.json")
    return json.loads(path.read_text())


def test_a_run_that_died_on_two_ranks_goes_on_on_one_bit_for_bit(small_project, project, tmp_path_factory):
    alone_dir = tmp_path_factory.mktemp("alone")
    share_tiles(small_project.project, alone_dir)
    by_one = train_forked(Way(num_microbatches=4).write(alone_dir / "r.toml", steps=4), alone_dir, 1)

    train_until_death(project / "r.toml", project, 2, Death(3))
    resumed = train_forked(project / "r.toml", project, 1)

    assert resumed == by_one  # model ids contain the SHA-256 of the weights
    ours, theirs = (load_file(f / "models" / by_one.last / "model.safetensors") for f in (project, alone_dir))
    assert all(theirs[name].equal(value) for name, value in ours.items())
    assert _record(project)["resumed"]["step"] == 2


def test_the_choice_is_that_of_the_plan_and_stands_in_the_record(project):
    trained = train_forked(project / "r.toml", project, 2)
    plan = show_plan(project / "r.toml", project, tile_px=None, svg=False, num_ranks=2)
    record = _record(project)
    chosen = ParallelConfig.model_validate(record["settings"]["parallel"])

    assert (project / "models" / trained.best).is_dir()
    fastest = plan["search"]["rows"][0]
    assert record["plan"]["named"] == plan["named"] == "auto"
    assert chosen.strategy == fastest["strategy"]
    assert chosen.world_size == 2
    assert chosen.batch_size == 16
    assert list(chosen.cuts or ()) == fastest["cuts"] == plan["cuts"]
    assert record["choice"]["predicted_step_s"] == pytest.approx(plan["step_s"])  # one group played, and all
    assert fastest["seconds"] == pytest.approx(plan["step_s"])
    assert record["choice"]["predicted_bytes"] == fastest["bytes"]
    assert record["choice"]["machine"].startswith("2 ranks of 1 thread on ")


def test_what_the_plan_offers_can_be_written_into_a_recipe(project):
    rows = show_plan(project / "r.toml", project, tile_px=None, svg=False, num_ranks=2)["search"]["rows"]

    for row in rows[:3]:
        parallel = ParallelConfig.model_validate(row["parallel"])
        assert (parallel.num_stages, parallel.data_parallel) == (row["num_stages"], row["data_parallel"])


def test_a_machine_that_was_not_measured_for_so_many_ranks_is_refused(project):
    with pytest.raises(NotCalibratedError, match="--world 3"):
        check_run(project / "r.toml", project, 3)


def test_a_plan_that_fits_is_chosen_and_none_is_an_error(project, monkeypatch):
    free = show_plan(project / "r.toml", project, tile_px=None, svg=False, num_ranks=1)["search"]["rows"]
    least = min(row["bytes"] for row in free[:10])
    tight = show_plan(project / "r.toml", project, tile_px=None, svg=False, num_ranks=1, cap_bytes=least)

    # On a busy machine the fastest plan may be the smallest of the ten as well.
    assert tight["choice"]["predicted_bytes"] <= least <= free[0]["bytes"]
    monkeypatch.setattr("training.run.preflight.room_bytes", lambda *_: 900_000)
    with pytest.raises(OutOfMemoryError, match="no plan of this recipe fits 1 rank with"):
        check_run(project / "r.toml", project, 1)


def test_a_recipe_without_room_is_refused_before_anything_starts(small_project, tmp_path):
    share_tiles(small_project.project, tmp_path)
    recipe = Way().write(tmp_path / "r.toml", steps=4)
    recipe.write_text(recipe.read_text().replace("microbatch_size = 4", "microbatch_size = 4096"))

    with pytest.raises(GemslideError, match="GB of activations and weights on its fullest rank"):
        show_plan(recipe, tmp_path, tile_px=1024, svg=False)


def _audited(ranks: Ranks, recipe, project, cap_bytes=None, sample=7):
    ranks = ranks if ranks.num_ranks > 1 else alone()
    of = Measuring(load_recipe(recipe), TILES.tile_px, ranks, devices.device_here()[0], project)
    trace = project / "trace.json"
    return audit(of, sample=sample, cap_bytes=cap_bytes, trace=trace, least_share=0.0)  # tests run beside each other


def test_an_audit_runs_what_was_predicted_and_counts_the_same_bytes(project):
    first, second = run_ranks(2, _audited, project / "r.toml", project)
    runs, summary = first["runs"], first["summary"]
    trace = json.loads((project / "trace.json").read_text())["traceEvents"]

    assert first == second
    assert {run["strategy"] for run in runs} == {"ddp", "chimera", "1f1b", "gpipe", "master", "mp-basic"}
    assert len(runs) == 7
    for run in runs:
        assert run["predicted_bytes"] == run["measured_bytes"] > 0
        assert run["accuracy"] == pytest.approx(1 - abs(run["predicted_s"] - run["measured_s"]) / run["measured_s"])
    assert summary["worst_accuracy"] == min(run["accuracy"] for run in runs)
    assert summary["picked_by_best"] >= 1
    least_s = min(run["predicted_s"] for run in runs)
    equal = {run["strategy"].replace("ddp", "single") for run in runs if run["predicted_s"] <= 1.01 * least_s}
    assert summary["best_picked"].split(",")[0] in equal
    names = {event["pid"]: event["args"]["name"] for event in trace if event["name"] == "process_name"}
    done = {name: [e for e in trace if e["pid"] == pid and e.get("cat") in ("F", "B")] for pid, name in names.items()}
    for name, events in done.items():
        assert {event["tid"] for event in events} == {0, 1}
        beside = done[name.replace("measured", "simulated")]
        assert sorted(e["name"] for e in events) == sorted(e["name"] for e in beside)


def test_an_audit_within_a_limit_runs_what_fits_only(project):
    rows = show_plan(project / "r.toml", project, tile_px=None, svg=False, num_ranks=2)["search"]["rows"]
    cap_bytes = min(row["bytes"] for row in rows[:10])

    within, _ = run_ranks(2, _audited, project / "r.toml", project, cap_bytes, 2)

    assert within["runs"]
    assert all(run["measured_bytes"] <= cap_bytes for run in within["runs"])
    assert cap_bytes < max(row["bytes"] for row in rows)  # not all do; the fastest may
    with pytest.raises(OutOfMemoryError, match="no plan of this recipe fits 1 rank with"):
        _audited(alone(), project / "r.toml", project, cap_bytes=1_000)


def test_an_audit_takes_the_fastest_of_each_strategy_and_then_others_from_all_over():
    def plan(strategy, step_s):
        return Candidate(strategy, 2, 1, 4, Recompute(), (1,), step_s, 1, 0.0)

    table = [plan("a", 1), plan("a", 2), plan("b", 3), *(plan("a", step_s) for step_s in range(4, 10)), plan("c", 10)]

    assert [(each.strategy, each.step_s) for each in sampled(table, 3)] == [("a", 1), ("b", 3), ("c", 10)]
    assert [each.step_s for each in sampled(table, 5)] == [1, 2, 3, 6, 10]
    assert sampled(table, 20) == table
    assert [each.step_s for each in sampled(table, 1)] == [1]


@pytest.fixture(scope="module")
def one_tile(small_project, tmp_path_factory):
    """A project whose machine has been measured for a step of one micro-batch on two ranks."""
    folder = tmp_path_factory.mktemp("one_tile")
    share_tiles(small_project.project, folder)
    recipe = write_auto(folder / "r.toml")
    recipe.write_text(recipe.read_text().replace("num_microbatches = 4", "num_microbatches = 1"))
    run_ranks(2, _measure, recipe, folder)
    return folder


def test_a_step_of_one_micro_batch_may_be_divided_into_parts(one_tile):
    rows = show_plan(one_tile / "r.toml", one_tile, tile_px=None, svg=False, num_ranks=2)["search"]["rows"]
    in_parts = [row for row in rows if row["parts"]]

    assert {tuple(row["parts"]) for row in in_parts} == {(2,)}
    assert all(row["seconds"] > 0 and row["recompute"] != "norm" for row in in_parts)


def test_a_plan_in_parts_can_be_written_into_a_recipe(one_tile):
    planned = planned_of(on_one_rank(load_recipe(one_tile / "r.toml")), TILES.tile_px, torch.device("cpu"))
    planned = with_seconds(with_parts_to_choose(planned, 2, float("inf")), one_tile, num_ranks=2, backend="gloo")
    found = next(each for each in plans_on(planned, 2, float("inf")).candidates if each.divisions)
    chosen = with_candidate(planned, found)

    written = chosen.recipe.parallel.model_dump(mode="json", exclude_defaults=True)
    parallel = ParallelConfig.model_validate(written)
    assert (parallel.world_size, parallel.parts_of_stages, parallel.split_of_stages) == (2, (2,), ("rows",))
    assert chosen.plan.divisions == (Division(2, "rows"),)


def test_an_audit_compares_parts_with_the_clock_and_counts_the_same_bytes(one_tile):
    audited, _ = run_ranks(2, _audited, one_tile / "r.toml", one_tile, None, 8)
    (run,) = [run for run in audited["runs"] if run["parts"] == [2]][:1]

    assert run["predicted_bytes"] == run["measured_bytes"] > 0
    assert run["predicted_s"] > 0 < run["measured_s"]


def test_a_recipe_in_parts_has_seconds_once_its_machine_is_measured(one_tile):
    recipe = one_tile / "parts.toml"
    given = 'strategy = "single"\nparts = 2\nnum_microbatches = 1\nmicrobatch_size = 4\ntimeout_s = 120.0'
    recipe.write_text(write_auto(one_tile / "other.toml").read_text().replace(PARALLEL, given))
    plan = show_plan(recipe, one_tile, tile_px=None, svg=False)
    rows = {(row["strategy"], tuple(row["parts"]), row["num_ranks"]): row for row in plan["comparison"]}

    assert rows.keys() == {("single", (), 1), ("single", (2,), 2), ("ddp", (), 2)}
    assert plan["step_s"] == pytest.approx(rows["single", (2,), 2]["seconds"])
    assert rows["single", (2,), 2]["kept_bytes"] < rows["single", (), 1]["kept_bytes"]


def test_parts_that_were_not_measured_are_named_with_the_way_to_do_so(project):
    recipe = on_one_rank(load_recipe(project / "r.toml"))
    planned = planned_of(recipe, TILES.tile_px, torch.device("cpu"))
    large = with_parts_to_choose(planned, 2, cap_bytes=1.0)
    measured = with_seconds(large, project, num_ranks=2, backend="gloo")

    assert measured.not_measured == (Division(2, "rows"),)
    (missing,) = (each for each in plans_on(measured, 2, float("inf")).excluded if each.divisions)
    assert (missing.divisions, missing.reason) == ((Division(2, "rows"),), "not measured; add `--calibrate`")
    assert with_parts_to_choose(planned, 2, cap_bytes=float("inf")) is planned  # four micro-batches on two ranks
