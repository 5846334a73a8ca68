"""What each function of torch does with values in parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel import filter as filters
from training.parallel import pooling, resizing
from training.parallel.convolution import Settings, convolution
from training.parallel.halo import format_of
from training.parallel.norm import Running, batch_norm, group_norm
from training.parallel.parted import NotSplittableError, Parted, Splitting
from training.parallel.sums import summed
from training.parallel.whole import gathered, with_enough_rows

Operation = Callable[..., Any]
"""Takes the arguments of the function that it stands for, with a `Parted` first."""
ROWS = 2
"""Axis of (N, C, H, W)."""


def on_each_part(
    splitting: Splitting, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Run a function on each part's own tensors; the result is cut as the arguments are."""
    values = [value for value in _flat((*args, *kwargs.values())) if isinstance(value, Parted)]
    heights = {value.height for value in values if value.height is not None and value.dim() == 4}
    if len(heights) > 1:
        raise NotSplittableError(f"{name_of(function)} of tensors with {' and '.join(map(str, sorted(heights)))} rows")
    height = heights.pop() if heights else None
    for value in _flat((*args, *kwargs.values())):
        _check_broadcast(function, value, height)
    results = []
    for index in range(len(splitting.link.here)):
        own = [_of_part(splitting, value, index) for value in args]
        named = {name: _of_part(splitting, value, index) for name, value in kwargs.items()}
        results.append(function(*own, **named))
    return _gathered(splitting, results, height)


def _check_broadcast(function: Callable[..., Any], value: Any, height: int | None) -> None:
    """A tensor that every part has whole may meet rows only where it has the same numbers for all of them."""
    if height is None or not isinstance(value, Tensor | Parted):
        return
    is_whole = isinstance(value, Tensor) or value.height is None
    if is_whole and value.dim() > 1 and value.shape[-2:][0] != 1:
        raise NotSplittableError(f"{name_of(function)} of an image in rows and a tensor {tuple(value.shape)}")


def _gathered(splitting: Splitting, results: list[Any], height: int | None) -> Any:
    if isinstance(results[0], Tensor):
        return Parted(splitting, tuple(results), height)
    if isinstance(results[0], list | tuple):
        return type(results[0])(_gathered(splitting, list(each), height) for each in zip(*results, strict=True))
    return results[0]


def _of_part(splitting: Splitting, value: Any, index: int) -> Any:
    if isinstance(value, Parted):
        return value.tensors[index]
    if isinstance(value, list | tuple) and any(isinstance(each, Parted | Tensor) for each in value):
        return type(value)(_of_part(splitting, each, index) for each in value)
    return splitting.of_part(value, index)


