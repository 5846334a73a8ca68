"""One segment of a stage: forward with a graph, or without one and again in backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from training.engine.boundary import Boundary, Gradients, as_tuple, needing_gradient
from training.engine.memory import LiveBytes
from training.engine.random_numbers import Draws
from training.engine.recompute import Segment
from training.engine.saved import Kept, Saver, check_unchanged

Finish = Callable[[Tensor], Tensor]
"""Output of the network -> loss of the micro-batch."""
Block = Callable[[Any], Any]


class Owner(Protocol):
    """The stage of a segment."""

    counter: LiveBytes
    stage: int
    device: torch.device
    at: str

    def autocast(self) -> torch.autocast: ...

    def call_block(self, index: int, block: Block, value: Boundary, microbatch: int) -> Boundary: ...

    def loss_of(self, output: Boundary, finish: Finish, microbatch: int) -> Tensor: ...


@dataclass
class Passed:
    """State that a piece keeps of one micro-batch from forward to backward."""

    inputs: Boundary
    """Only those tensors that need a gradient, unless the piece is recomputed."""
    versions: list[int]
    """Versions of the inputs, if the piece is recomputed."""
    roots: list[Any] | None
    """Outputs that need a gradient, as edges of the graph where possible: an edge releases the output's memory. None
    if the piece is to be recomputed."""
    saver: Saver
    draws: Draws


def _describe(blocks: list[int]) -> str:
    """Name the blocks for people; a segment without any holds the loss."""
    if not blocks:
        return "the loss"
    first, last = blocks[0], blocks[-1]
    return f"block {first} of the network" if first == last else f"blocks {first} to {last} of the network"


class Piece:
    """One segment of a stage. Its graph ends at its inputs, so it can be discarded and rebuilt."""

    def __init__(
        self, owner: Owner, blocks: list[tuple[int, Block]], weights: Sequence[Tensor], segment: Segment
    ) -> None:
        """Take over a segment.

        Args:
            blocks: with their indices in the whole network.
            weights: those that are trained; in parts, what stands for each of them in each part here.
        """
        self.recomputed = segment.policy == "recompute"
        self.blocks = blocks
        self._kept: Kept = "keep" if segment.policy == "recompute" else segment.policy
        self._owner = owner
        self._weights = list(weights)

    def forward(
        self, value: Boundary, finish: Finish | None, passed: list[Passed], draws: Draws, *, keep: bool
    ) -> Boundary:
        counter = self._owner.counter
        if passed:
            value = _as_leaves(value)
        everything = as_tuple(value)
        counter.hold(everything)
        again = self.recomputed and not keep
        saver = Saver(self._kept, counter)
        versions = [tensor._version for tensor in everything]
        output = self._without_graph(value, draws) if again else self._run(value, finish, saver, draws)
        if again and versions != [tensor._version for tensor in everything]:
            raise ValueError(
                f"a block of stage {self._owner.stage} changes its input in place, so its forward cannot be repeated; "
                "make that operation out-of-place, or exclude the block from recompute"
            )
        inputs = value if again else needing_gradient(value)
        counter.hold(as_tuple(inputs))
        counter.release(everything)
        roots = None if again else [_root(tensor) for tensor in needing_gradient(output)]
        passed.append(Passed(inputs, versions, roots, saver, draws))
        return output

    def backward(self, passed: Passed, gradients: Gradients | None, found: dict[int, Tensor]) -> Gradients:
        """Record the weights' gradients in `found`, by identity; return those of the inputs that need one."""
        counter = self._owner.counter
        given = tuple(gradient for gradient in gradients or () if gradient is not None)
        counter.hold(given)
        inputs = needing_gradient(passed.inputs)
        roots, wanted = passed.roots, gradients
        if roots is None:
            roots, wanted = self._again(passed, gradients or ()) if given else ([], ())
        if wanted is not None:
            pairs = [(root, gradient) for root, gradient in zip(roots, wanted, strict=True) if gradient is not None]
            roots, wanted = [root for root, _ in pairs], tuple(gradient for _, gradient in pairs)
        result: Gradients = (None,) * len(inputs)
        if roots and (self._weights or inputs):
            result = self._gradients(roots, inputs, wanted, found)
        counter.release(as_tuple(passed.inputs))
        counter.release(given)
        return result

    def _gradients(
        self, roots: list[Any], inputs: tuple[Tensor, ...], wanted: Gradients | None, found: dict[int, Tensor]
    ) -> Gradients:
        self._owner.at = f"the backward of {_describe([index for index, _ in self.blocks])}"
        # A weight that a later piece also uses continues from its sum so far: the order of additions in one graph.
        shared = [weight for weight in self._weights if id(weight) in found]
        wanted = None if wanted is None else (*wanted, *(found[id(weight)] for weight in shared))
        # autograd.grad, not backward(): the latter may change the memory layout of what it stores in .grad.
        result: Gradients = torch.autograd.grad([*roots, *shared], [*self._weights, *inputs], wanted, allow_unused=True)
        own, of_inputs = result[: len(self._weights)], result[len(self._weights) :]
        found |= {id(weight): grad for weight, grad in zip(self._weights, own, strict=True) if grad is not None}
        # Some tensors of a tuple may be unused, but not all of a stage's inputs.
        if inputs and all(gradient is None for gradient in of_inputs):
            raise ValueError(
                f"the output of a block of stage {self._owner.stage} does not depend on the output of the block before "
                "it, so nothing before it can learn; freeze the blocks before it, or remove the detach()"
            )
        return of_inputs

    def call(self, value: Boundary, draws: Draws, saver: Saver | None = None) -> Boundary:
        """Run the blocks one after the other, each with its own random numbers."""
        for index, block in self.blocks:
            self._owner.at = f"block {index} of the network"
            draws.start_block(index, self._owner.device)
            if saver is not None:
                saver.start_block()
            value = self._owner.call_block(index, block, value, draws.microbatch)
        return value

    def _run(self, value: Boundary, finish: Finish | None, saver: Saver, draws: Draws) -> Boundary:
        with saver.watch(), self._owner.autocast():
            output = self.call(value, draws, saver)
            return output if finish is None else self._owner.loss_of(output, finish, draws.microbatch)

    def _without_graph(self, value: Boundary, draws: Draws) -> Boundary:
        with torch.no_grad(), self._owner.autocast():
            output = self.call(value, draws)
        has_gradient = bool(self._weights or needing_gradient(value))
        leaves = [
            # A block may return its input, which keeps its own flag.
            tensor.detach().requires_grad_(has_gradient and _is_differentiable(tensor))
            for tensor in as_tuple(output)
        ]
        return tuple(leaves) if isinstance(output, tuple) else leaves[0]

    def _again(self, passed: Passed, gradients: Gradients) -> tuple[list[Any], Gradients]:
        """Repeat forward with a graph. BatchNorm has seen the micro-batch already; random numbers repeat."""
        for tensor, version in zip(as_tuple(passed.inputs), passed.versions, strict=True):
            check_unchanged(tensor, version)
        outputs = as_tuple(self._run(passed.inputs, None, passed.saver, passed.draws))
        outputs = tuple(tensor for tensor in outputs if _is_differentiable(tensor))
        pairs = [(_root(o), g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
        return [root for root, _ in pairs], tuple(gradient for _, gradient in pairs)


def _as_leaves(value: Boundary) -> Boundary:
    """The same tensors at the start of a new graph."""
    leaves = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in as_tuple(value))
    return leaves if isinstance(value, tuple) else leaves[0]


def _root(tensor: Tensor) -> Any:
    """The graph edge of a tensor. A loss and a leaf stay tensors: autograd starts at one and ends at the other."""
    return tensor if tensor.is_leaf or tensor.ndim == 0 else torch.autograd.graph.get_gradient_edge(tensor)


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
