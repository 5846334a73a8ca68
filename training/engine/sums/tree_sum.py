"""The fixed order in which gradients are added, whichever rank or replica computed them.

The leaves of a binary tree are the micro-batches of the step, by their index. A node stands for 2^k neighbouring
micro-batches starting at a multiple of 2^k, and its sum is that of its left half plus that of its right half. The
nodes left at the end (8 + 4 + 1 for 13 micro-batches, say) are added from the right. So the sum does not depend on
where the micro-batches are or in which order they arrive: any number of ranks gives the same bits as one process.
"""

import torch
from torch import Tensor

Node = tuple[int, int]
"""(index of the first micro-batch, number of micro-batches: a power of two that divides the index)"""
GradientSet = list[Tensor]
"""All gradients of a stage, as rows (gradient_rows.py)."""


class TreeSum:
    """Sum of gradient sets; for n neighbouring micro-batches it holds at most 2 · log2(n) + 1 sets at a time."""

    def __init__(self) -> None:
        self._nodes: dict[Node, GradientSet] = {}

    def add(self, node: Node, gradients: GradientSet) -> None:
        """Add the set of a node; its tensors are taken over, and sums are written into them."""
        start, size = node
        while (sibling := self._nodes.pop((start ^ size, size), None)) is not None:
            is_right = start & size
            gradients = add_sets(sibling, gradients) if is_right else add_sets(gradients, sibling)
            start, size = start & ~size, 2 * size
        self._nodes[start, size] = gradients

    def take_nodes(self) -> list[tuple[Node, GradientSet]]:
        """Return the sums so far, by index, and keep nothing."""
        nodes, self._nodes = sorted(self._nodes.items(), key=lambda item: item[0]), {}
        return nodes

    def take_total(self) -> GradientSet:
        """Return the sum of everything and keep nothing; empty if nothing was added."""
        nodes = self.take_nodes()
        if not nodes:
            return []
        total = nodes.pop()[1]
        while nodes:
            total = add_sets(nodes.pop()[1], total)
        return total

    def __len__(self) -> int:
        """Number of gradient sets held now."""
        return len(self._nodes)


def nodes_of(microbatches: range) -> list[Node]:
    """The nodes that are left once all of some neighbouring micro-batches have been added."""
    nodes = []
    start = microbatches.start
    while start < microbatches.stop:
        size = start & -start or 1 << microbatches.stop.bit_length()
        while start + size > microbatches.stop:
            size //= 2
        nodes.append((start, size))
        start += size
    return nodes


def add_sets(left: GradientSet, right: GradientSet) -> GradientSet:
    """left + right, in the memory of the left."""
    if len(left) != len(right):
        raise ValueError(f"two gradient sets of one stage differ in length: {len(left)} and {len(right)} tensors")
    if left:
        torch._foreach_add_(left, right)
    return left
