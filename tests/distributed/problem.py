"""A small training problem that can be run under any strategy: the basis of the equality tests."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from unittest import mock

import torch
from torch import Tensor, nn

from tests.distributed.networks import NUM_CLASSES, small_resnet
from tests.distributed.strict import StrictWire
from training.engine.engine import Engine
from training.engine.plan import Plan, make_plan
from training.engine.ranks import Ranks
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES
from training.parallel.parted import Split

SIZES_HW = ((12, 16), (8, 20), (12, 16))
"""Image sizes per step: not square, and not always the same."""
STEPS = len(SIZES_HW)
NOT_RECOMPUTED = Recompute()


@dataclass(frozen=True)
class Case:
    """One way of running the problem; picklable, so that it can be sent to other processes."""

    strategy: str
    num_stages: int
    batches: tuple[tuple[int, ...], ...]
    """Samples of each micro-batch of the whole step, for each step."""
    data_parallel: int = 1
    recompute: Recompute = NOT_RECOMPUTED
    channels_last: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"
    clip_norm: float | None = None
    compiled: bool = False
    network: Callable[[], list[nn.Module]] = small_resnet
    costs: tuple[float, ...] | None = None
    """Costs of the blocks, which decide the cuts; None: all equal."""
    mixed_shapes: bool = False
    """Neighbouring micro-batches differ in shape."""
    then_infer: bool = False
    """Whether to return the outputs for the first batch after training."""
    strict: bool = False
    """Whether to use a wire with the weakest guarantees (strict.py)."""
    parts: tuple[int, ...] = ()
    split: tuple[Split, ...] = ()
    virtual_parts: bool = False
    double: bool = False
    """Whether weights and images are float64."""

    @property
    def num_ranks(self) -> int:
        return (sum(self.parts) if self.parts and not self.virtual_parts else self.num_stages) * self.data_parallel

    @property
    def as_single(self) -> "Case":
        """The same work in one process: cuts and recomputation must not matter. Parts, all alike, become virtual."""
        return replace(
            self, strategy="single", num_stages=1, data_parallel=1, recompute=NOT_RECOMPUTED, costs=None, strict=False,
            parts=self.parts[:1], split=self.split[:1], virtual_parts=bool(self.parts),
        )  # fmt: skip

    @property
    def whole(self) -> "Case":
        """The same work in one process, which is not in parts."""
        return replace(self.as_single, parts=(), split=(), virtual_parts=False)


def evenly(num_microbatches: int, samples: int = 2) -> tuple[tuple[int, ...], ...]:
    """`Case.batches` with the same number of equal micro-batches in every step."""
    return ((samples,) * num_microbatches,) * STEPS


@dataclass
class Outcome:
    """State of a rank after all steps. Tensors are keyed by their unsharded names."""

    losses: list[tuple[float, ...]] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    gradients: list[dict[str, Any]] = field(default_factory=list)
    """Gradients given to the optimizer in each step, on the rank that owns the stage."""
    state: dict[str, Any] = field(default_factory=dict)
    """Weights and buffers of the whole network, from the owners."""
    copies: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    """The same for each (replica, stage) held here, in its local state."""
    outputs: list[Any] = field(default_factory=list)
    """Outputs in evaluation mode, by micro-batch."""
    asked: list[tuple[str, int, int]] = field(default_factory=list)
    """Requests for ("inputs" or "targets", step, micro-batch), in order."""


def fingerprint(tensor: Tensor) -> str:
    """Hash that is equal for tensors of the same type, shape and bits, whatever their memory layout."""
    numbers = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha1(numbers).hexdigest()}"


def differences(outcomes: list[Outcome], single: Outcome) -> list[str]:
    """All differences between ranks and one process, down to the last bit."""
    lines = []
    for rank, outcome in enumerate(outcomes):
        if outcome.losses != single.losses:
            lines.append(f"rank {rank}: losses {outcome.losses} instead of {single.losses}")
        if outcome.norms != single.norms:
            lines.append(f"rank {rank}: norms {outcome.norms} instead of {single.norms}")
        if outcome.outputs != single.outputs:
            lines.append(f"rank {rank}: outputs in evaluation mode")
        if outcome.state.keys() != single.state.keys():
            lines.append(f"rank {rank}: names {sorted(outcome.state.keys() ^ single.state.keys())}")
        pairs = {f"state {name}": (mine, single.state.get(name)) for name, mine in outcome.state.items()}
        for (replica, _), held in outcome.copies.items():
            what = f"copy of replica {replica}"
            pairs |= {f"{what}: {name}": (mine, single.state.get(name)) for name, mine in held.items()}
        for step, gradients in enumerate(outcome.gradients):
            expected = single.gradients[step]
            pairs |= {f"gradient {name}, step {step}": (mine, expected[name]) for name, mine in gradients.items()}
        lines += [f"rank {rank}: {what}" for what, (mine, theirs) in pairs.items() if mine != theirs]
    for step, expected in enumerate(single.gradients):
        seen = {name for outcome in outcomes if outcome.gradients for name in outcome.gradients[step]}
        lines += [f"no rank has the gradient {name}, step {step}" for name in expected.keys() - seen]
    return lines


def expected_questions(case: Case, rank: int) -> list[tuple[str, int, int]]:
    """Expected requests: only the first rank of a replica needs its images, only the last its labels; once."""
    requests = []
    group, place = divmod(rank, case.num_stages)
    num_directions = 2 if STRATEGIES[case.strategy].is_mirrored else 1
    num_replicas = case.data_parallel * num_directions
    for direction in range(num_directions):
        stage = place if direction == 0 else case.num_stages - 1 - place
        replica = group * num_directions + direction
        for step, batch in enumerate(case.batches):
            own = [k for k in range(len(batch)) if k * num_replicas // len(batch) == replica]
            requests += [("inputs", step, k) for k in own if stage == 0]
            requests += [("targets", step, k) for k in own if stage == case.num_stages - 1]
    return sorted(requests)


class StepBatch:
    """Batch of one step that records every request."""

    def __init__(self, case: Case, step: int, requests: list[tuple[str, int, int]] | None = None):
        self._step = step
        self._is_double = case.double
        self._asked = [] if requests is None else requests
        sizes_hw = [SIZES_HW[(step + k * case.mixed_shapes) % STEPS] for k in range(len(case.batches[step]))]
        self.shapes = [(n, 3, *size_hw) for n, size_hw in zip(case.batches[step], sizes_hw, strict=True)]

    def inputs(self, microbatch: int) -> Tensor:
        self._asked.append(("inputs", self._step, microbatch))
        generator = torch.Generator().manual_seed(1000 * self._step + microbatch)
        images = torch.randn(self.shapes[microbatch], generator=generator)
        return images.double() if self._is_double else images

    def targets(self, microbatch: int) -> Tensor:
        self._asked.append(("targets", self._step, microbatch))
        generator = torch.Generator().manual_seed(500_000 + 1000 * self._step + microbatch)
        return torch.randint(0, NUM_CLASSES, self.shapes[microbatch][:1], generator=generator)


def loss_sum(output: Tensor, labels_n: Tensor) -> Tensor:
    """Cross-entropy summed over the samples."""
    logits_nk = output.mean((2, 3)) if output.ndim == 4 else output
    wide = logits_nk if logits_nk.dtype == torch.float64 else logits_nk.float()
    return nn.functional.cross_entropy(wide, labels_n, reduction="sum")


Note = Callable[[Tensor], Any]


def make_engine(
    ranks: Ranks | None, case: Case, gradients: list[dict[str, Any]] | None = None, note: Note = torch.clone
) -> Engine:
    """Build the case's engine; every update records its gradients."""
    blocks = [block.double() for block in case.network()] if case.double else case.network()
    engine = Engine(blocks, plan_of(case, len(blocks), gradients, note), ranks=ranks)
    if case.strict and ranks is not None:
        engine._transport.wire = StrictWire(ranks)
    return engine


