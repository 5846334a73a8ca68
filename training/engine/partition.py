"""Cutting a chain of blocks into stages.

The cost of each block is derived from its shapes, without running it: operations (2 FLOP per multiply-add) of one
forward, and the bytes that autograd keeps for backward. Either may be balanced. Balanced bytes give the lowest memory
per rank; balanced operations give the shortest step once two replicas share the ranks (GEMS, SC20).
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from training.engine.boundary import as_tuple
from training.engine.cutting import Cutting
from training.engine.memory import LiveBytes
from training.engine.saved import Kept, Saver
from training.engine.stage import AUTOCAST, Precision
from training.foundation.words.counts import counted
from training.parallel.branches import branches_in, keep_branches
from training.parallel.division import NO_SWAPS, WHOLE, Division, SilentLink, Swaps
from training.parallel.wrap import Parts, aliases


@dataclass(frozen=True)
class BlockTimes:
    """Seconds of one micro-batch in one block, measured."""

    forward_s: float
    backward_s: float
    norm_s: float = 0.0
    """Further time of both if outputs of normalisations are recomputed."""
    offload_s: float = 0.0
    """Further time of both if activations wait in host memory."""
    alone: float = 1.0
    """Factor, at most 1, of all times while no other rank computes; they were measured while all do."""


@dataclass(frozen=True)
class BlockCost:
    """Cost of one micro-batch in one block."""

    flops: int
    """Floating-point operations of the forward; backward takes about twice as many."""
    saved_bytes: int
    """Activation bytes kept from forward to backward, weights not counted."""
    input_bytes: int
    """Bytes received from the block before it."""
    norm_bytes: int = 0
    """`saved_bytes` if outputs of normalisations are recomputed (saved.py)."""
    gradient_bytes: int = 0
    """Gradient of the input, sent back to the block before it; 0 where nothing before it learns."""
    weight_bytes: int = 0
    """Trained weights; those that blocks share count once, at the first."""
    branch_bytes: int = 0
    """Those of them that only this part of the block has: its branches'."""
    times: BlockTimes | None = None
    """None until they are measured: operations then stand for time."""
    forward_swaps: Swaps = NO_SWAPS
    """Messages between the parts of the block."""
    backward_swaps: Swaps = NO_SWAPS


def block_costs(
    blocks: Sequence[nn.Module],
    input_shape: tuple[int, ...],
    *,
    precision: Precision = "fp32",
    device: torch.device | None = None,
    division: Division = WHOLE,
) -> list[BlockCost]:
    """Count operations and bytes of each block, without running or allocating anything.

    A tensor that several blocks keep counts once, at the first, so the bytes of a stage are the sum over its blocks.
    The same holds for weights that blocks share, of which a lower precision keeps one cast copy, as in a stage.

    Args:
        blocks: run one after the other; they are not changed.
        input_shape: of one micro-batch, such as (1, 3, 1024, 1024).
        device: its autocast decides which operations run in a lower precision; the CPU if omitted.
        division: costs are of one of these parts, the last one, which has the most rows; messages are not counted here
            (oracle/simulation/divided.py).

    Raises:
        ValueError: a block cannot be divided so.
    """
    device = device or torch.device("cpu")
    shells = without_memory(blocks)
    with fake_tensors():
        fakes = on_device(shells, device).train()
        kept = _forward(fakes, input_shape, "keep", precision, device, division)
        # Normalisations are not recomputed in parts.
        norm = _forward(fakes, input_shape, "norm", precision, device, WHOLE) if division == WHOLE else kept
    return [replace(cost, norm_bytes=norm_cost.saved_bytes) for cost, norm_cost in zip(kept, norm, strict=True)]


def part_alone(blocks: Sequence[nn.Module], division: Division, part: int) -> Cutting:
    """One part of blocks from the first of a network on, whose messages take no time."""
    if division.parts == 1:
        return Cutting(range(len(blocks)))
    link = SilentLink(division.parts, part)
    return Cutting(range(len(blocks)), Parts(link, division.split, aliases(nn.ModuleList(blocks), 1)))


def _forward(
    fakes: nn.ModuleList,
    input_shape: tuple[int, ...],
    kept: Kept,
    precision: Precision,
    device: torch.device,
    division: Division,
) -> list[BlockCost]:
    """Costs of each block under one policy."""
    counter = LiveBytes(enabled=True)
    counter.exclude(tensor for block in fakes for tensor in (*block.parameters(), *block.buffers()))
    cutting = part_alone(list(fakes), division, division.parts - 1)
    if division.num_sub_graphs > 1:
        keep_branches(fakes, division.parts - 1, division.parts)
    value = cutting.begin(0, torch.empty(input_shape, device=device))
    dtype = AUTOCAST.get(precision, torch.float32)
    costs, seen = [], set[int]()
    # Around all blocks: autocast casts a weight once, however many of them use it.
    with torch.autocast(device.type, dtype=dtype, enabled=precision in AUTOCAST):
        for index, block in enumerate(fakes):
            before, inputs = counter.now, as_tuple(value)
            weights = [weight for weight in block.parameters() if weight.requires_grad and id(weight) not in seen]
            branches = branches_in(block) if division.num_sub_graphs > 1 else []
            of_branches = {id(own) for each in branches for own in each.parameters()}
            seen |= set(map(id, weights))
            with Saver(kept, counter).watch(), FlopCounterMode(display=False, custom_mapping=_MORE_FLOPS) as flops:
                value = cutting.call(index, block, value, 0)
            costs.append(
                BlockCost(
                    flops.get_total_flops(),
                    saved_bytes=counter.now - before,
                    input_bytes=sum(tensor.untyped_storage().nbytes() for tensor in inputs),
                    gradient_bytes=sum(tensor.nbytes for tensor in inputs if tensor.requires_grad),
                    weight_bytes=sum(weight.nbytes for weight in weights),
                    branch_bytes=sum(weight.nbytes for weight in weights if id(weight) in of_branches),
                )
            )
    return costs


