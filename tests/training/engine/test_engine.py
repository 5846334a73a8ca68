"""The engine on one rank: against a plain training loop, and its refusals."""

import dataclasses
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from training.engine.engine import Engine, Plan, make_plan
from training.engine.ranks import alone, connect_ranks
from training.engine.schedule import build_schedule
from training.models.resnet_v2 import resnet_v2, resnet_v2_blocks

NUM_MICROBATCHES = 4
SAMPLES = 2
make_sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-2)


pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(seed: int = 0) -> list[nn.Module]:
    torch.manual_seed(seed)
    return resnet_v2_blocks(depth=11, num_classes=3)


def make_engine(made_of: list[nn.Module], **options) -> Engine:
    plan = make_plan("single", num_stages=1, num_microbatches=NUM_MICROBATCHES, costs=[1.0] * len(made_of))
    return Engine(made_of, plan=plan, **{"make_optimizer": make_sgd} | options)


def inputs(microbatch: int) -> Tensor:
    return torch.randn(SAMPLES, 3, 24, 32, generator=torch.Generator().manual_seed(microbatch))


def loss(logits_nk: Tensor, microbatch: int) -> Tensor:
    labels_n = torch.tensor([microbatch % 3, (microbatch + 1) % 3])
    return nn.functional.cross_entropy(logits_nk.float(), labels_n, reduction="sum") / (NUM_MICROBATCHES * SAMPLES)


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    total = 0.0
    for microbatch in range(NUM_MICROBATCHES):
        value = loss(model(inputs(microbatch)), microbatch)
        value.backward()
        total += value.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


def test_a_step_equals_gradient_accumulation():
    model = nn.Sequential(*blocks())
    optimizer = make_sgd(model.parameters())
    engine = make_engine(blocks())

    for _ in range(2):
        assert engine.train_step(inputs, loss) == pytest.approx(plain_step(model, optimizer), rel=1e-5)

    for name, tensor in engine.full_state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_only_one_microbatch_is_kept_at_a_time():
    class Kept:
        def __init__(self, tensor: Tensor):
            self.tensor = tensor
            alive.add(self)

    alive: weakref.WeakSet[Kept] = weakref.WeakSet()
    most = []

    def counted_inputs(microbatch: int) -> Tensor:
        most.append(len(alive))
        return inputs(microbatch)

    def counted_loss(logits_nk: Tensor, microbatch: int) -> Tensor:
        most.append(len(alive))
        return loss(logits_nk, microbatch)

    engine = make_engine(blocks())
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        engine.train_step(counted_inputs, counted_loss)

    before_forward, after_forward = most[::2], most[1::2]
    assert before_forward == [0] * NUM_MICROBATCHES
    assert len(set(after_forward)) == 1
    assert after_forward[0] > 0


def test_running_statistics_equal_sequential_batchnorm():
    model = nn.Sequential(*blocks())
    with torch.no_grad():
        for microbatch in range(NUM_MICROBATCHES):
            model(inputs(microbatch))
    engine = make_engine(blocks())

    engine.train_step(inputs, loss)

    buffers = dict(model.named_buffers())
    state = engine.full_state_dict()
    assert len(buffers) == 3 * 10
    for name, expected in buffers.items():
        torch.testing.assert_close(state[name], expected, rtol=3e-7, atol=3e-7)


def test_bf16_learns_with_fp32_weights():
    engine = make_engine(blocks(), precision="bf16", channels_last=True)
    losses = [engine.train_step(inputs, loss) for _ in range(8)]

    assert losses[-1] < losses[0]
    assert {tensor.dtype for tensor in engine.full_state_dict().values()} == {torch.float32, torch.int64}


def test_state_goes_into_a_plain_model_and_back():
    engine = make_engine(blocks())
    engine.train_step(inputs, loss)
    model = resnet_v2(depth=11, num_classes=3)
    model.load_state_dict(engine.full_state_dict())

    other = make_engine(blocks(seed=1), channels_last=True)
    other.load_full_state_dict(model.state_dict())

    for name, tensor in other.full_state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
        assert tensor.is_contiguous()


