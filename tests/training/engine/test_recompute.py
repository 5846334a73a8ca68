"""Recomputation changes memory and time and nothing else, down to the last bit."""

import gc
from typing import Any
from unittest import mock
from weakref import ref

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.training.engine.small_networks import HW, NETWORKS, Head, loss, make_batch, make_blocks, plan_of, train
from training.engine.batches import split
from training.engine.engine import Engine
from training.engine.recompute import Recompute, Segment
from training.engine.saved import OffloadedTensor

pytestmark = pytest.mark.usefixtures("one_thread", "small_tensors_are_moved_too")


@pytest.fixture
def small_tensors_are_moved_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.engine.saved.LEAST_OFFLOADED_BYTES", 64)


SETTINGS = {
    "every block": Recompute(1),
    "every 2": Recompute(2),
    "every 3": Recompute(3),
    "all as one": Recompute(99),
    "a prefix": Recompute(1, prefix=(2,)),
    "a prefix in pairs": Recompute(2, prefix=(3,)),
    "an empty prefix": Recompute(1, prefix=(0,)),
    "norm": Recompute(rest="norm"),
    "offload": Recompute(rest="offload"),
    "a prefix, then norm": Recompute(1, prefix=(2,), rest="norm"),
    "a prefix, then offload": Recompute(2, prefix=(2,), rest="offload"),
}


@given(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 10)), st.integers(1, 10))
def test_segments_cut_a_stage_from_its_start(every, prefix, num_blocks):
    assume(prefix is None or prefix <= num_blocks)
    every = max(every, int(prefix is not None))
    segments = Recompute(every, None if prefix is None else (0, prefix)).segments(1, num_blocks)

    assert [block for segment in segments for block in segment.blocks] == list(range(num_blocks))
    again = [segment for segment in segments if segment.policy == "recompute"]
    wanted = 0 if not every else (num_blocks if prefix is None else prefix)
    assert sum(len(segment.blocks) for segment in again) == wanted
    assert all(len(segment.blocks) == every for segment in again[:-1])
    assert all(0 < len(segment.blocks) <= every for segment in again)
    assert segments[: len(again)] == again
    assert len(segments) - len(again) == (wanted < num_blocks)


def test_the_rest_behind_the_prefix_is_kept_as_one():
    assert Recompute(2, prefix=(3,)).segments(0, 6) == [
        Segment(range(2), "recompute"),
        Segment(range(2, 3), "recompute"),
        Segment(range(3, 6), "keep"),
    ]


@pytest.mark.parametrize("wrong", [{"every": -1}, {"prefix": (1,)}, {"every": 1, "prefix": (2, -1)}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="segments of 1 block or more and prefixes of 0 or more"):
        Recompute(**wrong)


def test_a_prefix_longer_than_its_stage_is_refused():
    with pytest.raises(ValueError, match=r"prefix \(0, 3\): stage 1 has only 2 blocks"):
        Recompute(1, prefix=(0, 3)).segments(1, 2)


@pytest.mark.parametrize("prefix", [(), (1, 1)])
def test_a_prefix_needs_an_entry_for_each_stage(prefix):
    with pytest.raises(ValueError, match="needs one entry for each of 1 stage"):
        plan_of(make_blocks("resnet"), recompute=Recompute(1, prefix=prefix))


def test_a_stage_without_a_prefix_is_refused():
    with pytest.raises(ValueError, match=r"prefix \(1,\) has no entry for stage 1; give one per stage"):
        Recompute(1, prefix=(1,)).segments(1, 4)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_network_learns_the_same_bits_with_recomputation(network, setting):
    kept, recomputed = train(network), train(network, SETTINGS[setting])

    assert kept.keys() == recomputed.keys()
    different = [name for name in kept if not torch.equal(kept[name], recomputed[name])]
    assert different == []


@pytest.mark.parametrize("network", ["resnet", "unet"])
@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"channels_last": True}])
def test_so_it_does_in_bf16_and_channels_last(network, options):
    kept, recomputed = train(network, **options), train(network, Recompute(2), **options)

    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


@pytest.mark.parametrize("rest", ["norm", "offload"])
def test_norms_in_evaluation_mode_are_not_computed_again_as_if_they_were_training(rest):
    """The case is fine-tuning with frozen statistics."""

    def state_after(recompute: Recompute) -> dict[str, Tensor]:
        blocks = make_blocks("resnet")
        for layer in (layer for block in blocks for layer in block.modules() if isinstance(layer, nn.BatchNorm2d)):
            layer.eval()
            layer.running_mean.fill_(0.3)
        one = Engine(blocks, plan_of(blocks, recompute=recompute))
        one.train_step(make_batch(2), loss)
        return one.full_state_dict()

    kept, again = state_after(Recompute()), state_after(Recompute(rest=rest))
    assert all(torch.equal(kept[name], again[name]) for name in kept)


class Gate(nn.Module):
    """Function that saves two views of one tensor, one of which starts in its middle."""

    def forward(self, x_nchw: Tensor) -> Tensor:
        value_nchw, gate_nchw = x_nchw.chunk(2, dim=1)
        return value_nchw * gate_nchw


def test_views_come_back_from_host_memory_where_they_were():
    def state_after(recompute: Recompute) -> dict[str, Tensor]:
        torch.manual_seed(7)
        blocks = [nn.Conv2d(3, 8, 1), Gate(), Head(4)]
        one = Engine(blocks, plan_of(blocks, recompute=recompute))
        one.train_step(make_batch(2), loss)
        return one.full_state_dict()

    kept, moved = state_after(Recompute()), state_after(Recompute(rest="offload"))
    assert all(torch.equal(kept[name], moved[name]) for name in kept)


