"""The engine on one rank: comparison with a plain training loop, and its refusals."""

import dataclasses
import weakref
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.training.engine.small_networks import HW, NUM_CLASSES, loss, make_batch, make_blocks
from training import engine
from training.engine.engine import Engine
from training.engine.partition import fake_tensors, on_device, without_memory
from training.engine.plan import Plan, make_plan
from training.engine.ranks import alone, connect_ranks
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES, resolve_alias
from training.models.resnet_v2 import resnet_v2, resnet_v2_blocks

make_sgd = partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=1e-2)

pytestmark = pytest.mark.usefixtures("one_thread")


def blocks(seed: int = 0) -> list[nn.Module]:
    torch.manual_seed(seed)
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)


def make_engine(made_of: list[nn.Module], **options) -> Engine:
    costs = [1.0] * len(made_of)
    return Engine(made_of, engine.make_plan("single", costs=costs, **{"make_optimizer": make_sgd, **options}))


def plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: engine.TensorBatch) -> float:
    """Accumulate gradients as in any tutorial."""
    num_samples = sum(shape[0] for shape in batch.shapes)
    total = 0.0
    for k in range(len(batch.shapes)):
        value = loss(model(batch.inputs(k)), batch.targets(k)) / num_samples
        value.backward()
        total += value.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


@pytest.mark.parametrize("last", [2, 1])
def test_a_step_equals_gradient_accumulation(last):
    model = nn.Sequential(*blocks())
    optimizer = make_sgd(model.parameters())
    one = make_engine(blocks())

    for _ in range(2):
        batch = make_batch(4, last=last)
        assert one.train_step(batch, loss).loss == pytest.approx(plain_step(model, optimizer, batch), rel=1e-5)

    for name, tensor in one.full_state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-5)


def test_two_microbatches_without_batchnorm_equal_gradient_accumulation_bit_for_bit():
    model = nn.Sequential(*make_blocks("relu-chain"))
    optimizer = make_sgd(model.parameters())
    one = make_engine(make_blocks("relu-chain"))

    for _ in range(3):
        assert one.train_step(make_batch(2, last=1), loss).loss == plain_step(model, optimizer, make_batch(2, last=1))

    state = model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in one.full_state_dict().items())


def test_the_result_tells_the_mean_loss_and_its_parts():
    one = make_engine(blocks(), clip_norm=1e9)
    model = nn.Sequential(*blocks())
    batch = make_batch(3, last=1)

    result = one.train_step(batch, loss)

    expected = [loss(model(batch.inputs(k)), batch.targets(k)).item() / 5 for k in range(3)]
    assert result.losses == pytest.approx(expected, rel=1e-6)
    assert result.loss == pytest.approx(sum(expected), rel=1e-6)


def test_the_norm_and_the_clipping_are_those_of_torch():
    model = nn.Sequential(*make_blocks("relu-chain"))
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    clipped = make_engine(make_blocks("relu-chain"), clip_norm=0.1, make_optimizer=partial(torch.optim.SGD, lr=1.0))
    batch = make_batch(1)

    (loss(model(batch.inputs(0)), batch.targets(0)) / 2).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
    plain.step()

    assert clipped.train_step(batch, loss).gradient_norm == pytest.approx(norm, rel=1e-5)
    assert norm > 0.1
    for name, tensor in clipped.full_state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-5, atol=1e-6)


def test_gradients_below_the_norm_are_left_alone():
    free, bounded = make_engine(blocks()), make_engine(blocks(), clip_norm=1e6)

    results = [one.train_step(make_batch(2), loss) for one in (free, bounded)]

    assert results[0].gradient_norm == results[1].gradient_norm
    assert 0 < results[1].gradient_norm < 1e6
    state = bounded.full_state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in free.full_state_dict().items())


