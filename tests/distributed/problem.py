"""A small training problem that can be run under any strategy: the ground of the equality tests."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from training.engine.engine import Engine, make_plan
from training.engine.partition import block_costs
from training.engine.ranks import Ranks
from training.models.resnet_v2 import resnet_v2_blocks

SAMPLES = 2
NUM_CLASSES = 3
STEPS = 3
SIZES_HW = ((24, 32), (16, 40), (24, 32))
"""Of the images of each step: not square, and not always the same."""


@dataclass(frozen=True)
class Case:
    """One way of running the problem; picklable, so that it can be sent to other processes."""

    strategy: str
    num_microbatches: int
    precision: str = "fp32"
    channels_last: bool = False
    network: Callable[[], list[nn.Module]] | None = None
    costs: tuple[float, ...] | None = None
    """Where to cut; None balances operations."""

    @property
    def as_single(self) -> "Case":
        return replace(self, strategy="single")


@dataclass
class Outcome:
    """What a rank knows after `STEPS` steps. Tensors go by their unsharded names."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    """Per step, the reduced gradients of the stage that this rank owns."""
    state: dict[str, Tensor] = field(default_factory=dict)
    """Of the whole network, from the owners."""
    mirror: dict[str, Tensor] = field(default_factory=dict)
    """Of the mirrored stage held here, as it lies here."""
    asked_inputs: set[int] = field(default_factory=set)
    asked_labels: set[int] = field(default_factory=set)


def differences(outcomes: list[Outcome], single: Outcome) -> list[str]:
    """Everything in which ranks differ from one process, down to the last bit."""
    found = []
    for rank, outcome in enumerate(outcomes):
        if outcome.losses != single.losses:
            found.append(f"rank {rank}: losses {outcome.losses} instead of {single.losses}")
        if outcome.state.keys() != single.state.keys():
            found.append(f"rank {rank}: names {sorted(outcome.state.keys() ^ single.state.keys())}")
        pairs = {f"weight {name}": (tensor, single.state[name]) for name, tensor in outcome.state.items()}
        pairs |= {f"mirrored weight {name}": (tensor, single.state[name]) for name, tensor in outcome.mirror.items()}
        for step, gradients in enumerate(outcome.gradients):
            expected = single.gradients[step]
            pairs |= {f"gradient {name}, step {step}": (tensor, expected[name]) for name, tensor in gradients.items()}
        found += [f"rank {rank}: {what}" for what, (mine, theirs) in pairs.items() if not torch.equal(mine, theirs)]
    seen = {name for outcome in outcomes for name in outcome.gradients[0]}
    return found + [f"no rank has the gradient {name}" for name in single.gradients[0].keys() - seen]


def images_nchw(step: int, microbatch: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + microbatch)
    return torch.randn(SAMPLES, 3, *SIZES_HW[step], generator=generator)


def labels_n(step: int, microbatch: int) -> Tensor:
    generator = torch.Generator().manual_seed(500_000 + 1000 * step + microbatch)
    return torch.randint(0, NUM_CLASSES, (SAMPLES,), generator=generator)


def small_resnet() -> list[nn.Module]:
    torch.manual_seed(7)
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES)


def group_norm_resnet() -> list[nn.Module]:
    torch.manual_seed(7)
    return resnet_v2_blocks(depth=11, num_classes=NUM_CLASSES, norm="group")


class Fork(nn.Module):
    """Gives a tuple: two branches of different size, and a tensor that needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Conv2d(3, 4, 3, padding=1)
        self.coarse = nn.Conv2d(3, 6, 3, stride=2, padding=1)

    def forward(self, x_nchw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.fine(x_nchw), self.coarse(x_nchw), torch.arange(4.0).view(1, 4, 1, 1)


class Shift(nn.Module):
    """Takes a tuple and gives a tuple; its first output is a view with gaps in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, branches: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        fine_nchw, coarse_nchw, offset = branches
        return (self.norm(fine_nchw) + offset)[..., ::2], coarse_nchw


class Join(nn.Module):
    """Uses both branches."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, NUM_CLASSES)

    def forward(self, branches: tuple[Tensor, Tensor]) -> Tensor:
        return self.head(torch.cat([branch.mean((2, 3)) for branch in branches], dim=1))


def tuple_network() -> list[nn.Module]:
    torch.manual_seed(7)
    return [Fork(), Shift(), Join()]


def make_engine(ranks: Ranks | None, case: Case, gradients: list[dict[str, Tensor]]) -> Engine:
    """Build the case's engine; each update appends the gradients that it is given."""
    blocks = (case.network or small_resnet)()
    names = {id(weight): name for name, weight in nn.Sequential(*blocks).named_parameters()}
    costs = case.costs or [cost.flops for cost in block_costs(small_resnet(), (SAMPLES, 3, *SIZES_HW[0]))]
    return Engine(
        blocks,
        plan=make_plan(
            case.strategy,
            num_stages=1 if ranks is None else ranks.num_ranks,
            num_microbatches=case.num_microbatches,
            costs=costs,
        ),
        make_optimizer=lambda weights: _WatchedSGD(list(weights), names, gradients),
        precision=case.precision,  # type: ignore[arg-type]
        channels_last=case.channels_last,
        ranks=ranks,
    )


def train(ranks: Ranks | None, case: Case) -> Outcome:
    """Train `STEPS` steps under one case; a task for `run_ranks`."""
    outcome = Outcome()
    engine = make_engine(ranks, case, outcome.gradients)
    for step in range(STEPS):
        outcome.losses.append(_train_step(engine, step, case, outcome))
    outcome.state = engine.full_state_dict()
    if 1 in engine._copies:
        outcome.mirror = copy.deepcopy(dict(engine._copies[1].module.state_dict()))
    return outcome


def train_all(ranks: Ranks | None, cases: list[Case]) -> list[Outcome]:
    """Run one case after the other in the same processes; a task for `run_ranks`."""
    return [train(ranks, case) for case in cases]


def _train_step(engine: Engine, step: int, case: Case, outcome: Outcome) -> float:
    def inputs(microbatch: int) -> Tensor:
        outcome.asked_inputs.add(microbatch)
        return images_nchw(step, microbatch)

    def loss(logits_nk: Tensor, microbatch: int) -> Tensor:
        outcome.asked_labels.add(microbatch)
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
