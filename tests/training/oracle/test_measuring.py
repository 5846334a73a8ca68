"""Measuring of blocks and links: of the real ones, once for equal blocks, and without a trace in the network."""

import copy
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from tests.distributed.launch import run_ranks
from tests.distributed.networks import branching_network
from tests.training.engine.small_networks import unet
from training.engine.memory import LiveBytes
from training.engine.plan import make_plan
from training.engine.transport import Transport
from training.foundation.errors import BusyMachineError
from training.oracle.calibration import measure_blocks as measuring
from training.oracle.calibration.block_inputs import Setting, block_inputs, fingerprints
from training.oracle.calibration.calibrate import calibrate
from training.oracle.calibration.chain import Chain
from training.oracle.calibration.machine import Machine, identity_here
from training.oracle.calibration.measure_blocks import measure_blocks
from training.oracle.calibration.measure_links import fit, of_pairs
from training.oracle.calibration.measure_updates import measure_update
from training.oracle.simulation.links import instant
from training.parallel.division import Division
from training.recipe.optimisation import cross_entropy

SETTING = Setting((2, 3, 12, 20))
SLOW_S = 0.05
TARGETS = torch.tensor([0, 2])


def alone(value):
    return [value]


@pytest.fixture
def any_machine(monkeypatch):
    """Let all rounds count: tests run beside each other."""
    monkeypatch.setattr(measuring, "LEAST_SHARE", 0.0)
    monkeypatch.setattr(measuring, "BUDGET_S", 0.1)


def small():
    torch.manual_seed(0)
    block = [nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU()]
    body = [nn.Sequential(*copy.deepcopy(block)) for _ in range(3)]
    return [nn.Conv2d(3, 3, 1), *body, nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 20, 3))]


