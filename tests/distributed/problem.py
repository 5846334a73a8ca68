"""A small training problem, run under any strategy: the ground of the equality tests."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from training.engine.engine import Engine, make_plan
from training.engine.partition import block_costs
from training.engine.ranks import Ranks
from training.models.resnet_v2 import resnet_v2_blocks

SAMPLES = 2
"""Samples per micro-batch: BatchNorm of the last level needs more than one value per channel."""
HEIGHT, WIDTH = 24, 32
STEPS = 3


@dataclass(frozen=True)
class Case:
    """One way of running the problem; picklable, so that it can be sent to other processes."""

    strategy: str
    num_microbatches: int
    precision: str = "fp32"
    channels_last: bool = False
    norm: str = "batch"
    cuts_by: str = "flops"
    network: Callable[[str], list[nn.Module]] | None = None

    def as_single(self) -> "Case":
        return Case(
            "single", self.num_microbatches, self.precision, self.channels_last, self.norm, network=self.network
        )


@dataclass
class Outcome:
    """What a rank knows after `STEPS` steps."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    """Per step, by unsharded name: the reduced gradients of the stage that this rank owns."""
    state: dict[str, Tensor] = field(default_factory=dict)
    mirror: dict[str, Tensor] = field(default_factory=dict)
    """State of the mirrored stage held here."""
    asked_inputs: list[int] = field(default_factory=list)
    asked_labels: list[int] = field(default_factory=list)


def images_nchw(step: int, microbatch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + microbatch)
    return torch.randn(SAMPLES, 3, HEIGHT, WIDTH, generator=generator)


def labels_n(step: int, microbatch: int) -> Tensor:
    generator = torch.Generator().manual_seed(500_000 + 1000 * step + microbatch)
    return torch.randint(0, 3, (SAMPLES,), generator=generator)


def small_resnet(norm: str = "batch") -> list[nn.Module]:
    torch.manual_seed(7)
    return resnet_v2_blocks(depth=11, num_classes=3, norm=norm)


def train(ranks: Ranks | None, case: Case) -> Outcome:
    """Train `STEPS` steps under one case; a task for `run_ranks`."""
    torch.use_deterministic_algorithms(True)
    blocks = (case.network or small_resnet)(case.norm)
    names = {id(weight): name for name, weight in nn.Sequential(*blocks).named_parameters()}
    num_stages = 1 if ranks is None else ranks.num_ranks
    costs = block_costs(blocks, (SAMPLES, 3, HEIGHT, WIDTH))
    plan = make_plan(
        case.strategy,
        num_stages=num_stages,
        num_microbatches=case.num_microbatches,
        costs=[getattr(cost, case.cuts_by) for cost in costs],
    )
    outcome = Outcome()
    engine = Engine(
        blocks,
        plan=plan,
        make_optimizer=lambda weights: _WatchedSGD(list(weights), names, outcome.gradients),
        precision=case.precision,  # type: ignore[arg-type]
        channels_last=case.channels_last,
        ranks=ranks,
    )
    for step in range(STEPS):
        outcome.losses.append(_train_step(engine, step, case, outcome))
    outcome.state = engine.full_state_dict()
    if 1 in engine._copies:
        outcome.mirror = copy.deepcopy(dict(engine._copies[1].module.state_dict()))
    return outcome


def _train_step(engine: Engine, step: int, case: Case, outcome: Outcome) -> float:
    def inputs(microbatch: int) -> Tensor:
        outcome.asked_inputs.append(microbatch)
        return images_nchw(step, microbatch)

    def loss(logits_nk: Tensor, microbatch: int) -> Tensor:
        outcome.asked_labels.append(microbatch)
        total = nn.functional.cross_entropy(logits_nk.float(), labels_n(step, microbatch), reduction="sum")
        return total / (case.num_microbatches * SAMPLES)

    return engine.train_step(inputs, loss)


class _WatchedSGD(torch.optim.SGD):
    """SGD that notes the gradients it is given."""

    def __init__(self, weights: list[nn.Parameter], names: dict[int, str], seen: list[dict[str, Tensor]]):
        super().__init__(weights, lr=0.05, momentum=0.9, weight_decay=1e-2)
        self._names = names
        self._seen = seen

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        weights = [weight for group in self.param_groups for weight in group["params"]]
        self._seen.append({self._names[id(weight)]: weight.grad.clone() for weight in weights})
        super().step()


def train_all(ranks: Ranks | None, cases: list[Case]) -> list[Outcome]:
    """Run one case after the other in the same processes."""
    return [train(ranks, case) for case in cases]
