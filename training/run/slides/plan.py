"""Network and plan of a slide-level recipe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from training.data.bag_source import POSITION_COLUMNS
from training.engine.executor import Loss
from training.engine.partition import block_costs
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.models.heads.losses import loss_of_targets
from training.models.heads.targets import Target, total_columns
from training.recipe.optimisation import optimizer_slots
from training.recipe.plan import plan_of_costs
from training.recipe.slides import SlideRecipe


def slide_loss(recipe: SlideRecipe, targets: Sequence[Target]) -> Loss:
    """The loss of a recipe."""
    instances = targets[0].num_outputs if recipe.model.name == "clam" else None
    return loss_of_targets(targets, num_instance_classes=instances)


def slide_plan(recipe: SlideRecipe, blocks: Sequence[nn.Module], dims: int, device: torch.device) -> Plan:
    """The plan of a recipe: stages balance the operations, or bytes, of the largest bag of a step."""
    shape = (1, recipe.data.max_tiles, dims + POSITION_COLUMNS)
    costs = block_costs(blocks, shape, precision=recipe.train.precision, device=device)
    return plan_of_costs(recipe, costs, device, channels_last=False)


@dataclass(frozen=True)
class EmptyBags:
    """Bags without values: all that `predict_memory` needs of a batch."""

    num_bags: int
    num_tiles: int
    dims: int
    columns: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(1, self.num_tiles, self.dims + POSITION_COLUMNS)] * self.num_bags

    def inputs(self, microbatch: int) -> Tensor:
        """float32, with any values."""
        return torch.empty(self.shapes[microbatch])

    def targets(self, microbatch: int) -> Tensor:
        """float32 (1, columns), all 0."""
        return torch.zeros(1, self.columns)


def predicted_bytes(
    recipe: SlideRecipe, blocks: Sequence[nn.Module], dims: int, targets: Sequence[Target], plan: Plan
) -> int:
    """Memory of the fullest rank in a step whose bags are all as large as the recipe allows.

    Args:
        blocks: with or without memory.
    """
    bags = EmptyBags(plan.num_microbatches, recipe.data.max_tiles, dims, total_columns(targets))
    ranks = predict_memory(blocks, slide_loss(recipe, targets), bags, replace(plan, data_parallel=1))
    copies = 2 + optimizer_slots(recipe.optim)  # weights, gradients and what the optimizer keeps
    return max(rank.peak_bytes + copies * rank.weight_bytes for rank in ranks)
