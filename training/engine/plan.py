"""Settings that decide how one step is run: strategy, cuts, recomputation, numbers, optimizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

import torch
from torch import Tensor, nn

from training.engine.partition import check_cuts, partition, stage_ranges
from training.engine.placement import Placement
from training.engine.recompute import Recompute
from training.engine.replica_sync import MakeOptimizer
from training.engine.schedule import Schedule
from training.engine.stage import Precision
from training.engine.strategies import build_schedule, check_parts, check_request, place, resolve_alias
from training.foundation.words.counts import counted
from training.parallel.division import Division
from training.parallel.parted import Split


def plain_sgd(weights: list[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """The default optimizer of a plan."""
    return torch.optim.SGD(weights, lr=0.01)


@dataclass(frozen=True, eq=False)
class Plan:
    """Plan for training one network on a number of ranks. Equal on every rank."""

    strategy: str = "single"
    num_stages: int = 1
    """S"""
    num_microbatches: int = 1
    """N, of one group's share of a full batch; any batch may be smaller or larger."""
    data_parallel: int = 1
    """D, groups of S ranks."""
    cuts: tuple[int, ...] = ()
    """Block index at which each stage but the first starts."""
    recompute: Recompute = field(default_factory=Recompute)
    precision: Precision = "fp32"
    """"bf16" and "fp16" run forward and loss under autocast; weights and their gradients stay fp32."""
    channels_last: bool = False
    """Memory format of 4-D weights, inputs and boundaries."""
    clip_norm: float | None = None
    """Largest norm of all gradients together."""
    make_optimizer: MakeOptimizer = plain_sgd
    """Called for each stage that a rank holds, with the names and weights of its share, as torch's take them."""
    seed: int = 0
    """Seed of the random numbers that blocks draw in forward."""
    prefetch: int = 0
    """Inputs that are read ahead, in as many threads."""
    deterministic: bool = True
    """On GPUs: only kernels that give the same bits every time, and full fp32."""
    compiled: bool = False
    """Run each block through torch.compile. All strategies still agree, but not with blocks that are not compiled;
    nothing can be recomputed."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    parts: tuple[int, ...] = ()
    """Parts of each stage, each on a rank of its own; empty: one each."""
    split: tuple[Split, ...] = ()
    """What the parts of each stage share out; empty: rows."""
    virtual_parts: bool = False
    """Whether all parts of a stage are on one rank: the same numbers as on several, bit for bit."""

    def __post_init__(self) -> None:
        check_request(
            self.strategy,
            num_stages=self.num_stages,
            num_microbatches=self.num_microbatches,
            data_parallel=self.data_parallel,
        )
        if len(self.cuts) != self.num_stages - 1:
            cuts = counted(len(self.cuts), "cut makes", "cuts make")
            stages = counted(len(self.cuts) + 1, "stage")
            raise ValueError(f"{cuts} {stages}, not {self.num_stages}")
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {self.precision!r}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm must be above 0, got {self.clip_norm}; use None for no clipping")
        prefix = self.recompute.prefix
        if prefix is not None and len(prefix) != self.num_stages:
            raise ValueError(
                f"recompute prefix {prefix} needs one entry for each of {counted(self.num_stages, 'stage')}"
            )
        if self.parts:
            check_parts(self.strategy, self.parts, self.split, num_stages=self.num_stages, virtual=self.virtual_parts)
        if self.is_in_parts and self.compiled:
            raise ValueError("compiled blocks cannot be in parts: a compiler does not see their messages")
        if self.is_in_parts and self.recompute.rest == "norm":
            raise ValueError(
                'recompute "norm" cannot be used in parts, whose normalisations need each other; use every = 1'
            )
        if self.compiled and (self.recompute.every or self.recompute.rest == "norm"):
            raise ValueError(
                "compiled blocks cannot be recomputed: a compiler fuses a forward without a graph differently from one "
                'with, so its bits differ, and hides the normalisations. Use recompute "none" or "offload"'
            )

    @property
    def is_in_parts(self) -> bool:
        """Whether a stage has more than one part."""
        return max(self.parts, default=1) > 1

    @property
    def group_size(self) -> int:
        """Ranks that together hold the network."""
        return self.num_stages if self.virtual_parts or not self.parts else sum(self.parts)

    @property
    def world_size(self) -> int:
        """Ranks of the run."""
        return self.group_size * self.data_parallel

    def split_of(self, stage: int) -> Split:
        """What the parts of a stage share out."""
        return self.split[stage] if self.split else "rows"

    @property
    def divisions(self) -> tuple[Division, ...]:
        """How each stage is divided."""
        parts = self.parts or (1,) * self.num_stages
        return tuple(
            Division(number, self.split_of(stage) if number > 1 else "rows") for stage, number in enumerate(parts)
        )

    @cached_property
    def placement(self) -> Placement:
        """The rank of each stage of each replica."""
        return place(
            self.strategy,
            num_stages=self.num_stages,
            data_parallel=self.data_parallel,
            parts=self.parts,
            virtual=self.virtual_parts,
        )

    def schedule(self, num_microbatches: int, *, forward_only: bool = False) -> Schedule:
        """The order of work of one step of all groups with so many micro-batches in all."""
        return build_schedule(
            self.strategy,
            num_stages=self.num_stages,
            num_microbatches=num_microbatches,
            data_parallel=self.data_parallel,
            parts=self.parts,
            virtual=self.virtual_parts,
            forward_only=forward_only,
        )

    def place(self, value: Tensor, prepare: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Bring an input to the device, prepare it there, and give it the memory format of the plan."""
        value = value.to(self.device, non_blocking=True)
        value = value if prepare is None else prepare(value)
        channels_last = self.channels_last and value.ndim == 4
        return value.contiguous(memory_format=torch.channels_last) if channels_last else value

    def place_module(self, module: nn.Sequential) -> nn.Sequential:
        """Bring weights and buffers to the device and the memory format of the plan, if they are not yet."""
        tensors = [*module.parameters(), *module.buffers()]
        if not all(_is_on(tensor, self.device) for tensor in tensors):
            module = module.to(self.device)
        formats = [t.is_contiguous(memory_format=torch.channels_last) for t in tensors if t.ndim == 4]
        if self.channels_last and not all(formats):
            # torch's stubs lack `to` with only a memory format.
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return module


