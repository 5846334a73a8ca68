"""Sub-graphs on several ranks: the bits of virtual ones, the numbers of the plain network, the predicted bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch

from tests.distributed.launch import run_ranks
from tests.distributed.networks import branching_network, small_resnet
from tests.distributed.pairwise import cover
from tests.distributed.part_cases import HOW, case_of
from tests.distributed.part_runs import check_bits_and_numbers, engine_plan, farthest, kept, live_bytes
from tests.distributed.problem import Case, StepBatch, evenly, loss_sum, make_engine, train
from training.engine.cutting import Cutting
from training.engine.engine import Engine
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.parallel import branches
from training.parallel.sums import sums_of

pytestmark = pytest.mark.usefixtures("one_thread")

FACTORS: Mapping[str, tuple[Any, ...]] = {
    "layout": (
        ("single", 1, (2,)), ("single", 1, (3,)), ("single", 2, (2,)), ("master", 1, (2, 2)), ("1f1b", 1, (2, 1)),
        ("gpipe", 1, (1, 3)), ("1f1b", 1, (2, 2)), ("gpipe", 1, (3, 1)),
    ),
    **HOW,
}  # fmt: skip
CASES = [case_of(split="branches", network=branching_network, **chosen) for chosen in cover(FACTORS, lambda _: True)]
TWO = case_of(layout=("single", 1, (2,)), split="branches", network=branching_network, batches=evenly(2))


@pytest.mark.parametrize("num_ranks", [4, 3, 2])
def test_sub_graphs_on_ranks_give_the_bits_of_virtual_ones_and_the_numbers_of_the_plain_network(num_ranks):
    check_bits_and_numbers(num_ranks, [case for case in CASES if case.num_ranks == num_ranks])


@pytest.mark.parametrize(("strategy", "parts"), [("single", (3,)), ("1f1b", (2, 2)), ("gpipe", (2, 1))])
def test_live_bytes_and_weights_of_each_sub_graph_are_those_predicted_to_the_byte(strategy, parts):
    cases = [
        replace(TWO, strategy=strategy, num_stages=len(parts), parts=parts, split=("branches",) * len(parts),
                recompute=recompute, batches=evenly(3))
        for recompute in (Recompute(), Recompute(1))
    ]  # fmt: skip
    measured = run_ranks(cases[0].num_ranks, bytes_of, cases)

    for index, case in enumerate(cases):
        predicted = predict_memory(case.network(), loss_sum, StepBatch(case, 0), engine_plan(case))
        assert [own[index] for own in measured] == [(rank.peak_bytes, rank.weight_bytes) for rank in predicted], case


def bytes_of(ranks: Ranks, cases: list[Case]) -> list[tuple[int, int]]:
    """Peak of live bytes in a step of each case on this rank, and the bytes of its weights and buffers."""
    found = []
    for case, peaks in zip(cases, live_bytes(ranks, cases), strict=True):
        engine = make_engine(ranks, case)
        held = [tensor for copy in engine._copies.values() for tensor in _weights_and_buffers(copy.module)]
        found.append((peaks[ranks.rank], sum(tensor.nbytes for tensor in held)))
    return found


def _weights_and_buffers(module: torch.nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def test_a_rank_has_and_updates_the_branches_of_its_part_alone():
    by_rank = run_ranks(2, names_of, TWO)

    whole = set(torch.nn.Sequential(*branching_network()).state_dict())
    branched = {name for name in whole if ".heads." in name or ".towers." in name}
    held, owned, provided = (list(names) for names in zip(*by_rank, strict=True))
    assert held[0] | held[1] == whole
    assert held[0] & held[1] == whole - branched
    assert not owned[0] & owned[1]
    assert not provided[0] & provided[1]  # what is averaged over steps and saved
    assert provided[0] | provided[1] == whole


def names_of(ranks: Ranks, case: Case) -> tuple[set[str], set[str], set[str]]:
    engine = make_engine(ranks, case)
    (copy,) = engine._copies.values()
    (sync,) = engine._stages.values()
    return set(copy.module.state_dict()), set(sync.owned), set(engine.own_state())


def test_what_two_sub_graphs_have_learnt_goes_on_in_three_and_in_the_plain_network():
    saved = run_ranks(2, learn, TWO, None)[0]
    three = run_ranks(3, learn, replace(TWO, parts=(3,)), saved)[0]
    plain = learn(None, TWO.whole, saved)
    two = run_ranks(2, learn, TWO, saved)[0]

    for states in (three, plain):
        for mine, theirs in zip(states, two, strict=True):
            assert mine.keys() == theirs.keys()
            for name, tensor in mine.items():
                torch.testing.assert_close(tensor, theirs[name], rtol=1e-4, atol=1e-5, msg=name)


def test_blocks_that_another_engine_has_taken_over_are_refused():
    assert run_ranks(2, take_over_twice, TWO) == ["build the network again"] * 2


def take_over_twice(ranks: Ranks, case: Case) -> str:
    blocks, plan = case.network(), make_engine(ranks, case).plan
    Engine(blocks, plan, ranks=ranks)
    try:
        Engine(blocks, plan, ranks=ranks)
    except ValueError as error:
        return str(error).rpartition("; ")[2]
    return ""


def learn(ranks: Ranks | None, case: Case, saved: tuple[dict, dict] | None) -> tuple[dict, dict]:
    """State of the network and of its optimizer after a step from a saved state."""
    engine = make_engine(ranks, case)
    if saved is not None:
        engine.load_full_state_dict(saved[0])
        engine.load_full_optimizer_state(saved[1])
        engine.steps_done = 1
    engine.train_step(StepBatch(case, engine.steps_done), loss_sum)
    return engine.full_state_dict(), engine.full_optimizer_state()


@pytest.mark.parametrize(("num_parts", "words"), [(4, "3 branches, too few for 4 sub-graphs")])
def test_more_sub_graphs_than_branches_are_refused(num_parts, words):
    with pytest.raises(ValueError, match=words):
        make_engine(None, replace(TWO, parts=(num_parts,)).as_single)


def test_a_network_without_branches_is_refused():
    with pytest.raises(ValueError, match="no block of a stage in sub-graphs has branches"):
        make_engine(None, replace(TWO, network=small_resnet).as_single)


def test_dropout_of_a_framework_inside_a_branch_is_refused():
    own = torch.nn.Dropout(0.5)
    towers = branches.Branches([own, own])
    with pytest.raises(ValueError, match="use branch_dropout"):
        towers.total(lambda each, x: sum(layer(x) for layer in each.values()), torch.ones(4))


# --- planted faults --------------------------------------------------------------------------------------------------


def without_the_sum(link, terms):
    """Leave out g: each part goes on with its own term."""
    return list(terms)


class _SumForwardOnly(torch.autograd.Function):
    """Leave out f: no sum of the gradients in backward."""

    @staticmethod
    def forward(ctx, link, *terms):
        return tuple(sums_of(link, terms))

    @staticmethod
    def backward(ctx, *gradients):
        return None, *gradients


def without_the_sum_of_gradients(link, terms):
    return list(_SumForwardOnly.apply(link, *terms))


def with_bias_in_each_term(link, terms):
    """Add a bias on every part: it counts P times."""
    return _summed(link, [term + 0.1 for term in terms])


def with_every_part_s_loss(self, output, finish, microbatch):
    """Let every part have the loss: what lies outside branches, such as norms, counts P times."""
    losses = [finish(tensor) for tensor in self.whole_outputs(output, microbatch)]
    return torch.stack(losses).sum()


def with_the_same_dropout(self, number):
    """Draw for the first branch on every part."""
    return _next_seed(self, number % 2)


_summed, _next_seed = branches.summed, branches._Drawing.next_seed
FAULTS = {
    "g left out": (branches, "summed", without_the_sum),
    "f left out": (branches, "summed", without_the_sum_of_gradients),
    "a bias added P times": (branches, "summed", with_bias_in_each_term),
    "norms counted P times": (Cutting, "loss_of", with_every_part_s_loss),
    "the same dropout on all parts": (branches._Drawing, "next_seed", with_the_same_dropout),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(fault):
    case = replace(TWO, double=True, batches=evenly(1))
    plain = train(None, case.whole, kept)
    where, name, wrong = FAULTS[fault]
    with mock.patch.object(where, name, wrong):
        outcome = train(None, case.as_single, kept)
    assert farthest(outcome, plain) > 1e-9
