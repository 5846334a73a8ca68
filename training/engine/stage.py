"""One stage on this rank: forward and backward of a micro-batch, and the sums of the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from training.engine.batchnorm import RunningStatistics
from training.engine.gradient_rows import GradientRows, checksum
from training.engine.memory import LiveBytes
from training.engine.random_numbers import Draws
from training.engine.recompute import Segment
from training.engine.saved import Kept, Saver, check_unchanged
from training.engine.tree_sum import TreeSum

Boundary = Tensor | tuple[Tensor, ...]
"""Value that one block passes to the next."""
Precision = Literal["fp32", "bf16", "fp16"]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
Finish = Callable[[Tensor], Tensor]
"""Output of the network -> loss of the micro-batch."""
Block = Callable[[Any], Any]
Gradients = tuple[Tensor | None, ...]
"""Gradients of a boundary's tensors that need one; None for a tensor that nothing depends on."""


class StageCopy:
    """The blocks of a stage, with the activations between forward and backward and the gradient sum of the step.

    One copy serves every replica whose stage is on this rank.
    """

    def __init__(
        self,
        module: nn.Sequential,
        *,
        stage: int,
        first_block: int,
        device: torch.device,
        precision: Precision = "fp32",
        segments: Sequence[Segment] | None = None,
        counter: LiveBytes | None = None,
        is_last: bool = True,
        blocks: Sequence[Block] | None = None,
    ):
        """Take over the blocks of a stage.

        Args:
            first_block: index of its first block in the whole network.
            blocks: to call in place of the module's own, such as compiled ones.
        """
        self.module = module
        self.stage = stage
        named = [(name, weight) for name, weight in module.named_parameters() if weight.requires_grad]
        self.names = [name for name, _ in named]
        self.weights = [weight for _, weight in named]
        self.gradient_sum = TreeSum()
        self.running = RunningStatistics(module)
        self.statistics: dict[int, Tensor] = {}
        self.rows = GradientRows(self.weights)
        self.checksums: dict[int, Tensor] = {}
        """A scalar for each micro-batch's gradients: not finite where one of them is not."""
        self.counter = counter or LiveBytes()
        self.counter.exclude([*module.parameters(), *module.buffers(), *self.running.rows])
        self.device = device
        self.at = f"block {first_block} of the network"
        """Current position of this rank, for people; blocks have their index in the whole network."""
        self._precision = precision
        self._blocks: list[Block] = list(blocks or module)
        self._modes = [(name, layer, layer.training) for name, layer in module.named_modules()]
        self._trained = [(name, weight, weight.requires_grad) for name, weight in module.named_parameters()]
        self._buffers = [
            (name, buffer)
            for name, buffer in module.named_buffers()
            if not self.running.replays(module.get_submodule(name.rpartition(".")[0]))
        ]
        everything = [Segment(range(len(module)), "keep")]
        self._pieces = [
            _Piece(self, [(first_block + i, self._blocks[i]) for i in segment.blocks], module, segment)
            for segment in segments or everything
        ]
        if is_last and self._pieces[-1].recomputed:
            # The loss is kept, so that a user's loss function is called once.
            self._pieces.append(_Piece(self, [], module, Segment(range(0), "keep")))
        self._is_last = is_last
        self._live: dict[int, list[_Passed]] = {}

    def forward(
        self, microbatch: int, value: Boundary, finish: Finish | None, draws: Draws, *, at_once: bool = False
    ) -> Boundary:
        """Run the stage; with `finish`, its output is the loss. Activations stay until the micro-batch's `backward`.

        Args:
            at_once: the micro-batch's backward follows: what would be recomputed first is kept.
        """
        passed: list[_Passed] = []
        versions = [buffer._version for _, buffer in self._buffers]
        last_blocks = next(piece for piece in reversed(self._pieces) if piece.blocks or piece is self._pieces[0])
        self.running.start()
        for piece in self._pieces:
            is_last = piece is self._pieces[-1]
            value = piece.forward(
                value, finish if is_last else None, passed, draws, keep=at_once and piece is last_blocks
            )
        changed = [n for (n, b), before in zip(self._buffers, versions, strict=True) if b._version != before]
        replaced = [n for n, b in self._buffers if self.module.get_buffer(n) is not b]
        if changed or replaced:
            raise ValueError(
                f"forward changed the buffers {', '.join(changed or replaced)} of stage {self.stage}; of all "
                "buffers, only the running statistics of BatchNorm are kept equal on all copies. Remove the code that "
                "changes others."
            )
        self.statistics[microbatch] = self.running.recorded()
        self._live[microbatch] = passed
        return value

    def backward(self, microbatch: int, gradients: Gradients | None) -> Gradients:
        """Add the micro-batch's gradients to the sum of the step.

        Args:
            gradients: those of the outputs that need one; None if the output is the loss.

        Returns:
            gradients of the inputs that need one.

        Raises:
            ValueError: a weight has no gradient, since the output does not depend on it.
        """
        passed = self._live.pop(microbatch)
        found: dict[int, Tensor] = {}
        for index in reversed(range(len(self._pieces))):
            if index:
                passed[index - 1].saver.fetch()
            gradients = self._pieces[index].backward(passed.pop(), gradients, found)
        unused = [name for name, w in zip(self.names, self.weights, strict=True) if id(w) not in found]
        if unused:
            raise ValueError(
                f"the output of stage {self.stage} does not depend on its weights {', '.join(unused)}; freeze them "
                "(requires_grad_(False)) or let the network use them in every micro-batch"
            )
        rows = self.rows.join([found[id(weight)] for weight in self.weights])
        if rows:
            self.checksums[microbatch] = checksum(rows)
        self.gradient_sum.add((microbatch, 1), rows)
        return gradients or ()

    def fetch(self, microbatch: int) -> None:
        """Start copying back from host memory what a micro-batch's backward needs first."""
        self._live[microbatch][-1].saver.fetch()

    def infer(self, value: Boundary, draws: Draws) -> Boundary:
        """Run forward only; nothing is kept."""
        with torch.no_grad(), self.autocast():
            for piece in self._pieces:
                value = piece.call(value, draws)
            return value

    def forget(self) -> None:
        """Drop the sums of a step."""
        self.gradient_sum.take_nodes()
        self.statistics, self.checksums = {}, {}

    def check_modes(self) -> None:
        """Raise ValueError if a mode or the choice of trained weights changed since the engine took over the blocks."""
        changed = [name for name, layer, mode in self._modes if layer.training != mode]
        changed += [name for name, weight, trained in self._trained if weight.requires_grad != trained]
        if changed:
            raise ValueError(
                f"train(), eval() or requires_grad of {', '.join(changed[:5])} in stage {self.stage} changed after the "
                "engine took over the blocks; make a new engine and load this one's state into it"
            )

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put all layers in evaluation mode; restore their previous modes afterwards."""
        before = [layer.training for _, layer, _ in self._modes]
        for _, layer, _ in self._modes:
            layer.training = False
        try:
            yield
        finally:
            for (_, layer, _), mode in zip(self._modes, before, strict=True):
                layer.training = mode

    def autocast(self) -> torch.autocast:
        dtype = AUTOCAST.get(self._precision, torch.float32)
        return torch.autocast(self.device.type, dtype=dtype, enabled=self._precision in AUTOCAST)


@dataclass
class _Passed:
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


class _Piece:
    """One segment of a stage. Its graph ends at its inputs, so it can be discarded and rebuilt."""

    def __init__(self, owner: StageCopy, blocks: list[tuple[int, Block]], module: nn.Module, segment: Segment):
        self.recomputed = segment.policy == "recompute"
        self.blocks = blocks
        self._kept: Kept = "keep" if segment.policy == "recompute" else segment.policy
        self._owner = owner
        own = nn.ModuleList(module[i] for i in segment.blocks)  # type: ignore[index]
        self._weights = [weight for weight in own.parameters() if weight.requires_grad]

    def forward(
        self, value: Boundary, finish: Finish | None, passed: list[_Passed], draws: Draws, *, keep: bool
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
        passed.append(_Passed(inputs, versions, roots, saver, draws))
        return output

    def backward(self, passed: _Passed, gradients: Gradients | None, found: dict[int, Tensor]) -> Gradients:
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
            value = block(value)
        return value

    def _run(self, value: Boundary, finish: Finish | None, saver: Saver, draws: Draws) -> Boundary:
        with saver.watch(), self._owner.autocast():
            output = self.call(value, draws, saver)
            return output if finish is None else _scalar(finish(only_tensor(output)))

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

    def _again(self, passed: _Passed, gradients: Gradients) -> tuple[list[Any], Gradients]:
        """Repeat forward with a graph. BatchNorm has seen the micro-batch already; random numbers repeat."""
        for tensor, version in zip(as_tuple(passed.inputs), passed.versions, strict=True):
            check_unchanged(tensor, version)
        outputs = as_tuple(self._run(passed.inputs, None, passed.saver, passed.draws))
        outputs = tuple(tensor for tensor in outputs if _is_differentiable(tensor))
        pairs = [(_root(o), g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
        return [root for root, _ in pairs], tuple(gradient for _, gradient in pairs)


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


def _as_leaves(value: Boundary) -> Boundary:
    """The same tensors at the start of a new graph."""
    leaves = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in as_tuple(value))
    return leaves if isinstance(value, tuple) else leaves[0]


def _root(tensor: Tensor) -> Any:
    """The graph edge of a tensor. A loss and a leaf stay tensors: autograd starts at one and ends at the other."""
    return tensor if tensor.is_leaf or tensor.ndim == 0 else torch.autograd.graph.get_gradient_edge(tensor)


def _is_differentiable(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _scalar(loss: Tensor) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        given = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise TypeError(f"the loss function must return a scalar tensor, the sum over the samples; got {given}")
    return loss