def test_inputs_of_blocks_are_what_the_network_passes_on():
    blocks = unet()
    value = torch.randn(2, 3, 12, 20)
    for block, taken in zip(blocks, block_inputs(blocks, SETTING), strict=True):
        tensors = value if isinstance(value, tuple) else (value,)
        assert taken.is_tuple == isinstance(value, tuple)
        assert [(s.size, s.stride, s.dtype, s.requires_grad) for s in taken.shapes] == [
            (tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in tensors
        ]
        value = block(value)


def test_every_block_has_its_seconds_and_equal_blocks_are_measured_once(any_machine, monkeypatch):
    measured = []
    begin = Chain.__init__

    def counted(self, blocks, *others, **named):
        measured.append(blocks)
        begin(self, blocks, *others, **named)

    monkeypatch.setattr(Chain, "__init__", counted)
    blocks = small()
    times = measure_blocks(blocks, cross_entropy, TARGETS, SETTING, alone)

    assert len(times) == 5
    assert all(each.forward_s > 0 and each.backward_s > 0 and each.alone == 1 for each in times)
    assert times[1] is times[2] is times[3]
    assert measured == [[blocks[0], blocks[1], blocks[4]]] * len(measuring.POLICIES)


def test_blocks_are_measured_in_parts_where_memory_is_scarce(any_machine, monkeypatch):
    blocks = small()
    inputs = block_inputs(blocks, SETTING)
    measured = []
    begin = Chain.__init__

    def counted(self, blocks, taken, *others, **named):
        measured.append((len(blocks), taken))
        begin(self, blocks, taken, *others, **named)

    monkeypatch.setattr(Chain, "__init__", counted)
    monkeypatch.setattr(measuring, "_room_bytes", lambda device: 1.0)
    times = measure_blocks(blocks, cross_entropy, TARGETS, SETTING, alone)

    assert len(times) == 5
    assert measured[:: len(measuring.POLICIES)] == [(1, inputs[0]), (1, inputs[1]), (1, inputs[4])]


@pytest.mark.parametrize("split", ["rows", "filter", "channel"])
def test_each_part_is_measured_by_itself_and_leaves_no_trace(any_machine, split):
    blocks = small()
    before = copy.deepcopy(nn.ModuleList(blocks).state_dict())
    times = measure_blocks(
        blocks, cross_entropy, TARGETS, replace(SETTING, division=Division(3, split)), alone, rank=2
    )  # a last part, which has no loss

    assert len(times) == 5
    assert all(each.forward_s > 0 and each.norm_s == 0 for each in times)
    assert all(each.backward_s > 0 for each in times[1:])
    after = nn.ModuleList(blocks).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_sub_graph_is_measured_with_the_branches_of_a_whole_network_at_hand(any_machine):
    blocks, setting = branching_network(), replace(SETTING, division=Division(2, "branches"))
    times = measure_blocks(blocks, cross_entropy, TARGETS, setting, alone, rank=1)

    assert all(each.forward_s > 0 for each in times)
    assert len(blocks[1].towers) == 3


def test_a_part_takes_what_the_network_passes_on_to_it():
    whole = block_inputs(unet(), SETTING)
    parts = [block_inputs(unet(), replace(SETTING, division=Division(3, "rows"), part=part)) for part in range(3)]

    assert [taken.heights for taken in parts[0]] == [taken.heights for taken in parts[2]]
    assert parts[0][0].shapes == whole[0].shapes  # each part takes its rows from the whole tile
    for index, taken in enumerate(whole[1:], start=1):
        rows = [sum(part[index].shapes[0].size[2] for part in parts)]
        assert rows == [shape.size[2] for shape in taken.shapes[:1]]


def test_parts_of_a_network_are_measured_in_stretches_where_memory_is_scarce(any_machine, monkeypatch):
    monkeypatch.setattr(measuring, "_room_bytes", lambda device: 1.0)
    times = measure_blocks(unet(), cross_entropy, TARGETS, replace(SETTING, division=Division(2, "rows")), alone)

    assert len(times) == 5
    assert all(each.forward_s > 0 for each in times)


def test_the_slowest_part_counts():
    taken = measuring._Taken(num_ranks=4, num_parts=2)

    # Ranks 0 and 2 have the first part, 1 and 3 the second: forward 2 and 5 on average, backward 9 and 6.
    assert taken._mean([(1.0, 8.0), (4.0, 5.0), (3.0, 10.0), (6.0, 7.0)]) == (5.0, 9.0)


def test_a_block_that_does_more_takes_longer(any_machine):
    few, many = (
        measure_blocks([nn.Conv2d(3, width, 3), nn.Conv2d(width, 3, 3)], _mean, None, Setting((1, 3, 96, 64)), alone)
        for width in (2, 64)
    )

    assert sum(each.forward_s for each in many) > sum(each.forward_s for each in few)
    assert sum(each.backward_s for each in many) > sum(each.backward_s for each in few)


class Slow(torch.autograd.Function):
    """Passes on what it takes, after some time."""

    @staticmethod
    def forward(ctx, value, forward_s, backward_s):
        ctx.backward_s = backward_s
        wait(forward_s)
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        wait(ctx.backward_s)
        return gradient, None, None


class SlowBlock(nn.Module):
    def __init__(self, forward_s, backward_s):
        super().__init__()
        self.seconds = forward_s, backward_s

    def forward(self, value):
        return Slow.apply(value, *self.seconds)

    def extra_repr(self):
        return str(self.seconds)


def wait(seconds):
    """Use a core for some time."""
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass


@pytest.mark.parametrize("room_bytes", [float("inf"), 1.0], ids=["as one chain", "one by one"])
def test_forward_and_backward_are_charged_to_the_block_that_took_them(any_machine, monkeypatch, room_bytes):
    monkeypatch.setattr(measuring, "_room_bytes", lambda device: room_bytes)
    first, *_, last = small()
    blocks = [first, SlowBlock(SLOW_S, 0), nn.ReLU(), SlowBlock(0, SLOW_S), last]

    times = measure_blocks(blocks, cross_entropy, TARGETS, SETTING, alone)

    assert [index for index, each in enumerate(times) if each.forward_s >= SLOW_S] == [1]
    assert [index for index, each in enumerate(times) if each.backward_s >= SLOW_S] == [3]


def test_blocks_that_nothing_learns_before_have_no_backward(any_machine):
    blocks = small()
    blocks[0].requires_grad_(False)
    first, second, *_ = measure_blocks(blocks, cross_entropy, TARGETS, SETTING, alone)

    assert first.backward_s < second.backward_s / 4


def _mean(output, targets):
    return output.mean()


def test_networks_with_tuples_between_blocks_are_measured(any_machine):
    assert len(measure_blocks(unet(), cross_entropy, TARGETS, SETTING, alone)) == 5


def test_measuring_leaves_the_network_as_it_was(any_machine):
    blocks = nn.Sequential(*small())
    before = copy.deepcopy(blocks.state_dict())
    measure_blocks(list(blocks), cross_entropy, TARGETS, SETTING, alone)

    after = blocks.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(weight.grad is None for weight in blocks.parameters())


def test_nothing_is_measured_while_others_have_the_cores(any_machine, monkeypatch):
    monkeypatch.setattr(measuring, "LEAST_SHARE", 1.5)

    with pytest.raises(BusyMachineError, match=r"only 0 of \d+ rounds had the cores"):
        measure_blocks(small(), cross_entropy, TARGETS, SETTING, alone)


def test_alpha_and_beta_are_found_again():
    times = {size: 2e-4 + size * 3e-10 for size in (4096, 65536, 2**20, 2**26)}

    assert fit(times) == pytest.approx((2e-4, 3e-10))
    assert fit({size: 1e-9 * size for size in (4096, 2**26)}) == pytest.approx((0.0, 1e-9), abs=1e-12)


def test_a_meeting_takes_what_the_later_rank_of_each_pair_waits():
    assert of_pairs([3.0, 1.0, 2.0, 5.0]) == 1.5
    assert of_pairs([3.0, 1.0, 0.0]) == 1.0


class SlowSGD(torch.optim.SGD):
    """An optimizer whose step stands out among the parts of an update."""

    def step(self):
        super().step()
        wait(SLOW_S)


def _slow_update(ranks):
    blocks = small()
    plan = replace(
        make_plan("single", costs=[1.0] * len(blocks), data_parallel=2), make_optimizer=lambda named: SlowSGD(named)
    )
    transport = Transport(ranks, SETTING.device, counter=LiveBytes())
    weight_bytes = sum(weight.nbytes for weight in nn.Sequential(*blocks).parameters())
    update = measure_update(blocks, plan, SETTING, ranks, transport, instant)
    return weight_bytes, update.model_dump()


def test_the_time_of_an_update_is_charged_to_the_part_that_took_it():
    weight_bytes, update = run_ranks(2, _slow_update)[0]

    assert update["step_s_per_byte"] * weight_bytes >= SLOW_S
    assert update["agree_s"] < SLOW_S
    # Halves of the weights are updated on each rank, by optimizers that take as long as one for all of them.
    assert update["share_s_per_byte"] * weight_bytes / 2 >= SLOW_S / 2


def _calibrated(ranks):
    measuring.LEAST_SHARE, measuring.BUDGET_S = 0.0, 0.1
    blocks = small()
    before = copy.deepcopy(nn.Sequential(*blocks).state_dict())
    plan = make_plan("single", costs=[1.0] * len(blocks), data_parallel=2)
    identity = identity_here(SETTING, threads=1, backend="gloo", num_ranks=2)
    machine = calibrate(blocks, cross_entropy, TARGETS, plan, [SETTING], ranks, identity)
    after = nn.Sequential(*blocks).state_dict()
    return machine.model_dump_json(), all(torch.equal(after[name], value) for name, value in before.items())


def test_two_ranks_measure_one_machine_and_change_no_weight():
    (first, is_same), (second, _) = run_ranks(2, _calibrated)
    machine, other = (Machine.model_validate_json(text) for text in (first, second))

    assert is_same
    assert (machine.blocks, machine.link) == (other.blocks, other.link)
    assert set(machine.blocks) == set(fingerprints(small(), SETTING))
    assert 0 < machine.link.beta_s_per_byte <= machine.link.both_ways_s_per_byte
    assert machine.update.sum_s_per_byte > 0
    assert machine.update.step_s_per_byte > 0
    assert machine.update.agree_s > 0
