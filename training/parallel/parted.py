"""A value in parts, which the blocks of a network take for a tensor.

`Parted` is no tensor: functions of torch, and modules, which call them, hand their call over to it. It looks the
function up (operations.py) and runs what that says on the tensors of the parts in this process. So a block's own
forward runs unchanged, with whatever Python is in it, and an operation that cannot be split is refused by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from training.parallel.link import Link, rows_of

Split = Literal["rows", "filter", "channel", "branches"]
"""What the parts of a stage share out: rows of images, filters of layers, the channels that layers take, or branches
of blocks (branches.py)."""


class Splitting(Protocol):
    """What all values of one stage share."""

    @property
    def link(self) -> Link: ...

    @property
    def split(self) -> Split: ...

    def of_part(self, value: Any, index: int) -> Any:
        """A weight as the part with this index in this process uses it; anything else unchanged."""

    def apply(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function of torch on values in parts.

        Raises:
            NotSplittableError: it cannot be computed in parts.
        """


class NotSplittableError(ValueError):
    """An operation of a block cannot be computed in parts."""


@dataclass(frozen=True, eq=False)
class Parted:
    """One tensor of the network."""

    splitting: Splitting
    tensors: tuple[Tensor, ...]
    """What each part in this process has of it."""
    height: int | None = None
    """Rows (the third axis) of the whole tensor, which is cut there; None: each part has a whole copy."""

    _METHODS: ClassVar[frozenset[str]] = frozenset(dir(Tensor))

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        first = next(parted_in((*args, *kwargs.values())))
        return first.splitting.apply(func, args, kwargs)

    @property
    def shape(self) -> torch.Size:
        """Shape of the whole tensor."""
        shape = list(self.tensors[0].shape)
        if self.height is not None:
            shape[2] = self.height
        return torch.Size(shape)

    def own_rows(self, index: int) -> range:
        """Rows of the part with this index in this process."""
        assert self.height is not None
        return rows_of(self.height, self.splitting.link.here[index], self.splitting.link.num_parts)

    def like(self, tensors: Sequence[Tensor], height: int | None) -> Parted:
        """Another value of the same stage."""
        return Parted(self.splitting, tuple(tensors), height)

    def refusal(self, what: str) -> NotSplittableError:
        """An error about an operation on it."""
        return NotSplittableError(what)

    def size(self, dim: int | None = None) -> torch.Size | int:
        """As `Tensor.size`."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """Number of axes."""
        return self.tensors[0].dim()

    ndim = property(dim)
    dtype = property(lambda self: self.tensors[0].dtype)
    device = property(lambda self: self.tensors[0].device)
    requires_grad = property(lambda self: self.tensors[0].requires_grad)
    is_cuda = property(lambda self: self.tensors[0].is_cuda)

    def numel(self) -> int:
        """Number of elements of the whole tensor."""
        return self.shape.numel()

    def is_floating_point(self) -> bool:
        """As `Tensor.is_floating_point`."""
        return self.tensors[0].is_floating_point()

    def __getattr__(self, name: str) -> Any:
        """A method of tensors, such as `relu_`."""
        if name.startswith("__") or name not in self._METHODS or not callable(method := getattr(Tensor, name)):
            raise AttributeError(f"a tensor in parts has no {name}")
        return lambda *args, **kwargs: self.splitting.apply(method, (self, *args), kwargs)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        raise NotSplittableError("iterating over a tensor")

    def __bool__(self) -> bool:
        raise NotSplittableError("a condition that depends on the values of a tensor")

    def __neg__(self) -> Any:
        return self.splitting.apply(torch.neg, (self,), {})

    def __getitem__(self, index: Any) -> Any:
        return self.splitting.apply(Tensor.__getitem__, (self, index), {})


def _binary(function: Callable[..., Any], *, reverse: bool = False) -> Callable[[Parted, Any], Any]:
    def operation(self: Parted, other: Any) -> Any:
        return self.splitting.apply(function, (other, self) if reverse else (self, other), {})

    return operation


_OPERATORS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("lt", torch.lt), ("le", torch.le), ("gt", torch.gt), ("ge", torch.ge), ("eq", torch.eq), ("ne", torch.ne),
    ("matmul", torch.matmul), ("floordiv", torch.floor_divide), ("mod", torch.remainder),
    ("and", torch.bitwise_and), ("or", torch.bitwise_or),
)  # fmt: skip
for _name, _function in _OPERATORS:
    setattr(Parted, f"__{_name}__", _binary(_function))
for _name, _function in (
    ("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("truediv", torch.div), ("pow", torch.pow),
):  # fmt: skip
    setattr(Parted, f"__{_name}__", _binary(_function))
    setattr(Parted, f"__r{_name}__", _binary(_function, reverse=True))
    if _name != "pow":
        setattr(Parted, f"__i{_name}__", _binary(getattr(Tensor, f"{_function.__name__}_")))


def parted_in(values: Iterable[Any]) -> Iterator[Parted]:
    """The values in parts of a call, with those in its lists and tuples."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from parted_in(value)
        elif isinstance(value, Parted):
            yield value
