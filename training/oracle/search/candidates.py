"""Plans that a search asks for and finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from training.engine.partition import BlockCost
from training.engine.placement import Placement
from training.engine.recompute import Recompute
from training.engine.schedule import Schedule
from training.engine.strategies import STRATEGIES
from training.oracle.simulation.costs import Costs, StageCost
from training.parallel.division import Division

Cuts = tuple[int, ...]


@dataclass(frozen=True)
class Request:
    """What is given."""

    blocks: Sequence[BlockCost]
    num_ranks: int
    num_microbatches: int
    """Of the whole step, over all groups."""
    price: Callable[[Sequence[StageCost], Schedule, Placement], Costs]
    """(stages, schedule of one group, placement of all groups) -> costs of one group, with sums over all groups."""
    cap_bytes: float = float("inf")
    """Memory of one rank."""
    optimizer_slots: int = 1
    """Tensors of the size of a weight that the optimizer keeps for it."""
    strategies: Sequence[str] = tuple(STRATEGIES)
    may_recompute: bool = True
    """False for compiled blocks, of which nothing can be recomputed."""
    divided: Mapping[Division, Sequence[BlockCost]] = field(default_factory=dict)
    """Costs of the blocks under divisions into parts that stages may have."""
    price_without_messages: Callable[[Sequence[StageCost], Schedule, Placement], Costs] | None = None
    """As `price`, with messages that take no time: what the fastest plans would gain."""


@dataclass(frozen=True)
class Candidate:
    """A plan, and what it costs."""

    strategy: str
    num_stages: int
    data_parallel: int
    num_microbatches: int
    """Of one group."""
    recompute: Recompute
    cuts: Cuts
    step_s: float
    rank_bytes: int
    """Of the fullest rank: activations, weights, gradients, state of the optimizer."""
    bubble: float
    divisions: tuple[Division, ...] = ()
    """Parts of each stage; empty: one each."""
    communication: float | None = None
    """Share of the step that messages cost; known for the fastest plans."""


@dataclass(frozen=True)
class Excluded:
    """A strategy on S stages and D groups without a plan, and the reason."""

    strategy: str
    num_stages: int
    data_parallel: int
    reason: str
    divisions: tuple[Division, ...] = ()


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    candidates: tuple[Candidate, ...]
    """The fastest of each strategy, S, D and policy, fastest first, but by memory within 1 % of the fastest; from the
    eleventh on, some are left out."""
    excluded: tuple[Excluded, ...]
