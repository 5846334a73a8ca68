"""Where to cut a chain of blocks into stages.

The cost of each block is read off its shapes, without running it: operations (2 FLOP per multiply-add) of one forward,
and the bytes that autograd keeps for backward. Either may be balanced. Balanced bytes give the lowest memory per rank;
balanced operations give the shortest step once two replicas share the ranks (GEMS, SC20).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class BlockCost:
    """What one micro-batch costs in one block."""

    flops: int
    """Floating-point operations of the forward; backward takes about twice as many."""
    saved_bytes: int
    """Activation bytes kept from forward to backward, fp32, weights not counted."""


def block_costs(blocks: Sequence[nn.Module], input_shape: tuple[int, ...]) -> list[BlockCost]:
    """Count operations and saved bytes of each block, without running or allocating anything.

    A tensor that several blocks keep counts once, at the first, so the bytes of a stage are the sum over its blocks.

    Args:
        blocks: run one after the other; they are not changed.
        input_shape: of one micro-batch, such as (1, 3, 1024, 1024).
    """
    on_meta = copy.deepcopy(nn.ModuleList(blocks)).to("meta").train()
    weights = {tensor.untyped_storage()._cdata for tensor in (*on_meta.parameters(), *on_meta.buffers())}
    # Storages are told apart by address, so all that were seen stay referenced until the end.
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept.setdefault(storage._cdata, storage)
        return tensor

    costs = []
    activation = torch.empty(input_shape, device="meta")
    for block in on_meta:
        before = len(kept)
        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            FlopCounterMode(display=False) as counter,
        ):
            activation = block(activation)
        new_storages = list(kept.values())[before:]
        costs.append(BlockCost(counter.get_total_flops(), sum(storage.nbytes() for storage in new_storages)))
    return costs


def partition(costs: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Cut a chain into contiguous stages so that the most expensive one is as cheap as possible.

    Args:
        costs: of each block, in any one unit.

    Returns:
        num_stages - 1 block indices: stage s starts at the s-th cut (stage 0 at block 0). Of equally good answers,
        the one with the earliest cuts.

    Raises:
        ValueError: there are more stages than blocks.
    """
    if not 1 <= num_stages <= len(costs):
        raise ValueError(
            f"cannot cut {len(costs)} blocks into {num_stages} stages of one block or more; "
            f"use num_stages from 1 to {len(costs)}"
        )
    sums = [0.0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    # best[end] is the cheapest maximum over blocks 0 .. end - 1 in the stages so far, with the cuts that reach it.
    best: dict[int, tuple[float, tuple[int, ...]]] = {end: (sums[end], ()) for end in range(1, len(sums))}
    for _ in range(1, num_stages):
        best = {
            end: min(
                (max(best[cut][0], sums[end] - sums[cut]), (*best[cut][1], cut)) for cut in range(1, end) if cut in best
            )
            for end in range(min(best) + 1, len(sums))
        }
    return best[len(costs)][1]


def stage_ranges(cuts: Sequence[int], num_blocks: int) -> list[range]:
    """Block indices of each stage.

    Raises:
        ValueError: a stage would be empty or end behind the last block.
    """
    bounds = [0, *cuts, num_blocks]
    ranges = [range(start, stop) for start, stop in pairwise(bounds)]
    if any(len(blocks) == 0 for blocks in ranges):
        raise ValueError(f"cuts must rise strictly between 0 and {num_blocks}, the number of blocks; got {tuple(cuts)}")
    return ranges
