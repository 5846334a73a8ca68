"""Runs of stages in parts, and how far they are from one process; for parts of images and for sub-graphs."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests.distributed.launch import run_ranks
from tests.distributed.problem import (
    Case,
    Outcome,
    StepBatch,
    differences,
    loss_sum,
    make_engine,
    plan_of,
    train,
    train_all,
)
from training.engine.engine import Engine
from training.engine.plan import Plan
from training.engine.ranks import Ranks


def whole_outcomes(ranks: Ranks | None, cases: list[Case]) -> list[Outcome]:
    """As `train_all`, with tensors in place of their fingerprints."""
    return [train(ranks, case, kept) for case in cases]


def kept(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    norm_b = float(b.double().norm())
    return float((a.double() - b.double()).norm()) / (norm_b if norm_b > 1e-9 else 1.0)


def farthest(outcome: Outcome, single: Outcome) -> float:
    """The largest relative distance of a gradient, weight, buffer, loss or output."""
    pairs = [(mine, single.state[name]) for name, mine in outcome.state.items() if mine.is_floating_point()]
    for step, gradients in enumerate(outcome.gradients):
        pairs += [(mine, single.gradients[step][name]) for name, mine in gradients.items()]
    pairs += zip(outcome.outputs, single.outputs, strict=True)
    losses = zip(torch.tensor(sum(outcome.losses, ())), torch.tensor(sum(single.losses, ())), strict=True)
    return max(distance(mine, theirs) for mine, theirs in [*pairs, *losses])


def check_bits_and_numbers(num_ranks: int, cases: list[Case]) -> None:
    """Train on ranks: the bits of virtual parts, where stages have as many, and the numbers of the whole network."""
    alike = [case for case in cases if len(set(case.parts)) == 1]
    doubles = [replace(case, double=True) for case in cases]
    by_rank = run_ranks(num_ranks, _train_both, alike, doubles)

    for index, case in enumerate(alike):
        virtual = train(None, case.as_single)
        assert differences([bits[index] for bits, _ in by_rank], virtual) == [], case
    for index, case in enumerate(doubles):
        whole = train(None, case.whole, kept)
        assert max(farthest(numbers[index], whole) for _, numbers in by_rank) < 1e-12, case


def _train_both(ranks: Ranks, alike: list[Case], doubles: list[Case]) -> tuple[list[Outcome], list[Outcome]]:
    return train_all(ranks, alike), whole_outcomes(ranks, doubles)


def live_bytes(ranks: Ranks, cases: list[Case]) -> list[list[int]]:
    """Peak of live bytes by rank, of the second step of each case."""
    peaks = []
    for case in cases:
        engine = Engine(case.network(), make_engine(ranks, case).plan, ranks=ranks, count_bytes=True)
        for _ in range(2):
            engine.train_step(StepBatch(case, 0), loss_sum)
        peaks.append(engine.peak_bytes()["live"])
    return peaks


def engine_plan(case: Case) -> Plan:
    """The plan of a case, without ranks."""
    return plan_of(case, len(case.network()))
