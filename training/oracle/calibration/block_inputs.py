"""What each block of a network takes from the one before it, and names under which equal blocks are known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from training.engine.boundary import Boundary, Heights, as_tuple
from training.engine.partition import fake_tensors, on_device, part_alone, without_memory
from training.engine.stage import AUTOCAST, Precision
from training.parallel.division import WHOLE, Division
from training.parallel.wrap import Form


class Shape(NamedTuple):
    """A tensor without values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool

    def make(self, device: torch.device) -> Tensor:
        """A tensor of this shape with any finite values; a leaf, as one that came from another rank."""
        tensor = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=device)
        if self.dtype.is_floating_point:
            tensor.normal_()
        else:
            tensor.zero_()
        return tensor.requires_grad_(self.requires_grad)


@dataclass(frozen=True)
class BlockInput:
    """What a block takes from the one before it."""

    shapes: tuple[Shape, ...]
    is_tuple: bool
    heights: Heights | None = None
    """Of the whole tensors, if a part takes it; None for what is not divided, and for the network's input."""

    def make(self, device: torch.device) -> Boundary:
        """Tensors of these shapes."""
        tensors = tuple(shape.make(device) for shape in self.shapes)
        return tensors if self.is_tuple else tensors[0]


@dataclass(frozen=True)
class Setting:
    """What the seconds of a block depend on, apart from block and machine."""

    input_shape: tuple[int, ...]
    """Of one micro-batch."""
    precision: Precision = "fp32"
    channels_last: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    division: Division = WHOLE
    part: int = 0
    """The part that is at work, on this rank."""


def block_inputs(blocks: Sequence[nn.Module], setting: Setting) -> list[BlockInput]:
    """What each block, or its part at work, takes, found on tensors without storage.

    Raises:
        ValueError: a block cannot be divided so.
    """
    device, dtype = setting.device, AUTOCAST.get(setting.precision, torch.float32)
    shells = without_memory(blocks, channels_last=setting.channels_last)
    inputs = []
    with fake_tensors():
        is_image = len(setting.input_shape) == 4
        memory_format = torch.channels_last if setting.channels_last and is_image else torch.contiguous_format
        value: Boundary = torch.empty(setting.input_shape, device=device, memory_format=memory_format)
        with torch.autocast(device.type, dtype=dtype, enabled=setting.precision in AUTOCAST):
            fakes = on_device(shells, device).train()
            cutting = part_alone(list(fakes), setting.division, setting.part)
            inputs.append(_input_of(value, None))
            value = cutting.begin(0, value)
            for index, block in enumerate(fakes):
                if index:
                    inputs.append(_input_of(value, cutting.form_before(index, 0)))
                value = cutting.call(index, block, value, 0)
    return inputs


def _input_of(value: Boundary, form: Form | None) -> BlockInput:
    shapes = tuple(Shape(tuple(t.shape), t.stride(), t.dtype, t.requires_grad) for t in as_tuple(value))
    if form is None:
        return BlockInput(shapes, isinstance(value, tuple))
    return BlockInput(shapes, form.is_tuple, form.heights)


def fingerprints(blocks: Sequence[nn.Module], setting: Setting) -> list[str]:
    """Names under which the blocks of a network are measured: equal for blocks that take the same time.

    Those of parts are the same whichever is at work.

    Raises:
        ValueError: a block cannot be divided so.
    """
    last_part = replace(setting, part=setting.division.parts - 1)
    last = len(blocks) - 1
    return [
        _fingerprint(block, taken, setting.division, is_last=index == last)
        for index, (block, taken) in enumerate(zip(blocks, block_inputs(blocks, last_part), strict=True))
    ]


def _fingerprint(block: nn.Module, taken: BlockInput, division: Division, *, is_last: bool) -> str:
    weights = tuple(
        (name, tuple(weight.shape), weight.dtype, weight.requires_grad) for name, weight in block.named_parameters()
    )
    named = type(block).__qualname__, repr(block), weights, taken, tuple(division), is_last
    return hashlib.sha256(repr(named).encode()).hexdigest()[:16]
