"""Live bytes predicted without running equal those counted in a real step exactly."""

import resource
import time
from collections.abc import Iterable
from itertools import pairwise, product
from typing import Any
from unittest import mock

import pytest
import torch

from tests.distributed.launch import run_ranks
from tests.distributed.pairwise import cover
from tests.training.engine.small_networks import NETWORKS, loss, make_batch, make_blocks, plan_of
from training import engine
from training.engine.engine import Engine
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES
from training.models.resnet_v2 import resnet_v2_blocks

pytestmark = pytest.mark.usefixtures("one_thread")

RECOMPUTE = {
    "keep": Recompute(),
    "every block": Recompute(1),
    "every 2": Recompute(2),
    "norm": Recompute(rest="norm"),
    "offload": Recompute(rest="offload"),
}
SMALL_TENSORS_TOO = {"target": "training.engine.saved.LEAST_OFFLOADED_BYTES", "new": 64}
PROVE = pytest.mark.prove
ALL = tuple(name for name in STRATEGIES if name != "single")
Case = dict[str, Any]


def prediction(case: Case) -> list[int]:
    blocks = make_blocks(case["network"])
    with mock.patch(**SMALL_TENSORS_TOO):
        ranks = predict_memory(blocks, loss, _batch(case), plan_of(blocks, **case["plan"]))
    return [rank.peak_bytes for rank in ranks]


def measured(ranks: Ranks | None, cases: list[Case]) -> list[tuple[int, int]]:
    """Peak bytes of the second step, and bytes alive afterwards; a task for `run_ranks`."""
    peaks = []
    for case in cases:
        blocks = make_blocks(case["network"])
        one = Engine(blocks, plan_of(blocks, **case["plan"]), ranks=ranks, count_bytes=True)
        with mock.patch(**SMALL_TENSORS_TOO):
            for _ in range(2):
                one.train_step(_batch(case), loss)
        peaks.append((one.live_bytes.peak, one.live_bytes.now))
    return peaks


def _batch(case: Case) -> engine.TensorBatch:
    return make_batch(case["microbatches"], last=case.get("last"))


def differences(num_ranks: int, cases: list[Case]) -> list[str]:
    """Cases in which a rank of the first group measured other bytes than predicted."""
    by_rank = run_ranks(num_ranks, measured, cases) if num_ranks > 1 else [measured(None, cases)]
    wrong = []
    for index, case in enumerate(cases):
        predicted = prediction(case)
        peaks = [by_rank[rank][index] for rank in range(len(predicted))]
        if [(peak, 0) for peak in predicted] != peaks:
            wrong.append(f"{case}: predicted {predicted}, measured (peak, afterwards) {peaks}")
    return wrong


ALONE = {
    "network": ("resnet", "relu-chain", "unet"),
    "recompute": tuple(RECOMPUTE.values()),
    "precision": ("fp32", "bf16"),
    "channels_last": (False, True),
    "strategy": ("single", "gpipe"),
}


@pytest.mark.parametrize(
    "combinations",
    [
        pytest.param(cover(ALONE, lambda _: True), id="every two choices"),
        pytest.param([dict(zip(ALONE, one, strict=True)) for one in product(*ALONE.values())], id="all", marks=PROVE),
    ],
)
def test_one_rank_keeps_what_was_predicted(combinations):
    plans = [{**chosen, "num_microbatches": 2} for chosen in combinations]
    cases = [{"network": plan.pop("network"), "microbatches": 2, "last": 1, "plan": plan} for plan in plans]

    assert differences(1, cases) == []


@pytest.mark.parametrize("network", sorted(NETWORKS.keys() - {"resnet", "relu-chain", "unet"}))
def test_so_does_every_other_network(network):
    cases = [
        {"network": network, "microbatches": 1, "plan": {"strategy": "single", "recompute": r}}
        for r in RECOMPUTE.values()
    ]

    assert differences(1, cases) == []


PREFIXES = [Recompute(1, prefix=(2,), rest=rest) for rest in ("keep", "norm", "offload")]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("network", ["norms", "shared"])
def test_statistics_and_weights_are_predicted_as_each_precision_keeps_them(network, precision):
    """Statistics of a normalisation stay in fp32, and a weight that is used twice is cast once."""
    plan = {"strategy": "single", "precision": precision}
    ways = (*RECOMPUTE.values(), *PREFIXES)
    cases = [{"network": network, "microbatches": 1, "plan": {**plan, "recompute": r}} for r in ways]

    assert differences(1, cases) == []


