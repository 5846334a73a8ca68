"""One stage of one replica on this rank: forward and backward of a micro-batch, and the sums of the step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from training.engine.batchnorm import Statistics, record_statistics, tracking_layers
from training.engine.memory import LiveBytes
from training.engine.recompute import Segment
from training.engine.tree_sum import TreeSum

Boundary = Tensor | tuple[Tensor, ...]
"""What one block hands to the next."""
Precision = Literal["fp32", "bf16"]
Finish = Callable[[Tensor], Tensor]
"""Output of the network -> loss of the micro-batch."""


class StageCopy:
    """The blocks of a stage, with the activations between forward and backward and the gradient sum of the step."""

    def __init__(
        self,
        module: nn.Sequential,
        *,
        replica: int,
        stage: int,
        device: torch.device,
        precision: Precision = "fp32",
        segments: Sequence[Segment] | None = None,
        counter: LiveBytes | None = None,
        is_last: bool = True,
    ):
        self.module = module
        self.replica = replica
        self.stage = stage
        self.weights = [weight for weight in module.parameters() if weight.requires_grad]
        self.gradient_sum = TreeSum()
        self.statistics: dict[int, Statistics] = {}
        self.counter = counter or LiveBytes()
        self.counter.exclude([*module.parameters(), *module.buffers()])
        self.device = device
        self._precision = precision
        everything = [Segment(range(len(module)), recomputed=False)]
        self._pieces = [
            _Piece(self, nn.Sequential(*(module[i] for i in segment.blocks)), recomputed=segment.recomputed)
            for segment in segments or everything
        ]
        if is_last and self._pieces[-1].recomputed:
            # The loss is kept, so that a user's loss function is called once.
            self._pieces.append(_Piece(self, nn.Sequential(), recomputed=False))
        self._live: dict[int, list[_Passed]] = {}

    def forward(self, microbatch: int, value: Boundary, finish: Finish | None) -> Boundary:
        """Run the stage; with `finish`, its output is the loss. Activations stay until the micro-batch's `backward`."""
        passed: list[_Passed] = []
        buffers = [(name, buffer, buffer._version) for name, buffer in self.module.named_buffers()]
        with record_statistics(tracking_layers(self.module)) as recorded:
            for piece in self._pieces:
                is_last = piece is self._pieces[-1]
                value = piece.forward(value if not passed else as_leaves(value), finish if is_last else None, passed)
        after = dict(self.module.named_buffers())
        changed = [name for name, old, version in buffers if after[name] is not old or old._version != version]
        if changed:
            raise ValueError(
                f"forward changed the buffers {', '.join(changed)} of stage {self.stage}; of what a forward leaves "
                "behind, only the running statistics of BatchNorm are kept equal on all copies. Take out the change."
            )
        self.statistics[microbatch] = recorded
        self._live[microbatch] = passed
        return value

    def backward(self, microbatch: int, gradients: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """Add the micro-batch's gradients to the sum of the step.

        Args:
            gradients: of the outputs that need one; None if the output is the loss.

        Returns:
            gradients of the inputs that need one.
        """
        passed = self._live.pop(microbatch)
        found: dict[int, Tensor] = {}
        for piece in reversed(self._pieces):
            gradients = piece.backward(passed.pop(), gradients, found)
        self.gradient_sum.add(
            (microbatch, 1),
            [found[id(weight)] if id(weight) in found else torch.zeros_like(weight) for weight in self.weights],
        )
        return gradients or ()

    def infer(self, value: Boundary) -> Boundary:
        """Forward alone; nothing is kept."""
        with torch.no_grad(), self.autocast():
            output: Boundary = self.module(value)
            return output

    def take_statistics(self) -> dict[int, Statistics]:
        """Statistics recorded in this step; the next step starts without them."""
        taken, self.statistics = self.statistics, {}
        return taken

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16")


@dataclass
class _Passed:
    """What a piece keeps of one micro-batch from forward to backward."""

    inputs: Boundary
    """Only those tensors that need a gradient, unless the piece is recomputed."""
    roots: list[Any]
    """Outputs that need a gradient, as edges of the graph where possible: an edge releases the output's memory."""
    random_state: list[Tensor]


class _Piece:
    """One segment of a stage. Its graph ends at its inputs, so it can be thrown away and made again."""

    def __init__(self, owner: StageCopy, module: nn.Sequential, *, recomputed: bool):
        self.recomputed = recomputed
        self._owner = owner
        self._module = module
        self._weights = [weight for weight in module.parameters() if weight.requires_grad]

    def forward(self, value: Boundary, finish: Finish | None, passed: list[_Passed]) -> Boundary:
        counter = self._owner.counter
        everything = as_tuple(value)
        counter.hold(everything)
        random_state = _random_state(self._owner.device) if self.recomputed else []
        versions = [tensor._version for tensor in everything]
        output = self._without_graph(value) if self.recomputed else self._run(value, finish)
        if self.recomputed and versions != [tensor._version for tensor in everything]:
            raise ValueError(
                f"a block of stage {self._owner.stage} changes its input in place, so its forward cannot be repeated; "
                "make that operation out of place, or leave the block out of recompute"
            )
        inputs = value if self.recomputed else needing_gradient(value)
        counter.hold(as_tuple(inputs))
        counter.release(everything)
        roots = [] if self.recomputed else [_root(tensor) for tensor in needing_gradient(output)]
        passed.append(_Passed(inputs, roots, random_state))
        return output

    def backward(
        self, passed: _Passed, gradients: tuple[Tensor, ...] | None, found: dict[int, Tensor]
    ) -> tuple[Tensor, ...]:
        """Note the gradients of the weights in `found`, by identity; return those of the inputs that need one."""
        counter = self._owner.counter
        given = gradients or ()
        counter.hold(given)
        inputs = needing_gradient(passed.inputs)
        again = self.recomputed and bool(given)
        roots, wanted = self._again(passed, given) if again else (passed.roots, gradients)
        result: tuple[Tensor, ...] = tuple(torch.zeros_like(tensor) for tensor in inputs) if not roots else ()
        if roots and (self._weights or inputs):
            # A weight that a later piece uses too goes on with its sum so far: the order of additions of one graph.
            shared = [weight for weight in self._weights if id(weight) in found]
            wanted = None if wanted is None else (*wanted, *(found[id(weight)] for weight in shared))
            # autograd.grad, not backward(): the latter may change the memory layout of what it stores in .grad.
            result = torch.autograd.grad([*roots, *shared], [*self._weights, *inputs], wanted, materialize_grads=True)
            found |= {id(weight): gradient for weight, gradient in zip(self._weights, result, strict=False)}
            result = result[len(self._weights) :]
        counter.release(as_tuple(passed.inputs))
        counter.release(given)
        return result

    def _run(self, value: Boundary, finish: Finish | None) -> Boundary:
        with self._owner.counter.watch(), self._owner.autocast():
            output: Boundary = self._module(value)
            return output if finish is None else _scalar(finish(only_tensor(output)))

    def _without_graph(self, value: Boundary) -> Boundary:
        with torch.no_grad(), self._owner.autocast():
            output: Boundary = self._module(value)
        has_gradient = bool(self._weights or needing_gradient(value))
        leaves = [
            # A block may hand on its input: that one keeps its own flag.
            tensor.detach().requires_grad_(has_gradient and _is_differentiable(tensor))
            for tensor in as_tuple(output)
        ]
        return tuple(leaves) if isinstance(output, tuple) else leaves[0]

    def _again(self, passed: _Passed, gradients: tuple[Tensor, ...]) -> tuple[list[Any], tuple[Tensor, ...]]:
        """Forward once more, with a graph. BatchNorm has seen the micro-batch already; random numbers repeat."""
        device = self._owner.device
        with record_statistics(tracking_layers(self._module)), _random_numbers(passed.random_state, device):
            outputs = as_tuple(self._run(passed.inputs, None))
        outputs = tuple(tensor for tensor in outputs if _is_differentiable(tensor))
        pairs = [(_root(o), g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
        return [root for root, _ in pairs], tuple(gradient for _, gradient in pairs)


def as_tuple(value: Boundary) -> tuple[Tensor, ...]:
    """Raises TypeError for anything else than what may go from block to block."""
    if isinstance(value, Tensor):
        return (value,)
    if type(value) is not tuple or not all(isinstance(tensor, Tensor) for tensor in value):
        raise TypeError(f"from block to block goes a tensor or a plain tuple of tensors, got {type(value).__name__}")
    return value


def as_leaves(value: Boundary) -> Boundary:
    """The same tensors at the start of a new graph."""
    leaves = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in as_tuple(value))
    return leaves if isinstance(value, tuple) else leaves[0]


def needing_gradient(value: Boundary) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in as_tuple(value) if tensor.requires_grad)


def _root(tensor: Tensor) -> Any:
    """A loss and a tensor that is handed on stay tensors: autograd starts at the one and ends at the other."""
    return tensor if tensor.is_leaf or tensor.ndim == 0 else torch.autograd.graph.get_gradient_edge(tensor)


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _scalar(loss: Tensor) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(f"the loss function must return a scalar tensor, the sum over the samples; got {given}")
    return loss


def only_tensor(output: Boundary) -> Tensor:
    """The output of the network.

    Raises:
        TypeError: it is a tuple.
    """
    if isinstance(output, tuple):
        raise TypeError(f"the last block must give one tensor for the loss, got a tuple of {len(output)}")
    return output


def _random_state(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return states if device.type != "cuda" else [*states, torch.cuda.get_rng_state(device)]


@contextmanager
def _random_numbers(states: list[Tensor], device: torch.device) -> Iterator[None]:
    """Draw the random numbers again that followed these states."""
    before = _random_state(device)
    _set_random_state(states, device)
    try:
        yield
    finally:
        _set_random_state(before, device)


def _set_random_state(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
