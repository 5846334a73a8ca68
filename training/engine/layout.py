"""Memory layout of tensors, so that a receiver can lay them out as the sender had them.

With a different memory layout the same convolution may add in a different order, and the gradients would no longer be
equal, bit for bit, to those of one process: a receive buffer keeps the *sender's strides*.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.engine.boundary import Boundary, as_tuple

HEADER_LENGTH = 140
_ALIGN_BYTES = 16
_DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.uint8,
    torch.int64,
    torch.int32,
    torch.bool,
)


@dataclass(frozen=True)
class Layout:
    """One tensor without its values."""

    dtype: torch.dtype
    needs_gradient: bool
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    height: int | None = None
    """Rows of the whole tensor if this is a part of its rows."""

    @property
    def core_sizes(self) -> tuple[int, ...]:
        """Sizes without repetition: an expanded dimension (stride 0) is one element long in memory."""
        return tuple(size if stride else min(size, 1) for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def num_bytes(self) -> int:
        return math.prod(self.core_sizes) * self.dtype.itemsize

    @property
    def has_gaps(self) -> bool:
        return _span(self.core_sizes, self.strides) != math.prod(self.core_sizes)

    def arrange(self, row: Tensor) -> Tensor:
        """The tensor whose bytes `lay_out` returned; it needs a gradient, as a leaf, if the sender's did."""
        memory = row.view(self.dtype)
        if self.has_gaps:
            spaced = torch.empty_strided(self.core_sizes, self.strides, dtype=self.dtype, device=row.device)
            memory = spaced.copy_(memory.view(self.core_sizes))
        return memory.as_strided(self.sizes, self.strides).requires_grad_(self.needs_gradient)


@dataclass(frozen=True)
class BoundaryLayout:
    """All tensors of one message."""

    tensors: tuple[Layout, ...]
    is_tuple: bool

    def header(self) -> list[int]:
        """The layout as `HEADER_LENGTH` numbers.

        Raises:
            ValueError: a type that cannot be sent, or too many tensors.
        """
        numbers = [len(self.tensors), int(self.is_tuple)]
        for tensor in self.tensors:
            if tensor.dtype not in _DTYPES:
                raise ValueError(
                    f"{tensor.dtype} cannot be sent between stages; use one of {', '.join(map(str, _DTYPES))}"
                )
            height = -1 if tensor.height is None else tensor.height
            kind = (_DTYPES.index(tensor.dtype), int(tensor.needs_gradient), height, len(tensor.sizes))
            numbers += [*kind, *tensor.sizes, *tensor.strides]
        if len(numbers) > HEADER_LENGTH:
            raise ValueError(
                f"{len(self.tensors)} tensors between two stages need a header of {len(numbers)} numbers, but at "
                f"most {HEADER_LENGTH} fit; let the block before the cut return fewer tensors"
            )
        return numbers + [0] * (HEADER_LENGTH - len(numbers))

    @classmethod
    def from_header(cls, numbers: list[int]) -> "BoundaryLayout":
        num_tensors, is_tuple, *rest = numbers
        tensors = []
        for _ in range(num_tensors):
            dtype, needs, height, ndim = rest[:4]
            sizes, strides = rest[4 : 4 + ndim], rest[4 + ndim : 4 + 2 * ndim]
            known = None if height < 0 else height
            tensors.append(Layout(_DTYPES[dtype], bool(needs), tuple(sizes), tuple(strides), known))
            rest = rest[4 + 2 * ndim :]
        return cls(tuple(tensors), bool(is_tuple))


def lay_out(value: Boundary, heights: Sequence[int | None] | None = None) -> tuple[BoundaryLayout, list[Tensor]]:
    """Layout and bytes of a message: each tensor's own memory, or a copy in row order if that has gaps or overlaps.

    Args:
        heights: rows of each whole tensor, if these are parts of them.
    """
    layouts, rows = [], []
    tensors = as_tuple(value)
    for tensor, height in zip(tensors, heights or [None] * len(tensors), strict=True):
        plain = _without_overlaps(tensor.detach())
        layout = Layout(plain.dtype, tensor.requires_grad, tuple(plain.shape), plain.stride(), height)
        core = plain.as_strided(layout.core_sizes, layout.strides)
        row = core.contiguous().view(-1) if layout.has_gaps else core.as_strided((core.numel(),), (1,))
        layouts.append(layout)
        rows.append(row.view(torch.uint8))
    return BoundaryLayout(tuple(layouts), isinstance(value, tuple)), rows


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """All tensors as one flat row of bytes; each starts at a multiple of 16, so it can be viewed in place."""
    rows = []
    for tensor in tensors:
        row = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        rows += [row, row.new_zeros(-len(row) % _ALIGN_BYTES)]
    return torch.cat(rows) if rows else torch.empty(0, dtype=torch.uint8)


def unpack(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Contiguous views of a row from `pack`, with the types and shapes of `like`."""
    views = []
    start = 0
    for tensor in like:
        num_bytes = tensor.numel() * tensor.element_size()
        views.append(packed[start : start + num_bytes].view(tensor.dtype).reshape(tensor.shape))
        start += num_bytes + -num_bytes % _ALIGN_BYTES
    return views


def packed_bytes(like: Sequence[Tensor]) -> int:
    """Length of the row that `pack` makes of such tensors."""
    return sum(-(-tensor.numel() * tensor.element_size() // _ALIGN_BYTES) * _ALIGN_BYTES for tensor in like)


def _without_overlaps(tensor: Tensor) -> Tensor:
    core = tuple(size if stride else min(size, 1) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.contiguous() if _span(core, tensor.stride()) is None else tensor


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """Elements of memory from the first to the last; None if two indices share one."""
    span = min(1, math.prod(sizes))
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and stride < span:
            return None
        span += stride * (size - 1) if size > 1 else 0
    return span