def test_host_memory_is_free_once_a_step_is_done():
    """Also without the garbage collector, which may not come for many steps."""
    blocks = [nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5), Head(64)]
    one = Engine(blocks, plan_of(blocks, recompute=Recompute(rest="offload")))
    made = []
    begin = OffloadedTensor.__init__

    def counted(self, *given) -> None:
        made.append(ref(self))
        begin(self, *given)

    gc.disable()
    try:
        with mock.patch.object(OffloadedTensor, "__init__", counted):
            one.train_step(make_batch(2), loss)
        assert made
        assert not [tensor for tensor in made if tensor() is not None]
    finally:
        gc.enable()


def test_weights_are_not_moved_to_host_memory():
    peaks = []
    for recompute in (Recompute(), Recompute(rest="offload")):
        blocks = [nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5), Head(64)]
        one = Engine(blocks, plan_of(blocks, recompute=recompute), count_bytes=True)
        one.train_step(make_batch(1), loss)
        peaks.append(one.live_bytes.peak)

    assert peaks[1] <= peaks[0] < 64 * 64 * 25 * 4  # the bytes of one of them


def test_the_networks_really_learn():
    """Otherwise equal bits would prove nothing."""
    for network in NETWORKS:
        before = nn.Sequential(*make_blocks(network)).state_dict()
        after = train(network)
        assert after["losses"].isfinite().all()
        assert any(not torch.equal(before[name], after[name]) for name in before), network


class Counting(nn.Module):
    """Module that records every forward."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.with_gradient: list[bool] = []

    def forward(self, value: Tensor) -> Tensor:
        self.with_gradient.append(torch.is_grad_enabled())
        return self.inner(value)


@pytest.mark.parametrize(
    ("recompute", "forwards"),
    [
        (Recompute(), ["G", "G", "G"]),
        (Recompute(1), ["_G", "_G", "G"]),  # backward of the last segment follows its forward at once
        (Recompute(2), ["_G", "_G", "G"]),
        (Recompute(3), ["G", "G", "G"]),
        (Recompute(1, prefix=(2,)), ["_G", "_G", "G"]),
        (Recompute(rest="norm"), ["G", "G", "G"]),
        (Recompute(rest="offload"), ["G", "G", "G"]),
    ],
)
def test_a_recomputed_block_runs_once_without_and_once_with_a_graph(recompute, forwards):
    blocks = [Counting(block) for block in (nn.Conv2d(3, 4, 1), nn.Tanh(), Head(4))]
    losses = []

    def counted_loss(logits_nk: Tensor, classes_n: Tensor) -> Tensor:
        losses.append(len(classes_n))
        return loss(logits_nk, classes_n)

    Engine(blocks, plan_of(blocks, recompute=recompute)).train_step(make_batch(1), counted_loss)

    assert ["".join("_G"[with_graph] for with_graph in block.with_gradient) for block in blocks] == forwards
    assert losses == [2]


@pytest.mark.parametrize("setting", SETTINGS)
def test_batchnorm_counts_a_recomputed_microbatch_once(setting):
    state = train("resnet", SETTINGS[setting], steps=2)

    assert {int(state[name]) for name in state if name.endswith("num_batches_tracked")} == {2 * 3}


def test_random_numbers_elsewhere_go_on_as_if_nothing_had_been_recomputed():
    states = []
    for recompute in (Recompute(), Recompute(1)):
        train("dropout", recompute)
        states.append(torch.rand(3))

    assert torch.equal(*states)


def test_only_one_recomputed_segment_is_alive_at_a_time():
    """Four equal blocks: three inputs from forward to backward, and one block's activations during its backward."""
    blocks = [nn.Sequential(nn.Conv2d(3, 3, 1), nn.Tanh(), nn.Tanh(), nn.Tanh()) for _ in range(6)] + [Head(3)]
    image_bytes = 2 * 3 * HW[0] * HW[1] * 4
    peaks = {}
    for every in (0, 1, 3):
        one = Engine(blocks, plan_of(blocks, recompute=Recompute(every)), count_bytes=True)
        one.train_step(make_batch(1), loss)
        peaks[every] = one.live_bytes.peak / image_bytes

    assert 19 <= peaks[0] < 20
    assert peaks[1] < 6 + 1 + 3 + 1
    assert peaks[3] < peaks[0]
    assert peaks[1] < peaks[3]


class Scaled(torch.autograd.Function):
    """Function that saves its input for backward without checking whether it changes."""

    @staticmethod
    def forward(context: Any, value: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(value, weight)
        return value * weight

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        value, weight = context.saved_tensors
        return gradient * weight, (gradient * value).sum()


class SavesTwice(nn.Module):
    """Function that saves a tensor, changes it in place, and saves it again."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(0.25))

    def forward(self, x_nchw: Tensor) -> Tensor:
        value = x_nchw.detach() * 1.0
        one = Scaled.apply(value, self.first)
        value.mul_(3.0)
        return one + Scaled.apply(value, self.second)


def test_a_tensor_that_is_saved_again_after_a_change_is_moved_away_again():
    blocks = [SavesTwice(), Head(3)]
    one = Engine(blocks, plan_of(blocks, recompute=Recompute(rest="offload")))
    image_nchw = torch.rand(2, 3, 64, 96, generator=torch.Generator().manual_seed(1))
    batch = split(image_nchw, torch.tensor([0, 1]), microbatch_size=2)
    before = [weight.item() for weight in blocks[0].parameters()]

    one.train_step(batch, loss)

    first, second = (weight.item() - was for weight, was in zip(blocks[0].parameters(), before, strict=True))
    assert second == pytest.approx(3 * first, abs=4 * torch.finfo(torch.float32).eps)
