"""Slide-level networks through the engine: the same bits on any ranks, memory as predicted, and exact Cox gradients."""

import copy
from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from tests.distributed.launch import run_ranks
from tests.distributed.problem import fingerprint
from tests.training.models.small_bags import DIMS, SIZES, TARGETS, make_bag, make_batch, make_blocks, make_loss, run
from tests.training.models.test_cox_efron import efron_by_pairs
from training import engine
from training.engine.engine import Engine
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.models.slide_models import SLIDE_MODELS
from training.run.slides.cox import cox_terms, with_gradients

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass(frozen=True)
class Way:
    """One way of training a model for two steps; picklable."""

    name: str
    strategy: str = "single"
    every: int = 0
    precision: Literal["fp32", "bf16"] = "fp32"

    def plan(self, blocks: list[nn.Module]) -> engine.Plan:
        return engine.make_plan(
            self.strategy,
            costs=[1.0] * len(blocks),
            num_stages=1 if self.strategy == "single" else 2,
            num_microbatches=len(SIZES),
            recompute=engine.Recompute(self.every),
            precision=self.precision,
            clip_norm=1.0,
            make_optimizer=lambda named: torch.optim.AdamW(named, lr=1e-2),
        )


@dataclass(frozen=True)
class Trained:
    losses: tuple[tuple[float, ...], ...]
    state: dict[str, str]
    outputs: tuple[str, ...]
    peak_bytes: int
    left_bytes: int


def train(ranks: Ranks | None, ways: list[Way]) -> list[Trained]:
    """Train each way in turn; a task for `run_ranks`."""
    return [_train(ranks, way) for way in ways]


def _train(ranks: Ranks | None, way: Way) -> Trained:
    blocks = make_blocks(way.name)
    trained = Engine(blocks, way.plan(blocks), ranks=ranks, count_bytes=True)
    losses = tuple(trained.train_step(make_batch(seed=step), make_loss(way.name)).losses for step in range(2))
    peak_bytes, left_bytes = trained.live_bytes.peak, trained.live_bytes.now
    outputs = tuple(map(fingerprint, trained.forward_only(make_batch())))
    state = {name: fingerprint(tensor) for name, tensor in trained.full_state_dict().items()}
    return Trained(losses, state, outputs, peak_bytes, left_bytes)


def predicted_bytes(way: Way) -> list[int]:
    blocks = make_blocks(way.name)
    return [rank.peak_bytes for rank in predict_memory(blocks, make_loss(way.name), make_batch(), way.plan(blocks))]


PREDICTED = {"abmil", "transformer"}
"""Models whose memory is predicted in every way."""


def test_two_ranks_train_every_model_to_the_bits_of_one_process_in_the_memory_predicted():
    ways = [Way(name, strategy, every) for name in SLIDE_MODELS for strategy, every in (("master", 1), ("1f1b", 0))]
    ways += [Way("transformer", "master", 0, "bf16")]

    by_rank = run_ranks(2, train, ways)

    for index, way in enumerate(ways):
        (alone,) = train(None, [Way(way.name, precision=way.precision)])
        on_ranks = [outcomes[index] for outcomes in by_rank]
        for rank in on_ranks:
            assert (rank.losses, rank.state, rank.outputs) == (alone.losses, alone.state, alone.outputs), way
        assert [rank.left_bytes for rank in on_ranks] == [0, 0], way
        if way.name in PREDICTED:
            assert [rank.peak_bytes for rank in on_ranks] == predicted_bytes(way), way


ALONE = [Way(name, "single", every, precision) for name in sorted(PREDICTED) for every in (0, 1)
         for precision in ("fp32", "bf16")]  # fmt: skip
OTHERS = [Way("mean"), Way("max", every=1), Way("clam", precision="bf16"), Way("transmil")]


@pytest.mark.parametrize("way", [*ALONE, *OTHERS], ids=str)
def test_one_process_keeps_what_was_predicted(way):
    (trained,) = train(None, [way])

    assert ([trained.peak_bytes], trained.left_bytes) == (predicted_bytes(way), 0)


def test_a_bag_of_n_samples_is_predicted_too():
    """Given as (n, dims + 2), without the leading 1."""
    batch = engine.TensorBatch(tuple((inputs[0], targets) for inputs, targets in make_batch().parts))
    blocks = make_blocks("transformer")
    plan = Way("transformer", every=1).plan(blocks)
    trained = Engine(blocks, plan, count_bytes=True)
    for _ in range(2):
        trained.train_step(batch, make_loss("transformer"))

    (rank,) = predict_memory(blocks, make_loss("transformer"), batch, plan)
    assert trained.live_bytes.peak == rank.peak_bytes


