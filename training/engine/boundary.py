"""What one block passes to the next, and one stage to another."""

from __future__ import annotations

from torch import Tensor

Boundary = Tensor | tuple[Tensor, ...]
"""Value that one block passes to the next."""
Heights = tuple[int | None, ...]
"""For each tensor of a boundary the rows of the whole, of which a part has some; None: it has all of it."""
Gradients = tuple[Tensor | None, ...]
"""Gradients of a boundary's tensors that need one; None for a tensor that nothing depends on."""


def as_tuple(value: Boundary) -> tuple[Tensor, ...]:
    """Return the tensors of a boundary; raise TypeError for anything that blocks cannot pass to each other."""
    if isinstance(value, Tensor):
        return (value,)
    if type(value) is not tuple or not all(isinstance(tensor, Tensor) for tensor in value):
        raise TypeError(f"a block must return a tensor or a plain tuple of tensors, got {type(value).__name__}")
    return value


def needing_gradient(value: Boundary) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in as_tuple(value) if tensor.requires_grad)


def only_tensor(output: Boundary) -> Tensor:
    """The output of the network.

    Raises:
        TypeError: the output is a tuple.
    """
    if isinstance(output, tuple):
        raise TypeError(f"the last block must return one tensor for the loss, got a tuple of {len(output)}")
    return output
