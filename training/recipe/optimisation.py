"""Optimisation of weights: the optimizer and its groups, the learning rate by step, the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from training.engine.executor import Loss
from training.recipe.config import OptimConfig


def make_optimizer(weights: Sequence[tuple[str, nn.Parameter]], config: OptimConfig) -> torch.optim.Optimizer:
    """The optimizer of some weights, given with their names; the rule treats each weight separately.

    Norms' scales and shifts and biases, which have one dimension, do not decay unless the recipe says so.
    """
    decaying = [(name, weight) for name, weight in weights if config.decay_all or weight.ndim > 1]
    others = [(name, weight) for name, weight in weights if not (config.decay_all or weight.ndim > 1)]
    groups = [
        {"params": named, "weight_decay": decay}
        for named, decay in ((decaying, config.weight_decay), (others, 0.0))
        if named
    ]
    if config.name == "sgd":
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.momentum > 0)
    return torch.optim.AdamW(groups, lr=config.lr)


def optimizer_slots(config: OptimConfig) -> int:
    """Tensors of the size of a weight that the optimizer keeps for it."""
    return 2 if config.name == "adamw" else int(config.momentum > 0)


def rate_at(step: int, num_steps: int, config: OptimConfig) -> float:
    """The learning rate of a step as a fraction of the full one: a linear rise, then according to `schedule`.

    "cosine" falls to zero in half a wave (Loshchilov and Hutter, ICLR 2017); "step" by `drop_factor` at each fraction
    of the run in `drop_at`.
    """
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "step":
        return config.drop_factor ** sum(step >= share * num_steps for share in config.drop_at)
    done = (step - config.warmup_steps) / max(1, num_steps - config.warmup_steps)
    return 0.5 * (1 + math.cos(math.pi * done))


def cross_entropy(outputs_nk: Tensor, labels_n: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """The loss of all recipes: the sum over tiles.

    Args:
        label_smoothing: fraction of each label that is spread evenly over all classes (Szegedy et al., CVPR 2016).
    """
    return nn.functional.cross_entropy(
        outputs_nk.float(), labels_n.to(outputs_nk.device), reduction="sum", label_smoothing=label_smoothing
    )


def loss_of(config: OptimConfig) -> Loss:
    """The loss of a recipe."""
    return partial(cross_entropy, label_smoothing=config.label_smoothing) if config.label_smoothing else cross_entropy