def _is_on(tensor: Tensor, device: torch.device) -> bool:
    """Whether a tensor is on a device; "cuda" without an index is any GPU, as in `Tensor.to`."""
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)


def make_plan(
    strategy: str,
    *,
    costs: Sequence[float],
    num_stages: int = 1,
    num_microbatches: int = 1,
    data_parallel: int = 1,
    cuts: Sequence[int] | None = None,
    recompute: Recompute | None = None,
    precision: Precision = "fp32",
    channels_last: bool = False,
    clip_norm: float | None = None,
    make_optimizer: MakeOptimizer = plain_sgd,
    seed: int = 0,
    prefetch: int = 0,
    deterministic: bool = True,
    compiled: bool = False,
    device: torch.device | None = None,
    parts: Sequence[int] = (),
    split: Sequence[Split] = (),
    virtual_parts: bool = False,
) -> Plan:
    """Choose cuts, unless they are given, and check that everything fits.

    Args:
        strategy: a name in `strategies.STRATEGIES`, or an alias.
        costs: one for each block, in the unit to balance (`BlockCost.flops` or `.saved_bytes`).
        num_microbatches: N, of one group.
        cuts: the first block of each stage but the first; None for those that balance the costs.

    Raises:
        ValueError: the numbers do not fit the strategy, there are fewer blocks than stages, cuts that leave a stage
            without blocks, or a recompute prefix is longer than its stage.
    """
    name = resolve_alias(strategy, num_microbatches=num_microbatches, data_parallel=data_parallel)
    check_request(name, num_stages=num_stages, num_microbatches=num_microbatches, data_parallel=data_parallel)
    if cuts is not None:
        check_cuts(cuts, num_stages)
    plan = Plan(
        name,
        num_stages,
        num_microbatches,
        data_parallel,
        partition(costs, num_stages) if cuts is None else tuple(cuts),
        recompute or Recompute(),
        precision,
        channels_last,
        clip_norm,
        make_optimizer,
        seed,
        prefetch,
        deterministic,
        compiled,
        device or torch.device("cpu"),
        tuple(parts),
        tuple(split),
        virtual_parts,
    )
    for stage, blocks in enumerate(stage_ranges(plan.cuts, len(costs))):
        plan.recompute.segments(stage, len(blocks))
    return plan