@pytest.mark.parametrize("strategy", [name for name, row in STRATEGIES.items() if row.refusal(1) is None])
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 6, 7])
def test_every_strategy_on_one_rank_has_the_bits_of_single(strategy, num_microbatches):
    """`master` with one stage has both replicas on this rank: its sums still go through the one tree."""
    states = []
    for name in ("single", strategy):
        made_of = make_blocks("unet")
        plan = engine.make_plan(name, costs=[1.0] * len(made_of), make_optimizer=make_sgd)
        one = Engine(made_of, plan)
        losses = [one.train_step(make_batch(num_microbatches, last=1), loss).losses for _ in range(2)]
        states.append((losses, one.full_state_dict()))

    (losses, expected), (mine, state) = states
    assert mine == losses
    assert all(torch.equal(state[name], expected[name]) for name in expected)


def test_only_one_microbatch_is_kept_at_a_time():
    class Kept:
        def __init__(self, tensor: Tensor):
            self.tensor = tensor
            alive.add(self)

    class Counted(engine.TensorBatch):
        def inputs(self, microbatch: int) -> Tensor:
            most.append(len(alive))
            return super().inputs(microbatch)

    def counted_loss(logits_nk: Tensor, classes_n: Tensor) -> Tensor:
        most.append(len(alive))
        return loss(logits_nk, classes_n)

    alive: weakref.WeakSet[Kept] = weakref.WeakSet()
    most: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        make_engine(blocks()).train_step(Counted(make_batch(4).parts), counted_loss)

    before_forward, after_forward = most[::2], most[1::2]
    assert before_forward == [0] * 4
    assert len(set(after_forward)) == 1
    assert after_forward[0] > 0


def test_running_statistics_equal_sequential_batchnorm():
    model = nn.Sequential(*blocks())
    batch = make_batch(4)
    with torch.no_grad():
        for k in range(4):
            model(batch.inputs(k))
    one = make_engine(blocks())

    one.train_step(batch, loss)

    buffers = dict(model.named_buffers())
    state = one.full_state_dict()
    assert len(buffers) == 3 * 10
    for name, expected in buffers.items():
        torch.testing.assert_close(state[name], expected, rtol=3e-7, atol=3e-7)


def test_forward_only_gives_the_outputs_of_evaluation_and_changes_nothing():
    trained = blocks()
    trained[1].eval()
    one = make_engine(trained)
    one.train_step(make_batch(2), loss)
    before = {name: tensor.clone() for name, tensor in one.full_state_dict().items()}
    model = resnet_v2(depth=11, num_classes=NUM_CLASSES).eval()
    model.load_state_dict(before)

    outputs = one.forward_only(make_batch(3, last=1))

    with torch.no_grad():
        expected = [model(make_batch(3, last=1).inputs(k)) for k in range(3)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(outputs, expected, strict=True))
    assert not any(output.requires_grad for output in outputs)
    assert [block.training for block in trained] == [True, False, True, True, True]
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.full_state_dict().items())


def test_bf16_learns_with_fp32_weights():
    one = make_engine(blocks(), precision="bf16", channels_last=True)
    losses = [one.train_step(make_batch(4), loss).loss for _ in range(8)]

    assert losses[-1] < losses[0]
    assert {tensor.dtype for tensor in one.full_state_dict().values()} == {torch.float32, torch.int64}


def test_state_goes_into_a_plain_model_and_back():
    one = make_engine(blocks())
    one.train_step(make_batch(2), loss)
    model = resnet_v2(depth=11, num_classes=NUM_CLASSES)
    model.load_state_dict(one.full_state_dict())

    other = make_engine(blocks(seed=1), channels_last=True)
    other.load_full_state_dict(model.state_dict())

    for name, tensor in other.full_state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])
        assert tensor.is_contiguous()


@pytest.mark.parametrize("make_optimizer", [make_sgd, partial(torch.optim.AdamW, lr=0.01)])
def test_a_resumed_run_equals_an_uninterrupted_one(make_optimizer):
    one = make_engine(blocks(), channels_last=True, make_optimizer=make_optimizer)
    one.train_step(make_batch(3), loss)
    weights, remembered = one.full_state_dict(), one.full_optimizer_state()
    resumed = make_engine(blocks(seed=1), channels_last=True, make_optimizer=make_optimizer)
    resumed.load_full_state_dict(weights)
    resumed.load_full_optimizer_state(remembered)

    for _ in range(2):
        assert resumed.train_step(make_batch(3), loss) == one.train_step(make_batch(3), loss)

    state = resumed.full_state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in one.full_state_dict().items())