def _flat(values: Sequence[Any]) -> list[Any]:
    flat = []
    for value in values:
        flat += _flat(value) if isinstance(value, list | tuple) else [value]
    return flat


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function for people."""
    return str(getattr(function, "__name__", function))


# --- operations on rows ----------------------------------------------------------------------------------------------


def _convolution(x: Parted, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any) -> Parted:
    settings = Settings.of(weight, *args, **kwargs)
    x = with_enough_rows(x, settings.along_height(weight.shape[2]))
    weights, biases = _of_each_part(x, weight), _of_each_part(x, bias)
    link, split = x.splitting.link, x.splitting.split
    if x.height is not None:
        rows, height = convolution(link, x.tensors, x.height, weights, biases, settings)
        return x.like(rows, height)
    if settings.groups >= link.num_parts > 1 and split in ("filter", "channel"):
        return x.like(filters.by_groups(link, x.tensors, weights, biases, settings), None)
    if settings.groups > 1:
        return on_each_part(x.splitting, torch.conv2d, (x, weight, bias, *args), kwargs)  # type: ignore[no-any-return]
    return _layer(x, weights, biases, filters.convolve_whole(settings))


_BATCH_NORM = inspect.signature(functional.batch_norm)


def _linear(x: Parted, weight: Tensor, bias: Tensor | None = None) -> Parted:
    if x.height is not None:
        raise NotSplittableError("linear of an image in rows")
    if x.dim() != 2:
        return on_each_part(x.splitting, functional.linear, (x, weight, bias), {})  # type: ignore[no-any-return]
    return _layer(x, _of_each_part(x, weight), _of_each_part(x, bias), functional.linear)


def _layer(x: Parted, weights: list[Any], biases: list[Any], layer: filters.Layer) -> Parted:
    """A layer of a tensor that every part has whole: shared out if the stage is cut that way."""
    link, split = x.splitting.link, x.splitting.split
    if split == "filter" and weights[0].shape[0] >= link.num_parts:
        return x.like(filters.by_filters(link, x.tensors, weights, biases, layer), None)
    if split == "channel" and weights[0].shape[1] >= link.num_parts:
        return x.like(filters.by_channels(link, x.tensors, weights, biases, layer), None)
    return x.like([layer(*each) for each in zip(x.tensors, weights, biases, strict=True)], None)


def _of_each_part(x: Parted, value: Any) -> list[Any]:
    return [x.splitting.of_part(value, index) for index in range(len(x.tensors))]


def _batch_norm(x: Parted, *args: Any, **kwargs: Any) -> Parted:
    given = _BATCH_NORM.bind(x, *args, **kwargs)
    given.apply_defaults()
    named = given.arguments
    if x.height is None or not named["training"]:
        return _batch_norm_of_copies(x, named)
    weights, biases = _of_each_part(x, named["weight"]), _of_each_part(x, named["bias"])
    running = Running(named["running_mean"], named["running_var"], named["momentum"])
    return x.like(batch_norm(x.splitting.link, x.tensors, x.height, running, weights, biases, named["eps"]), x.height)


def _batch_norm_of_copies(x: Parted, named: dict[str, Any]) -> Parted:
    """Each part normalises what it has; in training, running statistics are updated once."""
    results = []
    for index, tensor in enumerate(x.tensors):
        own = {name: x.splitting.of_part(named[name], index) for name in ("weight", "bias")}
        kept = {} if index and named["training"] else {name: named[name] for name in ("running_mean", "running_var")}
        nothing = {"running_mean": None, "running_var": None}
        results.append(functional.batch_norm(**{**named, **own, **nothing, **kept, "input": tensor}))
    return x.like(results, x.height)


def _group_norm(
    x: Parted, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Parted:
    if x.height is None:
        return on_each_part(x.splitting, functional.group_norm, (x, num_groups, weight, bias, eps), {})  # type: ignore[no-any-return]
    weights, biases = _of_each_part(x, weight), _of_each_part(x, bias)
    rows = group_norm(x.splitting.link, x.tensors, x.height, num_groups, weights, biases, eps)
    return x.like(rows, x.height)


def _dropout(x: Parted, p: float = 0.5, training: bool = True, inplace: bool = False) -> Parted:
    """Draw the mask of the whole tensor on each part, as one process does, and take a part's rows of it."""
    if not training or p == 0:
        return x
    ones = torch.ones_like(x.tensors[0], requires_grad=False)
    if x.height is None:
        mask = functional.dropout(ones, p, True)
        return x.like([tensor * mask for tensor in x.tensors], None)
    mask = functional.dropout(ones.new_ones(x.shape).to(memory_format=format_of(x.tensors[0])), p, True)
    own = [x.own_rows(index) for index in range(len(x.tensors))]
    parts = zip(x.tensors, own, strict=True)
    return x.like([tensor * mask[:, :, rows.start : rows.stop] for tensor, rows in parts], x.height)


def _channel_dropout(x: Parted, p: float = 0.5, training: bool = True, inplace: bool = False) -> Parted:
    """Whole channels are dropped: the same ones on every part."""
    if not training or p == 0:
        return x
    images, channels = x.shape[:2]
    mask = functional.dropout(x.tensors[0].new_ones((images, channels, *(1,) * (x.dim() - 2))), p, True)
    return x.like([tensor * mask for tensor in x.tensors], x.height)


# --- reductions and whole tensors ------------------------------------------------------------------------------------


