"""A recipe with its plan, the costs of its blocks, and the memory that its ranks need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from training.engine.executor import Batch, Loss
from training.engine.partition import BlockCost
from training.engine.plan import Plan
from training.engine.predict import RankMemory as PredictedMemory
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.engine.schedule import Schedule
from training.foundation.errors import BadRecipeError, NotCalibratedError
from training.oracle.calibration.block_inputs import Setting
from training.oracle.calibration.machine import Identity, identity_here, load_machine
from training.oracle.clusters.cluster import Cluster
from training.oracle.pricing import Pricing
from training.oracle.search.memory import RankMemory
from training.oracle.simulation.costs import StageCost, plan_stage_costs, stage_costs
from training.oracle.simulation.divided import DividedCosts
from training.parallel.division import WHOLE, Division
from training.recipe.config import Recipe, RunRecipe
from training.recipe.optimisation import cross_entropy, optimizer_slots
from training.recipe.plan import EmptyBatch, blocks_of, costs_of, plan_of

NO_TRANSPORT = "none"
AnyPlanned = TypeVar("AnyPlanned", bound="PlannedRun")


@dataclass(frozen=True, kw_only=True)
class PlannedRun(ABC):
    """A recipe of any kind with its costs."""

    recipe: RunRecipe
    blocks: Sequence[nn.Module]
    divided: DividedCosts
    """Undivided, and under each division of the plan. With measured seconds, if there is a machine."""
    plan: Plan
    machine: Pricing | None = None
    """A measured machine or a cluster; None where neither is known."""
    not_measured: tuple[Division, ...] = ()
    """Divisions that a search would have tried."""

    @property
    def costs(self) -> list[BlockCost]:
        """Of the blocks, undivided."""
        return self.divided[WHOLE]

    @cached_property
    def stage_costs(self) -> list[StageCost]:
        return plan_stage_costs(self.plan, self.divided)

    @cached_property
    def undivided_stage_costs(self) -> list[StageCost]:
        """As if no stage were in parts."""
        return stage_costs(self.costs, self.plan.cuts, self.plan.recompute)

    def schedule(self, num_microbatches: int) -> Schedule:
        """The schedule of the whole step, with this many micro-batches in each group."""
        return self.plan.schedule(num_microbatches * self.plan.data_parallel)

    @cached_property
    def _memory(self) -> RankMemory:
        """Memory of the ranks of the first group; the others are alike."""
        slots = optimizer_slots(self.recipe.optim)
        one_group = replace(self.plan, data_parallel=1)
        return RankMemory(one_group.schedule(self.plan.num_microbatches), self.plan.placement, slots)

    def added_bytes(self) -> int:
        """Memory of the fullest rank, added up from its blocks: within some percent, at once."""
        return self._memory.most_bytes(self.stage_costs)

    def predicted_bytes(self) -> int:
        """Memory of the fullest rank: its live bytes exactly, from a step without storage, and the state that it keeps.

        Deep networks take a minute or more.
        """
        ranks = self.predicted_ranks()
        states = map(self.state_bytes, range(len(ranks)))
        return max(rank.peak_bytes + state for rank, state in zip(ranks, states, strict=True))

    def state_bytes(self, rank: int) -> int:
        """Weights, sums of gradients and state of the optimizer that a rank keeps."""
        return self._memory.state_bytes(rank, self.stage_costs)

    def predicted_ranks(self) -> tuple[PredictedMemory, ...]:
        """Weights and live bytes of each rank of the first group."""
        batch, loss = self.empty_batch()
        return tuple(predict_memory(self.blocks, loss, batch, replace(self.plan, data_parallel=1)))

    @abstractmethod
    def empty_batch(self) -> tuple[Batch, Loss]:
        """A batch of one group without values, and the loss."""


@dataclass(frozen=True, kw_only=True)
class Planned(PlannedRun):
    """A recipe of tiles with its costs."""

    recipe: Recipe
    side_px: int
    """Side of a tile."""

    def empty_batch(self) -> tuple[Batch, Loss]:
        batch = EmptyBatch(self.plan.num_microbatches, self.recipe.parallel.microbatch_size, self.side_px)
        return batch, cross_entropy


def planned_of(
    recipe: Recipe, side_px: int, device: torch.device, blocks: Sequence[nn.Module] | None = None
) -> Planned:
    """Plan a recipe for tiles of a side, with costs in operations.

    Args:
        blocks: the network, if it is there already; it may be on "meta".

    Raises:
        BadRecipeError: a recipe that cannot be planned.
    """
    try:
        blocks = blocks_of(recipe.model, side_px) if blocks is None else blocks
        whole = costs_of(recipe, blocks, side_px, device)
        plan = plan_of(recipe, blocks, side_px, device, whole[WHOLE])
        others = [division for division in plan.divisions if division != WHOLE]
        costs = whole | costs_of(recipe, blocks, side_px, device, others)
        return Planned(recipe=recipe, side_px=side_px, blocks=blocks, divided=costs, plan=plan)
    except ValueError as error:  # more stages than blocks, a tile side that the network does not take
        raise BadRecipeError(f"{error}.") from error


def with_seconds(planned: Planned, project_dir: Path, *, num_ranks: int, backend: str) -> Planned:
    """Add what was measured on this machine, with so many ranks; of divisions that are not the plan's, if it was.

    Raises:
        NotCalibratedError: not all of it was.
        BadRecipeError: the file of the machine is damaged.
    """
    setting = setting_of(planned.recipe, planned.side_px, planned.plan.device)
    machine = load_machine(project_dir, identity_of(planned.recipe, setting, num_ranks=num_ranks, backend=backend))
    costs: DividedCosts = {}
    for division, own in planned.divided.items():
        try:
            costs[division] = machine.with_times(planned.blocks, own, replace(setting, division=division))
        except NotCalibratedError:
            if division in (WHOLE, *planned.plan.divisions):
                raise
    missing = tuple(division for division in planned.divided if division not in costs)
    return replace(planned, divided=costs, machine=machine, not_measured=missing)


def with_seconds_if_measured(planned: Planned, project_dir: Path, *, num_ranks: int, backend: str) -> Planned:
    """As `with_seconds`; unchanged where this machine has not been measured."""
    try:
        return with_seconds(planned, project_dir, num_ranks=num_ranks, backend=backend)
    except NotCalibratedError:
        return planned


def on_cluster(planned: AnyPlanned, cluster: Cluster) -> AnyPlanned:
    """Add the seconds that a recipe would take on a cluster.

    Raises:
        BadRecipeError: the cluster's file says nothing of the recipe's precision.
    """
    precision = planned.recipe.train.precision
    costs = {division: cluster.with_times(own, precision) for division, own in planned.divided.items()}
    return replace(planned, divided=costs, machine=cluster)


def setting_of(recipe: Recipe, side_px: int, device: torch.device) -> Setting:
    """What the seconds of a recipe's blocks depend on."""
    train = recipe.train
    shape = (recipe.parallel.microbatch_size, 3, side_px, side_px)
    return Setting(shape, train.precision, train.channels_last, device)


def identity_of(recipe: Recipe, setting: Setting, *, num_ranks: int, backend: str) -> Identity:
    """This machine, as a recipe uses it."""
    # A rank on its own sends nothing, whichever transport others on its device would use.
    transport = backend if num_ranks > 1 else NO_TRANSPORT
    return identity_here(setting, threads=recipe.train.threads, backend=transport, num_ranks=num_ranks)


def describe_recompute(recompute: Recompute) -> str:
    """Describe a rule of recomputation for people."""
    rest = {"keep": "", "norm": "norm", "offload": "offload"}[recompute.rest]
    if not recompute.every:
        return rest or "none"
    text = "every block" if recompute.every == 1 else f"every {recompute.every} blocks"
    if recompute.prefix is None:
        return text
    text += f" of the first {', '.join(map(str, recompute.prefix))} blocks of the stages"
    return f"{text}, {rest} in the others" if rest else text
