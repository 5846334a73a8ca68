"""Small bags of tiles, all different, and small networks for them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training import engine
from training.models.heads.losses import loss_of_targets
from training.models.heads.targets import Target
from training.models.slide_models import outputs_and_attention, slide_model_blocks

DIMS = 20
SIZES = (50, 7, 1000, 3)
"""Tiles of each bag of a step: more and fewer than CLAM judges, not sorted, and one that is no multiple of anything."""
TARGETS = (Target("subtype", "class", 3, class_weights=(0.5, 1.0, 2.0)), Target("survival", "cox", 1, weight=0.7))
NUM_CLASSES = 3


def make_bag(num_tiles: int, *, seed: int = 0, dims: int = DIMS) -> Tensor:
    """Bag (n, dims + 2) whose tiles lie anywhere on a slide of 60 mm by 20 mm."""
    generator = torch.Generator().manual_seed(1000 * seed + num_tiles)
    features_nd = torch.randn(num_tiles, dims, generator=generator)
    positions_um = torch.rand(num_tiles, 2, generator=generator) * torch.tensor([60_000.0, 20_000.0])
    return torch.cat([features_nd, positions_um], dim=1)


def make_blocks(name: str, *, num_outputs: int = 4, hidden: int = 32, layers: int = 2) -> list[nn.Module]:
    torch.manual_seed(7)
    return slide_model_blocks(
        name, dims=DIMS, num_outputs=num_outputs, hidden=hidden, layers=layers, heads=4, num_classes=NUM_CLASSES
    )


def run(blocks: list[nn.Module], bag: Tensor) -> Tensor:
    value = bag
    for block in blocks:
        value = block(value)
    return value


def make_batch(*, seed: int = 0) -> engine.TensorBatch:
    """One bag per micro-batch, each one sample; the second has no class, the third no survival."""
    classes, gradients = (2.0, float("nan"), 0.0, 1.0), (-0.3, 0.8, float("nan"), 0.1)
    parts = [
        (make_bag(n, seed=seed)[None], torch.tensor([[label, gradient, 0.0]]))
        for n, label, gradient in zip(SIZES, classes, gradients, strict=True)
    ]
    return engine.TensorBatch(tuple(parts))


def make_loss(name: str) -> engine.Loss:
    return loss_of_targets(TARGETS, num_instance_classes=NUM_CLASSES if name == "clam" else None)


def attention_n(blocks: Sequence[nn.Module], bag: Tensor) -> Tensor:
    """Share of each tile in the result, (n,)."""
    return outputs_and_attention(blocks, bag)[1]