@pytest.mark.parametrize("strategy", ["mp-basic", "master", "1f1b"])
def test_so_does_every_other_strategy_with_a_single_stage(strategy):
    plan = {"strategy": strategy, "num_microbatches": 3, "recompute": Recompute(1)}

    assert differences(1, [{"network": "relu-chain", "microbatches": 3, "plan": plan}]) == []


def _cases(num_stages: int, strategies: tuple[str, ...], ways: Iterable[Recompute]) -> list[Case]:
    """Every strategy with every recomputation; networks, memory formats, precisions and counts alternate."""
    networks = ("relu-chain", "unet", "resnet", "integers", "relu-chain")
    cases = []
    for turn, (strategy, recompute) in enumerate(product(strategies, ways)):
        plan = {
            "strategy": strategy,
            "num_stages": num_stages,
            "num_microbatches": 4,
            "recompute": recompute,
            "channels_last": turn % 2 == 0,
            "precision": ("fp32", "bf16")[turn % 3 == 0],
        }
        microbatches = (4, 5, 6)[turn % 3]
        cases.append({"network": networks[turn % 5], "microbatches": microbatches, "last": 1, "plan": plan})
    return cases


def test_two_ranks_keep_what_was_predicted():
    groups = [
        {"network": "resnet", "microbatches": 6, "plan": {"num_microbatches": 3, "data_parallel": 2}},
        {
            "network": "unet",
            "microbatches": 4,
            "plan": {"num_microbatches": 2, "data_parallel": 2, "recompute": Recompute(1)},
        },
    ]

    assert differences(2, [*_cases(2, ALL, (*RECOMPUTE.values(), Recompute(1, prefix=(1, 1)))), *groups]) == []


def test_three_ranks_keep_what_was_predicted():
    """With an odd number, the middle rank of master holds two copies of one stage."""
    assert differences(3, _cases(3, ("master", "gpipe", "1f1b"), (Recompute(), Recompute(1)))) == []


GROUPS = {"layout": ((4, 1), (2, 2)), "strategy": ALL, "recompute": (Recompute(), Recompute(1))}


@pytest.mark.parametrize(
    "combinations",
    [
        pytest.param(cover(GROUPS, lambda _: True), id="every two choices"),
        pytest.param([dict(zip(GROUPS, one, strict=True)) for one in product(*GROUPS.values())], id="all", marks=PROVE),
    ],
)
def test_four_ranks_keep_what_was_predicted(combinations):
    cases = [
        {
            "network": "resnet",
            "microbatches": 4 * chosen["layout"][1] + 1,
            "last": 1,
            "plan": {
                "strategy": chosen["strategy"],
                "num_stages": chosen["layout"][0],
                "num_microbatches": 4,
                "data_parallel": chosen["layout"][1],
                "recompute": chosen["recompute"],
            },
        }
        for chosen in combinations
    ]

    assert differences(4, cases) == []


def peaks_by_microbatches(strategy: str, num_stages: int, counts: tuple[int, ...], **options: Any) -> list[list[int]]:
    plan = {"strategy": strategy, "num_stages": num_stages, **options}
    return [
        prediction({"network": "relu-chain", "microbatches": n, "plan": {**plan, "num_microbatches": n}})
        for n in counts
    ]


@pytest.mark.parametrize("most", [8, pytest.param(16, marks=PROVE)])
@pytest.mark.parametrize("recompute", [Recompute(), Recompute(1)], ids=["keep", "recompute"])
@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("strategy", ["mp-basic", "master"])
def test_the_peak_does_not_depend_on_the_number_of_microbatches(strategy, num_stages, recompute, most):
    """The promise of GEMS: the batch grows with N at constant memory.

    From five micro-batches on: with fewer, neither replica has a third one that may arrive early on every rank.
    """
    two, four, five, six, many = peaks_by_microbatches(strategy, num_stages, (2, 4, 5, 6, most), recompute=recompute)

    assert five == six == many
    for peaks in (two, four):
        assert all(fewer <= more for fewer, more in zip(peaks, five, strict=True))


@pytest.mark.parametrize("num_stages", [2, 4])
def test_gpipe_grows_by_the_same_bytes_with_every_microbatch(num_stages):
    peaks = peaks_by_microbatches("gpipe", num_stages, (4, 5, 6, 7))

    for rank in range(num_stages):
        steps = {after[rank] - before[rank] for before, after in pairwise(peaks)}
        assert len(steps) == 1
        assert steps.pop() > 0