def _axes(dim: Any, ndim: int) -> set[int]:
    dims = range(ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return {axis % ndim for axis in dims}


def _mean(x: Parted, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Parted:
    if x.height is None or ROWS not in _axes(dim, x.dim()):
        return _along_other_axes(x, torch.mean, dim, keepdim, kwargs)
    total = _sum(x, dim, keepdim, **kwargs)
    count = x.numel() / total.numel()
    return x.like([tensor / count for tensor in total.tensors], None)


def _sum(x: Parted, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Parted:
    if x.height is None or ROWS not in _axes(dim, x.dim()):
        return _along_other_axes(x, torch.sum, dim, keepdim, kwargs)
    axes = sorted(_axes(dim, x.dim()))
    own = [torch.sum(tensor, axes, keepdim=keepdim, **kwargs) for tensor in x.tensors]
    return x.like(summed(x.splitting.link, own), None)


def _along_other_axes(x: Parted, function: Callable[..., Any], dim: Any, keepdim: bool, kwargs: Any) -> Parted:
    if x.height is not None and not keepdim and min(_axes(dim, x.dim())) < ROWS:
        raise NotSplittableError(f"{name_of(function)} over the axes {dim} without keepdim")
    arguments = {} if dim is None else {"dim": dim, "keepdim": keepdim}
    result: Parted = on_each_part(x.splitting, function, (x,), {**arguments, **kwargs})
    return result


def _on_whole(function: Callable[..., Any]) -> Operation:
    """A function that needs the whole tensor, which every part is given."""

    def operation(x: Parted, *args: Any, **kwargs: Any) -> Any:
        return on_each_part(x.splitting, function, (gathered(x), *args), kwargs)

    return operation


def _per_channel(function: Callable[..., Any]) -> Operation:
    """A function along the axis of channels."""

    def operation(x: Any, *args: Any, **kwargs: Any) -> Any:
        values = [value for value in _flat([x]) if isinstance(value, Parted)]
        dim = kwargs.get("dim", next((value for value in reversed(args) if isinstance(value, int)), 0))
        if any(value.height is not None for value in values) and dim % 4 != 1:
            raise NotSplittableError(f"{name_of(function)} along axis {dim}")
        return on_each_part(values[0].splitting, function, (x, *args), kwargs)

    return operation


_ELEMENTWISE_NAMES = """
    add add_ sub sub_ mul mul_ div div_ neg neg_ abs pow exp log sqrt rsqrt square clamp clamp_ clamp_min clamp_max
    reciprocal sigmoid sigmoid_ tanh tanh_ relu relu_ maximum minimum lerp addcmul where rsub true_divide multiply
    clone contiguous detach to float double half bfloat16 type_as requires_grad_ silu hardtanh hardtanh_ erf
    selu selu_ celu celu_ prelu softplus lt le gt ge eq ne logical_and logical_or logical_not sign floor ceil round
    bitwise_and bitwise_or
"""
_FUNCTIONAL_NAMES = """
    relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ selu celu gelu silu mish hardswish hardsigmoid hardtanh hardtanh_
    sigmoid tanh softplus softsign logsigmoid prelu threshold threshold_ tanhshrink softshrink hardshrink
"""


def _elementwise() -> set[Callable[..., Any]]:
    """Functions of torch in which each number of the result depends on the numbers in the same place."""
    homes = [(torch, _ELEMENTWISE_NAMES), (Tensor, _ELEMENTWISE_NAMES), (functional, _FUNCTIONAL_NAMES)]
    return {
        getattr(home, name) for home, names in homes for name in names.split() if callable(getattr(home, name, None))
    }


def _with_input_first(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    return (args, kwargs) if args else ((kwargs["input"],), {k: v for k, v in kwargs.items() if k != "input"})


ELEMENTWISE = _elementwise()
OPERATIONS: dict[Callable[..., Any], Operation] = {
    torch.conv2d: _convolution,
    functional.linear: _linear,
    functional.batch_norm: _batch_norm,
    functional.group_norm: _group_norm,
    functional.dropout: _dropout,
    functional.dropout2d: _channel_dropout,
    functional.max_pool2d: pooling.max_pool,
    functional.avg_pool2d: pooling.average_pool,
    functional.adaptive_avg_pool2d: pooling.adaptive(functional.adaptive_avg_pool2d),
    functional.adaptive_max_pool2d: pooling.adaptive(functional.adaptive_max_pool2d),
    functional.interpolate: resizing.interpolate,
    torch.mean: _mean,
    Tensor.mean: _mean,
    torch.sum: _sum,
    Tensor.sum: _sum,
    **{function: _on_whole(function) for function in (torch.flatten, Tensor.flatten, torch.amax, Tensor.amax)},
    **{function: _on_whole(function) for function in (Tensor.reshape, torch.reshape, Tensor.view)},
    **{
        function: _per_channel(function)
        for function in (
            torch.cat, torch.concat, functional.softmax, torch.softmax, functional.log_softmax, torch.chunk,
            Tensor.chunk, torch.split, Tensor.split, Tensor.narrow,
        )
    },
}  # fmt: skip
"""Functions that need more than each part's own numbers."""


def apply(splitting: Splitting, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run a function of torch on values in parts.

    Raises:
        NotSplittableError: it cannot be computed in parts.
    """
    if function in OPERATIONS:
        given, named = _with_input_first(args, kwargs)
        return OPERATIONS[function](*given, **named)
    in_rows = any(isinstance(value, Parted) and value.height is not None for value in _flat((*args, *kwargs.values())))
    if in_rows and function not in ELEMENTWISE:
        raise NotSplittableError(f"{name_of(function)}, of which gemslide does not know how to split it")
    return on_each_part(splitting, function, args, kwargs)
