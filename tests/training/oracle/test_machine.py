"""Files of measured machines: found again by the same machine, and refused by any other."""

import json
from dataclasses import replace

import pytest
from torch import nn

from tests.training.engine.small_networks import unet
from training.engine.partition import BlockTimes, block_costs
from training.engine.strategies import build_schedule, place
from training.foundation.errors import BadRecipeError, NotCalibratedError
from training.oracle.calibration.block_inputs import Setting, fingerprints
from training.oracle.calibration.machine import (
    Machine,
    MeasuredBlock,
    MeasuredLink,
    MeasuredUpdate,
    identity_here,
    load_machine,
    machine_path,
    save_machine,
)
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.divided import divided_costs
from training.oracle.simulation.simulate import simulate
from training.parallel.division import Division
from training.recipe.config import Recipe
from training.recipe.planned import identity_of

SETTING = Setting((2, 3, 12, 20))
IDENTITY = identity_here(SETTING, threads=1, backend="gloo", num_ranks=2)
UPDATE = MeasuredUpdate(
    sum_s_per_byte=1e-3, pack_s_per_byte=2e-3, step_s_per_byte=4e-3, share_s_per_byte=8e-3, agree_s=0.5
)
LINK = MeasuredLink(alpha_s=0.25, beta_s_per_byte=0.01, both_ways_s_per_byte=0.015, meeting_s=0.5)


def measured(*names, seconds=1.0):
    block = MeasuredBlock(forward_s=seconds, backward_s=2 * seconds, norm_s=0.5, offload_s=0.25, alone=0.75)
    return Machine(
        identity=IDENTITY, measured_utc="2026-11-27", blocks=dict.fromkeys(names, block), link=LINK, update=UPDATE
    )


def convolutions():
    return [nn.Conv2d(3, 3, 3, padding=1) for _ in range(4)]


def test_equal_blocks_with_equal_inputs_have_one_name():
    """The first block has no input gradient, and the loss is behind the last."""
    first, second, third, fourth = fingerprints(convolutions(), SETTING)

    assert second == third
    assert len({first, second, fourth}) == 3


@pytest.mark.parametrize(
    "other",
    [
        Setting((2, 3, 20, 12)),
        Setting((1, 3, 12, 20)),
        replace(SETTING, precision="bf16"),
        replace(SETTING, channels_last=True),
    ],
)
def test_a_block_is_measured_anew_for_other_inputs(other):
    assert not set(fingerprints(convolutions(), SETTING)[1:]) & set(fingerprints(convolutions(), other)[1:])


def test_frozen_or_wider_blocks_have_other_names():
    plain, frozen, wide = convolutions(), convolutions(), convolutions()
    frozen[1].requires_grad_(False)
    wide[1:3] = [nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)]

    assert fingerprints(plain, SETTING)[1] != fingerprints(frozen, SETTING)[1]
    assert not set(fingerprints(plain, SETTING)[1:3]) & set(fingerprints(wide, SETTING)[1:3])


def test_a_network_with_tuples_between_its_blocks_has_names():
    first, deepen, same, again, last = fingerprints(unet(), SETTING)

    assert deepen == again  # the block between them passes on what it takes
    assert len({first, deepen, same, last}) == 4


def test_what_was_measured_is_found_again_with_the_seconds_of_each_block(tmp_path):
    names = fingerprints(convolutions(), SETTING)
    save_machine(tmp_path, measured(*names[:2]))
    save_machine(tmp_path, measured(names[3], seconds=3.0))
    machine = load_machine(tmp_path, IDENTITY)
    costs = machine.with_times(convolutions(), block_costs(convolutions(), SETTING.input_shape), SETTING)

    assert [cost.times for cost in costs] == [BlockTimes(1, 2, 0.5, 0.25, 0.75)] * 3 + [
        BlockTimes(3, 6, 0.5, 0.25, 0.75)
    ]
    assert costs[1].saved_bytes == 4 * 2 * 3 * 12 * 20


def test_a_block_that_was_not_measured_is_named(tmp_path):
    machine = measured(*fingerprints(convolutions(), SETTING))
    costs = block_costs(convolutions(), SETTING.input_shape)

    with pytest.raises(NotCalibratedError, match=r"4 of 4 blocks, such as block 0,.*\(2, 3, 24, 20\).*--calibrate"):
        machine.with_times(convolutions(), costs, Setting((2, 3, 24, 20)))


def test_parts_are_measured_under_names_of_their_own():
    blocks, rows, filters = convolutions(), Division(2, "rows"), Division(2, "filter")
    by_rows = replace(SETTING, division=rows)
    whole, in_rows = fingerprints(blocks, SETTING), fingerprints(blocks, by_rows)
    machine = measured(*whole, *in_rows[:2])
    costs = divided_costs(blocks, SETTING.input_shape, [rows])[rows]

    assert len(in_rows) == 4
    assert not set(whole) & set(in_rows)
    assert not set(in_rows) & set(fingerprints(blocks, replace(SETTING, division=filters)))
    with pytest.raises(NotCalibratedError, match="in 2 parts, split = 'rows'"):
        machine.with_times(blocks, costs, by_rows)
    assert measured(*in_rows).with_times(blocks, costs, by_rows)[3].times == BlockTimes(1, 2, 0.5, 0.25, 0.75)