def test_optimizer_state_goes_by_the_name_of_its_weight():
    one = make_engine(blocks())
    assert one.full_optimizer_state() == {}

    one.train_step(make_batch(1), loss)

    names = {name for name, _ in resnet_v2(depth=11, num_classes=NUM_CLASSES).named_parameters()}
    assert one.full_optimizer_state().keys() == {f"{name}/momentum_buffer" for name in names}


def test_frozen_blocks_stay_as_they_are():
    frozen = blocks()
    for block in frozen[:2]:
        block.requires_grad_(False).eval()
    one = make_engine(frozen)
    before = {name: tensor.clone() for name, tensor in one.full_state_dict().items()}

    one.train_step(make_batch(2), loss)

    after = one.full_state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"2", "3", "4"}


def test_a_network_without_weights_to_train_is_run_all_the_same():
    made_of = [nn.Conv2d(3, NUM_CLASSES, 1).requires_grad_(False), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    one = make_engine(made_of, clip_norm=1.0)

    assert one.train_step(make_batch(2), loss).gradient_norm == 0.0
    assert one.full_optimizer_state() == {}


def test_a_learning_rate_of_zero_changes_no_weight():
    one = make_engine(blocks(), make_optimizer=partial(torch.optim.SGD, lr=0.1))
    before = {name: tensor.clone() for name, tensor in one.full_state_dict().items()}
    one.scale_lr(0.0)

    one.train_step(make_batch(2), loss)

    after = one.full_state_dict()
    assert all(torch.equal(after[name], before[name]) for name, _ in nn.Sequential(*blocks()).named_parameters())


def test_the_batch_may_change_in_number_and_shape_from_step_to_step():
    one, model = make_engine(make_blocks("relu-chain")), nn.Sequential(*make_blocks("relu-chain"))
    optimizer = make_sgd(model.parameters())
    for count, samples, hw in ((1, 2, HW), (2, 1, (9, 14)), (1, 3, (16, 8))):
        parts = tuple((torch.rand(samples, 3, *hw), torch.zeros(samples, dtype=torch.int64)) for _ in range(count))
        batch = engine.TensorBatch(parts)
        assert one.train_step(batch, loss).loss == plain_step(model, optimizer, batch)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda state: state.pop("0.0.weight"), r"missing \['0.0.weight'\], unknown \[\], other shapes \[\]"),
        (lambda state: state.update(new=torch.ones(1)), r"missing \[\], unknown \['new'\], other shapes \[\]"),
        (
            lambda state: state.update({"4.4.weight": torch.zeros(7, 256)}),
            r"missing \[\], unknown \[\], other shapes \['4.4.weight'\]",
        ),
    ],
)
def test_a_state_of_another_network_is_refused(change, says):
    one, state = make_engine(blocks()), make_engine(blocks(seed=8)).full_state_dict()
    before = one.full_state_dict()
    change(state)

    with pytest.raises(ValueError, match=says):
        one.load_full_state_dict(state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in one.full_state_dict().items())


def test_an_input_of_another_shape_than_the_batch_says_is_refused():
    class Wrong(engine.TensorBatch):
        def inputs(self, microbatch: int) -> Tensor:
            return super().inputs(microbatch)[..., 1:]

    with pytest.raises(ValueError, match=r"micro-batch 0 has shape \(2, 3, 12, 19\), but the batch says \(2, 3, 12, 2"):
        make_engine(blocks()).train_step(Wrong(make_batch(1).parts), loss)


def test_too_few_ranks_are_refused():
    plan = engine.make_plan("master", num_stages=2, num_microbatches=2, data_parallel=2, costs=[1.0] * 5)

    with pytest.raises(ValueError, match="master with 2 stages and 2 groups needs 4 ranks, got 1; start 4 processes"):
        Engine(blocks(), plan)


