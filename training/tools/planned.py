"""A recipe with its plan and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from training.engine.partition import BlockCost
from training.engine.plan import Plan
from training.engine.recompute import Recompute
from training.engine.schedule import Schedule
from training.foundation.errors import BadRecipeError, NotCalibratedError
from training.oracle.calibration.machine import Identity, Machine, identity_here, load_machine
from training.oracle.calibration.measure_blocks import Setting
from training.oracle.simulation.costs import StageCost, stage_costs
from training.recipe.config import Recipe
from training.recipe.plan import blocks_of, costs_of, plan_of


@dataclass(frozen=True)
class Planned:
    """A recipe with its costs."""

    recipe: Recipe
    blocks: list[nn.Module]
    costs: list[BlockCost]
    """With measured seconds, if there is a machine."""
    plan: Plan
    machine: Machine | None = None
    """None where this machine has not been measured for the recipe."""

    @property
    def stage_costs(self) -> list[StageCost]:
        return stage_costs(self.costs, self.plan.cuts, self.plan.recompute)

    def schedule(self, num_microbatches: int) -> Schedule:
        """The schedule of the whole step, with this many micro-batches in each group."""
        return self.plan.schedule(num_microbatches * self.plan.data_parallel)


def planned_of(recipe: Recipe, side_px: int, project_dir: Path) -> Planned:
    """Plan a recipe for tiles of a side, with what was measured on this machine if all of it was.

    Raises:
        BadRecipeError: a recipe that cannot be planned, or a damaged file of a machine.
    """
    planned = without_times(recipe, side_px, torch.device("cpu"))
    setting = setting_of(recipe, side_px, planned.plan.device)
    identity = identity_of(recipe, setting, backend="gloo")
    try:
        machine = load_machine(project_dir, identity)
        return replace(planned, costs=machine.with_times(planned.blocks, planned.costs, setting), machine=machine)
    except NotCalibratedError:
        return planned


def without_times(recipe: Recipe, side_px: int, device: torch.device) -> Planned:
    """Plan a recipe for tiles of a side, with costs in operations.

    Raises:
        BadRecipeError: a recipe that cannot be planned.
    """
    try:
        blocks = blocks_of(recipe.model, side_px)
        costs = costs_of(recipe, blocks, side_px, device)
        return Planned(recipe, blocks, costs, plan_of(recipe, blocks, side_px, device, costs))
    except ValueError as error:  # more stages than blocks, a tile side that the network does not take
        raise BadRecipeError(f"{error}.") from error


def setting_of(recipe: Recipe, side_px: int, device: torch.device) -> Setting:
    """What the seconds of a recipe's blocks depend on."""
    train = recipe.train
    shape = (recipe.parallel.microbatch_size, 3, side_px, side_px)
    return Setting(shape, train.precision, train.channels_last, device)


def identity_of(recipe: Recipe, setting: Setting, *, backend: str) -> Identity:
    """This machine, as a recipe uses it."""
    return identity_here(setting, threads=recipe.train.threads, backend=backend, num_ranks=recipe.parallel.world_size)


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
