"""One stage on this rank: forward and backward of a micro-batch, and the sums of the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from training.engine.boundary import Boundary, Gradients
from training.engine.cutting import Cutting
from training.engine.memory import LiveBytes
from training.engine.piece import Block, Finish, Passed, Piece
from training.engine.random_numbers import Draws
from training.engine.recompute import Segment
from training.engine.sums.gradient_rows import checksum
from training.engine.sums.weight_group import WeightGroup, groups_of

Precision = Literal["fp32", "bf16", "fp16"]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


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
        cutting: Cutting | None = None,
    ):
        """Take over the blocks of a stage.

        Args:
            first_block: index of its first block in the whole network.
            blocks: to call in place of the module's own, such as compiled ones.
            cutting: its parts that are here; None if it has none and its neighbours have none.
        """
        self.module = module
        self.stage = stage
        self.cutting = cutting or Cutting(range(first_block, first_block + len(module)))
        self.groups = groups_of(module, self.cutting.num_sub_graphs, self.cutting.part_numbers)
        """Trained weights, by the parts that have them."""
        self.checksums: dict[int, Tensor] = {}
        """A scalar for each micro-batch's gradients: not finite where one of them is not."""
        self.counter = counter or LiveBytes()
        self.counter.exclude([*module.parameters(), *module.buffers()])
        for group in self.groups:
            self.counter.exclude(group.running.rows)
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
            if not any(group.running.replays(module.get_submodule(name.rpartition(".")[0])) for group in self.groups)
        ]
        self._pieces = [
            Piece(
                self,
                [(first_block + i, self._blocks[i]) for i in segment.blocks],
                self._trained_in(segment, module),
                segment,
            )
            for segment in segments or [Segment(range(len(module)), "keep")]
        ]
        if is_last and self._pieces[-1].recomputed:
            # The loss is kept, so that a user's loss function is called once.
            self._pieces.append(Piece(self, [], [], Segment(range(0), "keep")))
        self._is_last = is_last
        self._live: dict[int, list[Passed]] = {}

    def forward(
        self,
        microbatch: int,
        value: Boundary,
        finish: Finish | None,
        draws: Draws,
        *,
        at_once: bool = False,
    ) -> Boundary:
        """Run the stage; with `finish`, its output is the loss. Activations stay until the micro-batch's `backward`.

        Args:
            at_once: the micro-batch's backward follows: what would be recomputed first is kept.
        """
        passed: list[Passed] = []
        value = self.cutting.begin(microbatch, value)
        versions = [buffer._version for _, buffer in self._buffers]
        last_blocks = next(piece for piece in reversed(self._pieces) if piece.blocks or piece is self._pieces[0])
        for group in self.groups:
            group.running.start()
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
        for group in self.groups:
            group.statistics[microbatch] = group.running.recorded()
        self._live[microbatch] = passed
        return value

    def backward(self, microbatch: int, gradients: Gradients | None, *, of: int = 1) -> Gradients:
        """Add the micro-batch's gradients to the sum of the step.

        Args:
            gradients: those of the outputs that need one; None if the output is the loss.
            of: number of micro-batches of the step.

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
        self.cutting.forget(microbatch)
        self._add(microbatch, found, of)
        return gradients or ()

    def _add(self, microbatch: int, found: dict[int, Tensor], of: int) -> None:
        """Add a micro-batch's gradients, given by the identity of what stands for a weight, to the sums."""
        unused = [
            name
            for group in self.groups
            for weights in self._stand_ins(group).values()
            for name, weight in zip(group.names, weights, strict=True)
            if id(weight) not in found
        ]
        if unused:
            raise ValueError(
                f"the output of stage {self.stage} does not depend on its weights "
                f"{', '.join(dict.fromkeys(unused))}; freeze them (requires_grad_(False)) or let the network use them "
                "in every micro-batch"
            )
        for group in self.groups:
            for leaf, weights in self._stand_ins(group).items():
                rows = group.rows.join([found[id(weight)] for weight in weights])
                if rows:
                    so_far = self.checksums.get(microbatch)
                    self.checksums[microbatch] = checksum(rows) if so_far is None else so_far + checksum(rows)
                group.gradient_sum.add((leaf * of + microbatch, 1), rows)

    def _stand_ins(self, group: WeightGroup) -> dict[int, list[Tensor]]:
        """What stands for each weight of a group, in each part here; a group of one part needs no number for it."""
        if group.part is not None:
            return {0: list(group.weights)}
        return dict(zip(self.cutting.part_numbers, self.cutting.stand_ins(group.weights), strict=True))

    def fetch(self, microbatch: int) -> None:
        """Start copying back from host memory what a micro-batch's backward needs first."""
        self._live[microbatch][-1].saver.fetch()

    def infer(self, value: Boundary, draws: Draws) -> Boundary:
        """Run forward only; nothing is kept. The last stage returns the whole output, on each of its parts."""
        value = self.cutting.begin(draws.microbatch, value)
        with torch.no_grad(), self.autocast():
            for piece in self._pieces:
                value = piece.call(value, draws)
            if self.cutting.is_in_parts and self._is_last:
                return self.cutting.whole_outputs(value, draws.microbatch)[0]
            return value

    def call_block(self, index: int, block: Block, value: Boundary, microbatch: int) -> Boundary:
        """See `Owner`."""
        return self.cutting.call(index, block, value, microbatch)

    def loss_of(self, output: Boundary, finish: Finish, microbatch: int) -> Tensor:
        """See `Owner`."""
        return self.cutting.loss_of(output, finish, microbatch)

    def _trained_in(self, segment: Segment, module: nn.Sequential) -> list[Tensor]:
        """What stands for each trained weight of a segment, in each part here."""
        own = nn.ModuleList(module[i] for i in segment.blocks)
        trained = {id(weight) for weight in own.parameters() if weight.requires_grad}
        return [
            stands_for
            for group in self.groups
            for stands_fors in self._stand_ins(group).values()
            for weight, stands_for in zip(group.weights, stands_fors, strict=True)
            if id(weight) in trained
        ]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Run the forwards of a step; running statistics are recorded and stay as they are."""
        with ExitStack() as stack:
            for group in self.groups:
                stack.enter_context(group.running.recording())
            yield

    def forget(self) -> None:
        """Drop the sums of a step."""
        for group in self.groups:
            group.forget()
        self.checksums = {}

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