def test_a_forward_that_is_repeated_keeps_the_inputs_of_its_blocks_only():
    blocks, batch = make_blocks("resnet"), make_batch(4)
    plan = plan_of(blocks, "gpipe", num_stages=2, num_microbatches=4, recompute=Recompute(1))

    rank = predict_memory(blocks, loss, batch, plan)[0]

    costs = engine.block_costs(blocks, batch.shapes[0])
    inputs = sum(cost.input_bytes for cost in costs[: plan.cuts[0]])
    assert rank.after_bytes[2] - rank.after_bytes[1] == inputs


@pytest.mark.parametrize("most", [12, pytest.param(16, marks=PROVE)])
@pytest.mark.parametrize("strategy", ["1f1b", "chimera"])
def test_1f1b_and_chimera_stop_growing(strategy, most):
    two, eight, many = peaks_by_microbatches(strategy, 4, (2, 8, most))

    assert eight == many
    assert max(two) < max(eight)


def test_a_memory_limit_lets_master_hold_a_batch_that_one_rank_cannot():
    blocks, batch = make_blocks("resnet"), make_batch(8)
    whole = plan_of(blocks, num_microbatches=1)
    all_at_once = engine.TensorBatch(
        ((torch.cat([part[0] for part in batch.parts]), torch.cat([part[1] for part in batch.parts])),)
    )
    split = plan_of(blocks, "master", num_stages=2, num_microbatches=8)

    one_rank = predict_memory(blocks, loss, all_at_once, whole)[0].peak_bytes
    assert max(rank.peak_bytes for rank in predict_memory(blocks, loss, batch, split)) < one_rank / 7


@pytest.mark.parametrize("strategy", ["master", "chimera", "gpipe"])
def test_all_is_let_go_of_by_the_end_and_weights_are_told_apart(strategy):
    blocks = make_blocks("relu-chain")
    own = sum(tensor.numel() * 4 for block in blocks for tensor in block.parameters())
    ranks = predict_memory(blocks, loss, make_batch(4), plan_of(blocks, strategy, num_stages=2, num_microbatches=4))

    # One sent boundary may still be in transit while the last actions run; finish() waits for it.
    for rank in ranks:
        assert max(rank.after_bytes) <= rank.peak_bytes
    assert sum(rank.weight_bytes for rank in ranks) == own * (1 if strategy == "gpipe" else 2)


def test_predicting_changes_neither_the_network_nor_the_random_numbers():
    blocks = make_blocks("dropout")
    before = [tensor.clone() for block in blocks for tensor in (*block.parameters(), *block.buffers())]
    state = torch.get_rng_state()

    predict_memory(blocks, loss, make_batch(2), plan_of(blocks, num_microbatches=2, recompute=Recompute(1)))

    after = [tensor for block in blocks for tensor in (*block.parameters(), *block.buffers())]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(before, after, strict=True))
    assert torch.equal(state, torch.get_rng_state())


class _LargeBatch:
    """Batch of 1024 px tiles that are never read."""

    shapes = ((1, 3, 1024, 1024),) * 4

    def inputs(self, microbatch: int) -> torch.Tensor:
        raise AssertionError("the prediction needs no images")

    def targets(self, microbatch: int) -> torch.Tensor:
        return torch.zeros(1, dtype=torch.int64)


def test_resnet110_at_1024_px_is_predicted_without_its_20_gb():
    blocks = resnet_v2_blocks(depth=110, num_classes=2)
    before_kib, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()

    plan = engine.make_plan("master", costs=[1.0] * len(blocks), num_stages=2, num_microbatches=4)
    ranks = predict_memory(blocks, loss, _LargeBatch(), plan)

    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) * 1024
    assert grown_bytes < 500e6
    assert time.perf_counter() - start < 120
    assert 10e9 < max(rank.peak_bytes for rank in ranks) < 20e9


def test_without_outputs_of_norms_resnet110_keeps_about_half():
    blocks = resnet_v2_blocks(depth=110, num_classes=2)

    costs = engine.block_costs(blocks, _LargeBatch.shapes[0])

    assert sum(cost.norm_bytes for cost in costs) <= 0.55 * sum(cost.saved_bytes for cost in costs)