def _attention_flops(query_shape: tuple[int, ...], key_shape: tuple[int, ...], *_: object, **__: object) -> int:
    """Operations of attention: two products of (n, d) and (n, d) for each of the heads."""
    batch, heads, num_queries, width = query_shape
    return 4 * batch * heads * num_queries * key_shape[-2] * width


_MORE_FLOPS = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops}
"""Kernels for which torch 2.13 has no formula."""


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Give everything made inside a shape, strides and a storage with a size, but no memory."""
    with FakeTensorMode(allow_non_fake_inputs=True), _MixedNorms():  # type: ignore[no-untyped-call]
        yield


_NORMS = {
    torch.ops.aten.native_batch_norm.default,
    torch.ops.aten._native_batch_norm_legit.default,  # what FlopCounterMode turns it into
    torch.ops.aten._native_batch_norm_legit.no_stats,
    torch.ops.aten.native_group_norm.default,
    torch.ops.aten.native_layer_norm.default,
}


class _MixedNorms(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch ships no types for it
    """Correction of torch 2.13, where a fake normalisation of bf16 images with fp32 weights keeps bf16 statistics.

    The real one keeps them in the type of its weights, or of its running statistics.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _NORMS:
            return result
        output, mean, inverse_std = result
        dtype = next((arg.dtype for arg in args[1:] if isinstance(arg, Tensor)), mean.dtype)
        return output, mean.to(dtype), inverse_std.to(dtype)


def without_memory(blocks: Sequence[nn.Module], *, channels_last: bool = False) -> nn.ModuleList:
    """A copy on the meta device; `on_device` inside `fake_tensors` gives it a device but still no memory."""
    modules = nn.ModuleList(blocks)
    tensors = (*modules.parameters(), *modules.buffers())
    shells = copy.deepcopy(modules, {id(tensor): _empty(tensor, torch.device("meta")) for tensor in tensors})
    # torch's stubs lack `to` with only a memory format.
    return shells.to(memory_format=torch.channels_last) if channels_last else shells  # type: ignore[call-overload]


def on_device(shells: nn.ModuleList, device: torch.device) -> nn.ModuleList:
    """Give the copies of `without_memory` a device. Like `to_empty`, but weights that modules share stay shared."""
    made: dict[int, Tensor] = {}
    for module in shells.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    if id(tensor) not in made:
                        made[id(tensor)] = _empty(tensor, device)
                    tensors[name] = made[id(tensor)]  # type: ignore[assignment]  # a parameter stays one
    return shells


def _empty(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor, or parameter, of the same shape and strides without values."""
    empty = torch.empty_like(tensor, device=device, requires_grad=False)
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def partition(costs: Sequence[float], num_stages: int) -> tuple[int, ...]:
    """Cut a chain into contiguous stages so that the most expensive one is as cheap as possible.

    Args:
        costs: one for each block, in any unit.

    Returns:
        num_stages - 1 block indices: stage s starts at the s-th cut (stage 0 at block 0). Of equally good solutions,
        the one with the earliest cuts.

    Raises:
        ValueError: there are more stages than blocks.
    """
    if not 1 <= num_stages <= len(costs):
        raise ValueError(
            f"cannot cut {counted(len(costs), 'block')} into {counted(num_stages, 'stage')} of one block or more; "
            f"use num_stages from 1 to {len(costs)}"
        )
    sums = torch.tensor([0.0, *costs], dtype=torch.float64).cumsum(0)
    between = sums - sums[:, None]
    between[torch.ones_like(between).tril().bool()] = torch.inf  # no stage is empty
    # least[k][start] is the cheapest maximum of the blocks from `start` on in k stages.
    least = [torch.full_like(sums, torch.inf)]
    least[0][-1] = 0.0
    for _ in range(num_stages):
        least.append(torch.maximum(between, least[-1]).amin(1))
    cuts = [0]
    for rest in least[num_stages - 1 : 0 : -1]:
        enough = torch.maximum(between[cuts[-1]], rest) <= least[num_stages][0]
        cuts.append(int(enough.nonzero()[0]))
    return tuple(cuts[1:])


def check_cuts(cuts: Sequence[int], num_stages: int) -> None:
    """Raise ValueError if cuts do not make this many stages, whatever the number of blocks."""
    if len(cuts) != num_stages - 1 or any(start >= stop for start, stop in pairwise((0, *cuts))):
        raise ValueError(
            f"cuts {list(cuts)} do not make {counted(num_stages, 'stage')}: name the first block of each stage but the "
            "first, in rising order, from 1 on"
        )


def stage_ranges(cuts: Sequence[int], num_blocks: int) -> list[range]:
    """Block indices of each stage.

    Raises:
        ValueError: a stage would be empty or end after the last block.
    """
    bounds = [0, *cuts, num_blocks]
    ranges = [range(start, stop) for start, stop in pairwise(bounds)]
    if any(len(blocks) == 0 for blocks in ranges):
        raise ValueError(f"cuts must rise strictly between 0 and {num_blocks}, the number of blocks; got {tuple(cuts)}")
    return ranges
