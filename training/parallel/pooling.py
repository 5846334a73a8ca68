"""Pools of tensors in rows.

torch pads a pool above and below alike, but a part has padding on one side only, if at all. So a part's rows get their
padding first: minus infinity for a maximum, zeros for a sum, which is then divided by what torch counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel.convolution import pair
from training.parallel.halo import Window, whole, with_rows
from training.parallel.link import rows_of
from training.parallel.parted import Parted
from training.parallel.sums import summed
from training.parallel.whole import with_enough_rows

Sizes = int | Sequence[int]


def max_pool(
    x: Parted,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Parted:
    """As `functional.max_pool2d`.

    Raises:
        NotSplittableError: places of the maxima are asked for.
    """
    if return_indices:
        raise x.refusal("max_pool2d with return_indices")
    size, step, pad, apart = pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation)
    window = Window(size[0], step[0], pad[0], apart[0])
    x = with_enough_rows(x, window, ceil_mode=ceil_mode)
    if x.height is None:
        return x.like([functional.max_pool2d(t, size, step, pad, apart, ceil_mode) for t in x.tensors], None)
    rows, height = _windows(x, window, ceil_mode, fill=-torch.inf)
    arguments = (step, (0, pad[1]), apart, ceil_mode)
    return x.like([functional.max_pool2d(tensor, size, *arguments) for tensor in rows], height)


def average_pool(
    x: Parted,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Parted:
    """As `functional.avg_pool2d`."""
    size, step, pad = pair(kernel_size), pair(stride or kernel_size), pair(padding)
    counting = (ceil_mode, count_include_pad, divisor_override)
    window = Window(size[0], step[0], pad[0])
    x = with_enough_rows(x, window, ceil_mode=ceil_mode)
    if x.height is None:
        return x.like([functional.avg_pool2d(t, size, step, pad, *counting) for t in x.tensors], None)
    rows, height = _windows(x, window, ceil_mode, fill=0.0)
    sums = [functional.avg_pool2d(t, size, step, (0, pad[1]), ceil_mode, divisor_override=1) for t in rows]
    if divisor_override:
        return x.like([tensor / divisor_override for tensor in sums], height)
    divisors = [_divisors(length, (size[i], step[i], pad[i]), counting[:2]) for i, length in enumerate(x.shape[2:])]
    results = []
    for part, tensor in zip(x.splitting.link.here, sums, strict=True):
        own = rows_of(height, part, x.splitting.link.num_parts)
        counts = divisors[0][own.start : own.stop, None] * divisors[1]
        results.append(tensor / counts.to(tensor.device, tensor.dtype))
    return x.like(results, height)


def _divisors(length: int, window: tuple[int, int, int], counting: tuple[bool, bool]) -> Tensor:
    """What torch divides by along one axis, found by a pool of ones."""
    size, step, pad = window
    ones = torch.ones(1, 1, length, dtype=torch.float64)
    as_torch = functional.avg_pool1d(ones, size, step, pad, *counting)
    full = functional.avg_pool1d(functional.pad(ones, (pad, pad + size)), size, step)[..., : as_torch.shape[2]] * size
    return (full / as_torch).round().view(-1)


def _windows(x: Parted, window: Window, ceil_mode: bool, *, fill: float) -> tuple[list[Tensor], int]:
    """The rows of the windows of each part, with their padding, and the height of the output."""
    assert x.height is not None
    link = x.splitting.link
    height = window.outputs(x.height, ceil_mode=ceil_mode)
    return with_rows(link, x.tensors, x.height, window.wanted(height, link.num_parts), fill), height


def adaptive(function: Callable[..., Tensor]) -> Callable[..., Parted]:
    """A pool to a given size; rows of its windows follow from that size."""
    is_mean = function is functional.adaptive_avg_pool2d

    def operation(x: Parted, output_size: Any, return_indices: bool = False) -> Parted:
        if return_indices:
            raise x.refusal(f"{function.__name__} with return_indices")
        if x.height is None:
            return x.like([function(tensor, output_size) for tensor in x.tensors], None)
        wanted = (output_size, output_size) if isinstance(output_size, int) else output_size
        height, width = (given or size for given, size in zip(wanted, x.shape[2:], strict=True))
        if height < x.splitting.link.num_parts:
            return _to_few_rows(x, function, height, width, is_mean=is_mean)
        return _to_rows(x, function, height, width)

    return operation


def _to_few_rows(x: Parted, function: Callable[..., Tensor], height: int, width: int, *, is_mean: bool) -> Parted:
    """The same result on every part; a mean over all rows, the usual one, moves only sums."""
    assert x.height is not None
    link = x.splitting.link
    if not is_mean or height > 1:
        return x.like([function(tensor, (height, width)) for tensor in whole(link, x.tensors, x.height)], None)
    sums = [functional.adaptive_avg_pool2d(tensor, (1, width)) * tensor.shape[2] for tensor in x.tensors]
    return x.like([total / x.height for total in summed(link, sums)], None)


def _to_rows(x: Parted, function: Callable[..., Tensor], height: int, width: int) -> Parted:
    assert x.height is not None
    link = x.splitting.link
    windows = [range(row * x.height // height, -(-(row + 1) * x.height // height)) for row in range(height)]
    own = [rows_of(height, part, link.num_parts) for part in range(link.num_parts)]
    wanted = tuple(range(windows[rows.start].start, windows[rows.stop - 1].stop) for rows in own)
    results = []
    for part, tensor in zip(link.here, with_rows(link, x.tensors, x.height, wanted), strict=True):
        start = wanted[part].start
        each = [tensor[:, :, windows[row].start - start : windows[row].stop - start] for row in own[part]]
        results.append(torch.cat([function(rows, (1, width)) for rows in each], 2))
    return x.like(results, height)