@pytest.mark.parametrize("make_optimizer", [make_sgd, partial(torch.optim.AdamW, lr=0.01)])
def test_a_resumed_run_equals_an_uninterrupted_one(make_optimizer):
    engine = make_engine(blocks(), channels_last=True, make_optimizer=make_optimizer)
    engine.train_step(inputs, loss)
    weights, remembered = engine.full_state_dict(), engine.full_optimizer_state()
    resumed = make_engine(blocks(seed=1), channels_last=True, make_optimizer=make_optimizer)
    resumed.load_full_state_dict(weights)
    resumed.load_full_optimizer_state(remembered)

    for _ in range(2):
        assert resumed.train_step(inputs, loss) == engine.train_step(inputs, loss)

    assert all(
        torch.equal(tensor, resumed.full_state_dict()[name]) for name, tensor in engine.full_state_dict().items()
    )


def test_optimizer_state_goes_by_the_name_of_its_weight():
    engine = make_engine(blocks())
    assert engine.full_optimizer_state() == {}

    engine.train_step(inputs, loss)

    names = {name for name, _ in resnet_v2(depth=11, num_classes=3).named_parameters()}
    assert engine.full_optimizer_state().keys() == {f"{name}/momentum_buffer" for name in names}


def test_frozen_blocks_stay_as_they_are():
    frozen = blocks()
    for block in frozen[:2]:
        block.requires_grad_(False).eval()
    engine = make_engine(frozen)
    before = engine.full_state_dict()

    engine.train_step(inputs, loss)

    after = engine.full_state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"2", "3", "4"}


def test_a_learning_rate_of_zero_changes_no_weight():
    engine = make_engine(blocks(), make_optimizer=partial(torch.optim.SGD, lr=0.1))
    before = engine.full_state_dict()
    engine.set_lr(0.0)

    engine.train_step(inputs, loss)

    after = engine.full_state_dict()
    assert all(torch.equal(after[name], before[name]) for name, _ in nn.Sequential(*blocks()).named_parameters())


def test_one_rank_loads_everything():
    engine = make_engine(blocks())

    assert engine.input_microbatches == engine.output_microbatches == (0, 1, 2, 3)


def test_a_state_of_another_network_is_refused():
    state = make_engine(blocks()).full_state_dict()
    state["4.4.weight"] = torch.zeros(7, 256)
    del state["0.0.weight"]

    with pytest.raises(ValueError, match=r"missing \['0.0.weight'\], unknown \[\], other shapes \['4.4.weight'\]"):
        make_engine(blocks()).load_full_state_dict(state)


def test_too_few_ranks_are_refused():
    plan = make_plan("master", num_stages=2, num_microbatches=2, costs=[1.0] * 5)

    with pytest.raises(ValueError, match="master with 2 stages needs as many ranks, got 1; start 2 processes"):
        Engine(blocks(), plan=plan, make_optimizer=make_sgd)


def test_cuts_that_do_not_fit_the_schedule_are_refused():
    plan = Plan(build_schedule("single", num_stages=1, num_microbatches=1), cuts=(2,))

    with pytest.raises(ValueError, match="1 cuts make 2 stages, not 1"):
        Engine(blocks(), plan=plan, make_optimizer=make_sgd)


def test_stages_that_share_a_weight_are_refused():
    shared = nn.Linear(4, 4)
    ranks = dataclasses.replace(alone(), num_ranks=2)
    plan = make_plan("mp-basic", num_stages=2, num_microbatches=1, costs=[1.0] * 2)

    with pytest.raises(ValueError, match=r"stages 0 and 1 share the weight 1\.0\.weight"):
        Engine([shared, nn.Sequential(shared)], plan=plan, make_optimizer=make_sgd, ranks=ranks)


def test_a_tuple_at_the_end_of_the_network_is_refused():
    class Pair(nn.Linear):
        def forward(self, x_nk: Tensor) -> tuple[Tensor, Tensor]:
            return x_nk, super().forward(x_nk)

    engine = make_engine([Pair(4, 4)])

    with pytest.raises(TypeError, match="one tensor for the loss, got a tuple of 2"):
        engine.train_step(lambda _: torch.ones(1, 4), loss)


@pytest.mark.parametrize("timeout_s", [0.0, float("inf")])
def test_an_endless_timeout_is_refused(timeout_s):
    with pytest.raises(ValueError, match="positive and finite"):
        connect_ranks(timeout_s=timeout_s)