NAN = float("nan")
PATIENTS = [(12, 0.0, 5.0, 1.0), (7, NAN, 3.0, 1.0), (31, 2.0, 3.0, 1.0), (3, 1.0, NAN, NAN), (18, 1.0, 4.0, 0.0),
            (9, 2.0, 3.0, 0.0)]  # fmt: skip
"""Tiles, class, time and event of each patient, with ties and missing values."""


def test_training_bag_by_bag_equals_one_graph_over_all_bags():
    """Two steps on a Cox loss, which couples all patients, beside a cross-entropy."""
    bags = [make_bag(row[0], seed=index) for index, row in enumerate(PATIENTS)]
    classes_n, times_n, events_n = torch.tensor([row[1:] for row in PATIENTS]).T
    blocks = make_blocks("abmil")
    together = nn.Sequential(*copy.deepcopy(blocks))
    plan = engine.make_plan(
        "single",
        costs=[1.0] * len(blocks),
        num_microbatches=len(bags),
        recompute=engine.Recompute(1),
        make_optimizer=lambda named: torch.optim.SGD(named, lr=0.1),
    )
    trained = Engine(blocks, plan)
    optimizer = torch.optim.SGD(together.parameters(), lr=0.1)

    for _ in range(2):
        before = [weight.detach().clone() for weight in together.parameters()]
        _step_bag_by_bag(trained, bags, classes_n, times_n, events_n)
        optimizer.zero_grad()
        _coupled_loss(together, bags, classes_n, times_n, events_n).backward()
        optimizer.step()

        for mine, theirs in zip(trained.full_state_dict().values(), together.state_dict().values(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
        moved = [(a - b).abs().max() for a, b in zip(before, together.parameters(), strict=True)]
        assert min(moved) > 1e-6


def _step_bag_by_bag(trained: Engine, bags: list[Tensor], classes_n: Tensor, times_n: Tensor, events_n: Tensor) -> None:
    """As the trainer does it."""
    inputs = [bag[None] for bag in bags]
    values_nc = torch.stack([classes_n, times_n, events_n], dim=1).double().numpy()
    unknown = torch.full((1, 3), NAN)
    outputs = trained.forward_only(engine.TensorBatch(tuple((bag, unknown) for bag in inputs)))
    given_nc, _ = with_gradients(cox_terms(TARGETS), outputs, values_nc)
    parts = tuple(zip(inputs, torch.from_numpy(given_nc).split(1), strict=True))
    trained.train_step(engine.TensorBatch(parts), make_loss("abmil"))


def _coupled_loss(
    network: nn.Module, bags: list[Tensor], classes_n: Tensor, times_n: Tensor, events_n: Tensor
) -> Tensor:
    outputs_no = torch.cat([network(bag) for bag in bags])
    has_time_n, has_class_n = ~times_n.isnan(), ~classes_n.isnan()
    cox = efron_by_pairs(outputs_no[has_time_n, 3].double(), times_n[has_time_n], events_n[has_time_n])
    weights_k = torch.tensor(TARGETS[0].class_weights)
    cross_entropy = nn.functional.cross_entropy(
        outputs_no[has_class_n, :3], classes_n[has_class_n].long(), weights_k, reduction="sum"
    )
    return TARGETS[1].weight * cox.float() + cross_entropy / len(bags)


def test_a_bag_without_any_target_trains_nothing_but_is_no_error():
    blocks = make_blocks("clam")
    before = {name: tensor.clone() for name, tensor in nn.Sequential(*blocks).state_dict().items()}
    plan = engine.make_plan("single", costs=[1.0] * len(blocks))
    trained = Engine(blocks, plan)

    result = trained.train_step(engine.TensorBatch(((make_bag(7)[None], torch.full((1, 3), NAN)),)), make_loss("clam"))

    assert (result.loss, result.gradient_norm) == (0.0, 0.0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trained.full_state_dict().items())


def test_each_target_trains_its_own_outputs_only():
    blocks = make_blocks("mean")
    output_1o = run(blocks, make_bag(5, dims=DIMS))
    loss = make_loss("mean")

    (gradient_1o,) = torch.autograd.grad(loss(output_1o, torch.tensor([[NAN, 0.5, 0.0]])), output_1o)

    assert gradient_1o.tolist() == [[0, 0, 0, pytest.approx(0.5 * TARGETS[1].weight)]]
