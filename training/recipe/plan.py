"""Construction of the engine's plan from a recipe: network, costs, cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from training.engine.partition import BlockCost
from training.engine.plan import Plan, make_plan
from training.models.build import build_blocks
from training.oracle.simulation.divided import DividedCosts, divided_costs
from training.parallel.division import WHOLE, Division
from training.recipe.config import ModelConfig, Recipe, RunRecipe
from training.recipe.optimisation import make_optimizer

PREFETCH = 2
"""Micro-batches that are read and augmented ahead, in as many threads, while others are computed."""


def blocks_of(model: ModelConfig, side_px: int) -> list[nn.Module]:
    """The network of a recipe for tiles of `side_px`, with fresh weights."""
    return build_blocks(
        name=model.name,
        depth=model.depth,
        num_classes=model.num_classes,
        variant=model.variant,
        norm=model.norm,
        side_px=side_px,
    )


def costs_of(
    recipe: Recipe,
    blocks: Sequence[nn.Module],
    side_px: int,
    device: torch.device | None = None,
    divisions: Sequence[Division] = (WHOLE,),
) -> DividedCosts:
    """Cost of one micro-batch of a recipe in each block, under the autocast of the device it will run on."""
    shape = (recipe.parallel.microbatch_size, 3, side_px, side_px)
    return divided_costs(blocks, shape, divisions, precision=recipe.train.precision, device=device)


def plan_of(
    recipe: Recipe,
    blocks: Sequence[nn.Module],
    side_px: int,
    device: torch.device,
    costs: Sequence[BlockCost] | None = None,
) -> Plan:
    """The plan of a recipe."""
    costs = costs or costs_of(recipe, blocks, side_px, device)[WHOLE]
    return plan_of_costs(recipe, costs, device, channels_last=recipe.train.channels_last)


def plan_of_costs(recipe: RunRecipe, costs: Sequence[BlockCost], device: torch.device, *, channels_last: bool) -> Plan:
    """The plan of a recipe of any kind, whose stages balance the costs of its blocks."""
    parallel, train = recipe.parallel, recipe.train
    return make_plan(
        parallel.strategy,
        costs=[cost.flops if parallel.balance == "flops" else cost.saved_bytes for cost in costs],
        num_stages=parallel.num_stages,
        num_microbatches=parallel.num_microbatches,
        data_parallel=parallel.data_parallel,
        cuts=parallel.cuts,
        recompute=parallel.recompute_rule,
        precision=train.precision,
        channels_last=channels_last,
        clip_norm=recipe.optim.clip_norm,
        make_optimizer=partial(make_optimizer, config=recipe.optim),
        seed=train.seed,
        prefetch=PREFETCH,
        compiled=train.compiled,
        deterministic=train.deterministic,
        device=device,
        parts=parallel.parts_of_stages if parallel.is_in_parts else (),
        split=parallel.split_of_stages if parallel.is_in_parts else (),
        virtual_parts=parallel.virtual_parts,
    )


@dataclass(frozen=True)
class EmptyBatch:
    """Micro-batches without tiles: all that `predict_memory` needs of a batch for a recipe's loss."""

    num_microbatches: int
    microbatch_size: int
    side_px: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(self.microbatch_size, 3, self.side_px, self.side_px)] * self.num_microbatches

    def inputs(self, microbatch: int) -> Tensor:
        """float32 (microbatch_size, 3, side_px, side_px), with any values."""
        return torch.empty(self.shapes[microbatch])

    def targets(self, microbatch: int) -> Tensor:
        """int64 (microbatch_size,), all of the first class."""
        return torch.zeros(self.microbatch_size, dtype=torch.int64)
