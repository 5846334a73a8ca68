"""Construction of networks for whole slides: one output for a bag of tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from training.models.mil.abmil import AttentionPool
from training.models.mil.bag import BagInput, Pooling, SlideHead, as_bag, position_order
from training.models.mil.clam import ClamHead
from training.models.mil.pooling import MaxPool, MeanPool
from training.models.mil.transmil import ClassToken, PyramidEncoding, Squaring, TransMilLayer
from training.models.slide_transformer import slide_transformer_blocks

SLIDE_MODELS = ("mean", "max", "abmil", "clam", "transmil", "transformer")


def slide_model_blocks(
    name: str,
    *,
    dims: int,
    num_outputs: int,
    hidden: int = 256,
    layers: int = 4,
    heads: int = 8,
    num_classes: int | None = None,
) -> list[nn.Module]:
    """Make the blocks of a network for bags of tiles, to be cut into stages anywhere between two of them.

    Args:
        name: one of `SLIDE_MODELS`.
        dims: number of features per tile.
        hidden: width of the tokens.
        layers: of the transformer; ignored by the others (TransMIL has two).
        heads: of the transformer and of TransMIL; ignored by the others.
        num_classes: classes of CLAM's instance classifiers; ignored by the others.

    Returns:
        modules that, run one after the other, turn a bag, float32 (n, dims + 2), into float32 (1, num_outputs); CLAM
        adds columns (mil/clam.py). No module draws random numbers or mixes bags.

    Raises:
        ValueError: the network does not exist, or not in this size.
    """
    _check_sizes(dims=dims, num_outputs=num_outputs, hidden=hidden, layers=layers, heads=heads)
    sizes = {"dims": dims, "num_outputs": num_outputs, "hidden": hidden}
    if name == "transformer":
        return slide_transformer_blocks(**sizes, layers=layers, heads=heads)
    if name == "transmil":
        return _transmil_blocks(**sizes, heads=heads)
    if name == "clam":
        if num_classes is None or num_classes < 2:
            raise ValueError(f'model "clam" needs num_classes of 2 or more, got {num_classes}; give it a class target')
        return [BagInput(dims, hidden, has_relu=True), ClamHead(hidden, num_outputs, num_classes)]
    pools: dict[str, Callable[[], Pooling]] = {
        "mean": MeanPool,
        "max": MaxPool,
        "abmil": lambda: AttentionPool(hidden),
    }
    if name not in pools:
        raise ValueError(f"a slide model must be one of {', '.join(SLIDE_MODELS)}, got {name!r}")
    return [BagInput(dims, hidden, has_relu=True), pools[name](), SlideHead(hidden, num_outputs)]


def outputs_and_attention(blocks: Sequence[nn.Module], bag: Tensor) -> tuple[Tensor, Tensor]:
    """Result of a network of `slide_model_blocks`, and the share of each tile in it, in one pass without a graph.

    Attention pooling has its weights; the mean equal shares; the maximum the share of channels in which a tile is the
    maximum; TransMIL the class token's attention in the last layer, averaged over heads. The layers of a transformer
    mix tiles before that: the tile with the largest share need not be the one that decided.

    Args:
        bag: float32 (n, dims + 2), on the network's device.

    Returns:
        float32 (1, outputs); and float32 (n,), at least 0, with sum 1. They follow the tiles: their order changes
        nothing.

    Raises:
        ValueError: the blocks are no such network, or the bag does not fit them.
    """
    pools = [index for index, block in enumerate(blocks) if isinstance(block, Pooling)]
    if not pools or not isinstance(blocks[0], BagInput):
        names = ", ".join(type(block).__name__ for block in blocks) or "none"
        raise ValueError(f"attention needs the blocks of a slide model, in order, got {names}")
    bag_nf = as_bag(bag, blocks[0].dims)
    order_n = position_order(bag_nf)
    with torch.no_grad():
        tiles = blocks[0](bag_nf[order_n])
        for block in blocks[1 : pools[-1]]:
            tiles = block(tiles)
        pool = blocks[pools[-1]]
        assert isinstance(pool, Pooling)
        shares_n = pool.attention_n(tiles)
        outputs_1o = tiles
        for block in blocks[pools[-1] :]:
            outputs_1o = block(outputs_1o)
        return outputs_1o, torch.empty_like(shares_n).index_copy_(0, order_n, shares_n / shares_n.sum())


def _transmil_blocks(*, dims: int, num_outputs: int, hidden: int, heads: int) -> list[nn.Module]:
    if hidden % heads:
        raise ValueError(f"hidden of TransMIL must be a multiple of heads, got {hidden} and {heads}")
    return [
        BagInput(dims, hidden, has_relu=True, is_sorted=True),
        Squaring(hidden),
        TransMilLayer(hidden, heads),
        PyramidEncoding(hidden),
        TransMilLayer(hidden, heads),
        ClassToken(hidden),
        SlideHead(hidden, num_outputs),
    ]


def _check_sizes(**sizes: int) -> None:
    for size, number in sizes.items():
        if number < 1:
            raise ValueError(f"{size} of a slide model must be 1 or more, got {number}")