def test_cuts_that_do_not_fit_the_plan_are_refused():
    with pytest.raises(ValueError, match="1 cut makes 2 stages, not 1"):
        Engine(blocks(), Plan(cuts=(2,)))


def test_stages_that_share_a_weight_are_refused():
    shared = nn.Linear(4, 4)
    ranks = dataclasses.replace(alone(), num_ranks=2)
    plan = engine.make_plan("mp-basic", num_stages=2, costs=[1.0] * 2)

    with pytest.raises(ValueError, match=r"stages 0 and 1 share the weight 1\.0\.weight"):
        Engine([shared, nn.Sequential(shared)], plan, ranks=ranks)


def test_a_tuple_at_the_end_of_the_network_is_refused():
    class Pair(nn.Linear):
        def forward(self, x_nk: Tensor) -> tuple[Tensor, Tensor]:
            return x_nk, super().forward(x_nk)

    batch = engine.split(torch.ones(1, 4), torch.zeros(1), microbatch_size=1)
    with pytest.raises(TypeError, match="one tensor for the loss, got a tuple of 2"):
        make_engine([Pair(4, 4)]).train_step(batch, loss)


@pytest.mark.parametrize("timeout_s", [0.0, float("inf")])
def test_an_endless_timeout_is_refused(timeout_s):
    with pytest.raises(ValueError, match="positive and finite"):
        connect_ranks(timeout_s=timeout_s)


def test_a_world_of_one_leaves_its_groups_when_it_is_closed(tmp_path):
    ranks = connect_ranks(timeout_s=60, init_method=f"file://{tmp_path}/point", rank=0, num_ranks=1)
    assert dist.is_initialized()
    ranks.close()
    assert not dist.is_initialized()
    assert (ranks.data, ranks.control) == (None, None)


def test_weights_on_a_gpu_are_not_moved_for_a_plan_without_its_number():
    plan = make_plan("single", costs=[1.0], device=torch.device("cuda"))
    shell = without_memory([nn.Linear(2, 3)])
    with fake_tensors():
        (there,) = on_device(shell, torch.device("cuda:0"))
        placed = plan.place_module(nn.Sequential(there))
        assert placed[0].weight.device == torch.device("cuda:0")


@pytest.mark.parametrize(
    ("alias", "num_microbatches", "data_parallel", "name"),
    [("mast", 2, 1, "master"), ("hybrid", 4, 2, "master"), ("ddp", 3, 4, "single"), ("gpipe", 1, 1, "gpipe")],
)
def test_an_alias_is_spelled_out(alias, num_microbatches, data_parallel, name):
    assert resolve_alias(alias, num_microbatches=num_microbatches, data_parallel=data_parallel) == name


@pytest.mark.parametrize(
    ("alias", "num_microbatches", "data_parallel", "message"),
    [
        ("mast", 4, 1, "mast has exactly 2 micro-batches, got 4; for more use master"),
        ("hybrid", 4, 1, "hybrid means data_parallel of 2 or more, got 1; use master"),
        ("ddp", 4, 1, "ddp means data_parallel of 2 or more, got 1; use single"),
    ],
)
def test_an_alias_with_other_numbers_than_it_promises_is_refused(alias, num_microbatches, data_parallel, message):
    with pytest.raises(ValueError, match=message):
        resolve_alias(alias, num_microbatches=num_microbatches, data_parallel=data_parallel)


def test_a_recompute_prefix_has_one_entry_per_stage():
    with pytest.raises(ValueError, match=r"recompute prefix \(1,\) .*\bone\b"):
        engine.make_plan("gpipe", num_stages=2, costs=[1.0] * 4, recompute=Recompute(1, prefix=(1,)))


@pytest.mark.parametrize(("strategy", "held"), [("gpipe", ((1, 0),)), ("master", ((2, 0), (3, 2)))])
def test_a_plan_knows_which_stages_a_rank_holds(strategy, held):
    plan = engine.make_plan(strategy, num_stages=3, data_parallel=2, costs=[1.0] * 3)

    assert plan.world_size == plan.placement.num_ranks == 6
    assert plan.placement.held_by(3) == held
