"""Costs of a network's blocks in parts: those of one part at its own shapes, and what the parts send each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from training.engine.partition import BlockCost, block_costs, fake_tensors, on_device, without_memory
from training.engine.stage import AUTOCAST, Precision
from training.parallel.branches import branches_in
from training.parallel.division import CountingLink, Division, Swaps
from training.parallel.wrap import Parts, aliases

DividedCosts = dict[Division, list[BlockCost]]
"""Costs of all blocks of a network, as if all of it were divided so."""


def divided_costs(
    blocks: Sequence[nn.Module],
    input_shape: tuple[int, ...],
    divisions: Iterable[Division],
    *,
    precision: Precision = "fp32",
    device: torch.device | None = None,
) -> DividedCosts:
    """Costs of each block under each division, without running or allocating anything.

    Args:
        blocks, input_shape, precision, device: as for `block_costs`.

    Raises:
        ValueError: a block cannot be divided so.
    """
    device = device or torch.device("cpu")
    found = {}
    for division in dict.fromkeys(divisions):
        costs = block_costs(blocks, input_shape, precision=precision, device=device, division=division)
        if division.parts > 1:
            swaps = count_swaps(blocks, input_shape, division, precision=precision, device=device)
            costs = [
                replace(cost, forward_swaps=forward, backward_swaps=backward)
                for cost, (forward, backward) in zip(costs, swaps, strict=True)
            ]
        found[division] = costs
    return found


def count_swaps(
    blocks: Sequence[nn.Module],
    input_shape: tuple[int, ...],
    division: Division,
    *,
    precision: Precision = "fp32",
    device: torch.device | None = None,
) -> list[tuple[Swaps, Swaps]]:
    """What the parts of each block send each other for one micro-batch, in forward and in backward.

    All parts run in this process on tensors without storage. Bringing the network's output together for the loss
    belongs to the last block.
    """
    device = device or torch.device("cpu")
    shells = without_memory(blocks)
    link = CountingLink(division.parts)
    dtype = AUTOCAST.get(precision, torch.float32)
    found = []
    with fake_tensors(), torch.autocast(device.type, dtype=dtype, enabled=precision in AUTOCAST):
        fakes = on_device(shells, device).train()
        parts = Parts(link, division.split, aliases(fakes, division.parts))
        value, form = parts.cut_input(torch.empty(input_shape, device=device))
        for block in fakes:
            taken = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in value]
            value, form = parts.call(block, taken, form)
            if block is fakes[-1] and not form.is_tuple:
                value = tuple(parts.whole_tensors(value, form))
            forward = link.counted()
            in_branches = [weight for each in branches_in(block) for weight in each.parameters()]
            shared = [own for block_weights in parts.weights.values() for own in block_weights]
            _backward(value, [*taken, *shared, *in_branches])
            found.append((forward, link.counted()))
    return found


def _backward(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    roots = [tensor for tensor in outputs if tensor.requires_grad]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    if roots and wanted:
        torch.autograd.grad(roots, wanted, [torch.ones_like(root) for root in roots], allow_unused=True)
