"""Construction of a network's blocks from a recipe's `[model]`."""

from typing import Literal

import torch
from torch import Tensor, nn

from training.models.gems_public import gems_public_blocks
from training.models.resnet_v2 import resnet_v2_blocks


def build_blocks(*, name: str, depth: int, num_classes: int, variant: str, norm: str, side_px: int) -> list[nn.Module]:
    """Make the blocks of a network for RGB tiles, to be cut into stages anywhere between two of them.

    Args:
        name: "resnet_v2".
        depth: number of weighted layers, 9n + 2.
        variant: "standard", or "gems-public" for comparison with the published network of the GEMS authors.
        norm: "batch", or "group" (standard variant only).
        side_px: width and height of the tiles; the standard variant takes any size and ignores it.

    Returns:
        modules that, run one after the other, turn (N, 3, side_px, side_px) into (N, num_classes): logits for
        "standard", probabilities for "gems-public".

    Raises:
        ValueError: the network does not exist; the message lists those that do.
    """
    if name != "resnet_v2":
        raise ValueError(f'model must be "resnet_v2", got {name!r}')
    if variant == "standard":
        return resnet_v2_blocks(depth=depth, num_classes=num_classes, norm=norm)
    if variant == "gems-public":
        if norm != "batch":
            raise ValueError(f'variant "gems-public" has norm "batch" only, got {norm!r}; use variant "standard"')
        return gems_public_blocks(depth=depth, num_classes=num_classes, side_px=side_px)
    raise ValueError(f'variant must be "standard" or "gems-public", got {variant!r}')


Outputs = Literal["logits", "probabilities"]


def outputs_of(variant: str) -> Outputs:
    """Kind of output of a network of this variant."""
    return "probabilities" if variant == "gems-public" else "logits"


def probabilities(outputs_nk: Tensor, outputs: Outputs) -> Tensor:
    """Class probabilities, rows summing to 1, from the output of a network."""
    return outputs_nk.float() if outputs == "probabilities" else torch.softmax(outputs_nk.float(), dim=1)