def plan_of(
    case: Case, num_blocks: int, gradients: list[dict[str, Any]] | None = None, note: Note = torch.clone
) -> Plan:
    """The case's plan, whose optimizer records gradients."""
    return make_plan(
        case.strategy,
        costs=case.costs or [1.0] * num_blocks,
        num_stages=case.num_stages,
        num_microbatches=max(1, len(case.batches[0]) // case.data_parallel),
        data_parallel=case.data_parallel,
        recompute=case.recompute,
        precision=case.precision,
        channels_last=case.channels_last,
        clip_norm=case.clip_norm,
        compiled=case.compiled,
        parts=case.parts,
        split=case.split,
        virtual_parts=case.virtual_parts,
        make_optimizer=lambda named: _WatchedSGD(named, [] if gradients is None else gradients, note),
    )


def train(ranks: Ranks | None, case: Case, note: Note = fingerprint) -> Outcome:
    """Train all steps of a case; a task for `run_ranks`.

    Args:
        note: function applied to every gradient, weight and buffer for the outcome; `torch.clone` keeps it whole.
    """
    with mock.patch("training.engine.saved.LEAST_OFFLOADED_BYTES", 256):
        return _train(ranks, case, note)


def _train(ranks: Ranks | None, case: Case, note: Note) -> Outcome:
    outcome = Outcome()
    engine = make_engine(ranks, case, outcome.gradients, note)
    for step in range(len(case.batches)):
        result = engine.train_step(StepBatch(case, step, outcome.asked), loss_sum)
        outcome.losses.append(result.losses)
        outcome.norms.append(result.gradient_norm)
    if case.then_infer:
        outcome.outputs = [note(output) for output in engine.forward_only(StepBatch(case, 0))]
    outcome.state = {name: note(tensor) for name, tensor in engine.full_state_dict().items()}
    outcome.copies = {
        held: {name: note(tensor) for name, tensor in copy.module.state_dict().items()}
        for held, copy in engine._copies.items()
    }
    return outcome


def train_all(ranks: Ranks | None, cases: list[Case]) -> list[Outcome]:
    """Train the cases one after the other in the same processes; a task for `run_ranks`."""
    return [train(ranks, case) for case in cases]


class _WatchedSGD(torch.optim.SGD):
    """SGD with momentum that records the gradients it is given."""

    def __init__(self, named: list[tuple[str, nn.Parameter]], seen: list[dict[str, Any]], note: Note):
        super().__init__([weight for _, weight in named], lr=0.05, momentum=0.9, weight_decay=1e-2)
        self._named = named
        self._seen = seen
        self._note = note
        self._num_steps = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if len(self._seen) == self._num_steps:  # a rank has one optimizer per stage that it holds
            self._seen.append({})
        self._seen[self._num_steps] |= {name: self._note(weight.grad) for name, weight in self._named}
        self._num_steps += 1
        super().step()