def test_a_machine_that_was_not_measured_is_named(tmp_path):
    with pytest.raises(NotCalibratedError, match=r"2 ranks of 1 thread on .*, fp32 .*--calibrate"):
        load_machine(tmp_path, IDENTITY)


@pytest.mark.parametrize(
    ("key", "value"),
    [("processor", "Abacus"), ("torch", "1.0"), ("threads", 2), ("backend", "nccl"), ("instruction_set", "none")],
)
def test_a_file_from_elsewhere_is_refused_with_what_differs(tmp_path, key, value):
    """Also under the name that belongs here, as when a project was copied."""
    path = save_machine(tmp_path, measured("0"))
    content = json.loads(path.read_text())
    content["identity"][key] = value
    path.write_text(json.dumps(content))

    with pytest.raises(NotCalibratedError, match=rf"measured elsewhere \({key} {value!r} instead of"):
        load_machine(tmp_path, IDENTITY)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: "[]",
        lambda text: text.replace('"forward_s": 1.0', '"forward_s": -1.0'),
        lambda text: text.replace('"forward_s": 1.0', '"forward_s": NaN'),
        lambda text: text.replace('"forward_s"', '"forwards"'),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, damage):
    path = save_machine(tmp_path, measured("0"))
    path.write_text(damage(path.read_text()))

    with pytest.raises(BadRecipeError, match=path.name):
        load_machine(tmp_path, IDENTITY)


def test_machines_that_differ_have_files_of_their_own(tmp_path):
    bf16 = identity_here(replace(SETTING, precision="bf16"), threads=1, backend="gloo", num_ranks=2)

    assert machine_path(tmp_path, IDENTITY) != machine_path(tmp_path, bf16)
    assert machine_path(tmp_path, IDENTITY).name.startswith("cpu-fp32-")


def test_what_one_rank_measured_is_found_whichever_transport_its_device_would_use():
    recipe = Recipe.model_validate(
        {"data": {"tile_set": "none"}, "model": {"depth": 11, "num_classes": 2}, "train": {"steps": 1}}
    )
    one, several = ({identity_of(recipe, SETTING, num_ranks=n, backend=b) for b in ("gloo", "nccl")} for n in (1, 2))

    assert (len(one), len(several)) == (1, 2)


def test_messages_take_what_was_measured_one_way_and_both_ways():
    """Two groups of mp-basic send down and up one at a time; two ranks that swap do so at once."""
    down_up = build_schedule("mp-basic", num_stages=2, num_microbatches=1)
    stages = [StageCost(0, 0), StageCost(0, 0, input_bytes=100, gradient_bytes=100)]
    swap = build_schedule("single", num_stages=1, num_microbatches=2, data_parallel=2)

    assert simulate(down_up, Costs(stages, measured().network())).end_s == pytest.approx(2 * (0.25 + 1.0))
    both = simulate(swap, Costs([StageCost(0, 0, weight_bytes=200)], measured().network())).end_s
    assert both == pytest.approx(2 * (0.25 + 1.5))


def test_sums_and_updates_are_of_the_share_that_a_rank_owns():
    alone, shared = (
        measured().costs([StageCost(0, 0, weight_bytes=1000)], place("single", num_stages=1, data_parallel=number))
        for number in (1, 4)
    )

    assert (alone.stages[0].reduce_s, alone.stages[0].step_s) == pytest.approx((1.0, 4.0))
    assert (shared.stages[0].reduce_s, shared.stages[0].step_s) == pytest.approx((0.25 + 1.5, 1.0 + 6.0))
    assert (alone.agree_s, shared.agree_s) == (0.0, 0.5)


@pytest.mark.parametrize("strategy", ["mp-basic", "master", "gpipe", "1f1b", "chimera"])
@pytest.mark.parametrize("microbatches", [4, 6])
def test_one_group_with_the_sums_of_all_takes_as_long_as_all_groups(strategy, microbatches):
    """Also where the micro-batches of a group are no power of two, and the ranks have several sums to give."""
    numbers = {"num_stages": 2, "num_microbatches": microbatches}
    group, placement = build_schedule(strategy, **numbers), place(strategy, num_stages=2, data_parallel=4)
    everyone = build_schedule(strategy, num_stages=2, num_microbatches=4 * microbatches, data_parallel=4)
    stages = [
        StageCost(1.0, 2.5, weight_bytes=400),
        StageCost(1.5, 2.0, input_bytes=60, gradient_bytes=40, weight_bytes=100),
    ]

    alone = simulate(group, measured().group_costs(stages, group, placement)).end_s
    assert alone == pytest.approx(simulate(everyone, measured().costs(stages, placement)).end_s, rel=0.02)
