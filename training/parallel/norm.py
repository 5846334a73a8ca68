"""Normalisation by the statistics of all parts.

Only sums pass between the parts, a few numbers for each channel. What the kernels of torch can do is left to them:
statistics of a part's own rows, scaling, and the sums of backward; the means over all parts then enter the gradient
by one multiplication and one addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel.link import Link, gather_small, rows_of
from training.parallel.sums import sums_of


@dataclass(frozen=True)
class Statistics:
    """Mean and biased variance of each channel over all parts, and the number of values of each."""

    mean: Tensor
    variance: Tensor
    count: int


def statistics_of(link: Link, rows: Sequence[Tensor], height: int) -> list[Statistics]:
    """Statistics of each channel, on each part in this process: the same bits on all.

    Parts are combined by their numbers of values: by Chan's formula for two samples' variances, in one sum.
    """
    own = [_own_statistics(x) for x in rows]
    counts = [len(rows_of(height, part, link.num_parts)) for part in range(link.num_parts)]
    total = rows[0].shape[0] * rows[0].shape[3]
    shares = [count / height for count in counts]
    result = []
    for gathered in gather_small(link, own):
        mean = _weighted(shares, [each[0] for each in gathered])
        spread = [each[1] + (each[0] - mean).square() for each in gathered]
        result.append(Statistics(mean, _weighted(shares, spread), total * height))
    return result


def _weighted(shares: Sequence[float], values: Sequence[Tensor]) -> Tensor:
    total = torch.zeros_like(values[0])
    for share, value in zip(shares, values, strict=True):
        total = total.add(value, alpha=share)
    return total


def _own_statistics(x: Tensor) -> Tensor:
    """(2, C): mean and biased variance, in float64: sums of float32 numbers of different parts lose nothing there."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    running = [torch.zeros(x.shape[1], dtype=dtype, device=x.device) for _ in range(2)]
    # With running statistics in float32, those of bf16 tensors are in float32 too.
    mean, variance = torch.batch_norm_update_stats(x, running[0], running[1], 0.0)
    return torch.stack([mean, variance]).double()


class _BatchNorm(torch.autograd.Function):
    """Arguments after the first four: for each part its rows, then its weight, then its bias."""

    @staticmethod
    def forward(ctx: Any, link: Link, statistics: list[Statistics], eps: float, *tensors: Any) -> tuple[Tensor, ...]:
        count = len(statistics)
        rows, weights, biases = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
        means = [each.mean.to(_wide(x)) for each, x in zip(statistics, rows, strict=True)]
        variances = [each.variance.to(_wide(x)) for each, x in zip(statistics, rows, strict=True)]
        ctx.link, ctx.eps, ctx.count = link, eps, statistics[0].count
        ctx.has_weight = weights[0] is not None
        ctx.save_for_backward(*rows, *means, *variances, *(weights if ctx.has_weight else ()))
        parts = zip(rows, means, variances, weights, biases, strict=True)
        return tuple(
            functional.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps)
            for x, mean, variance, weight, bias in parts
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count, saved = len(gradients), ctx.saved_tensors
        rows, means, variances = (saved[i * count : (i + 1) * count] for i in range(3))
        weights = saved[3 * count :] if ctx.has_weight else [None] * count
        needs = ctx.needs_input_grad[3]
        found = [
            torch.ops.aten.native_batch_norm_backward(
                gradient, x, weight, mean, variance, None, None, False, ctx.eps, [needs, True, True]
            )
            for gradient, x, mean, variance, weight in zip(gradients, rows, means, variances, weights, strict=True)
        ]
        of_rows: list[Tensor | None] = [None] * count
        if needs:
            sums = sums_of(ctx.link, [torch.stack([of_bias, of_weight]).double() for _, of_weight, of_bias in found])
            of_rows = [
                _through_statistics(
                    found[i][0], rows[i], means[i], variances[i], weights[i], sums[i] / ctx.count, ctx.eps
                )
                for i in range(count)
            ]
        of_weights = [each[1] if ctx.has_weight else None for each in found]
        return None, None, None, *of_rows, *of_weights, *(each[2] if ctx.has_weight else None for each in found)


def _through_statistics(
    direct: Tensor, x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None, means: Tensor, eps: float
) -> Tensor:
    """Add to a gradient, which takes the statistics as given, what reaches the rows through them.

    Args:
        means: (2, C), over all parts: of the output's gradient, and of its product with the normalised rows.
    """
    inverse = (variance.double() + eps).rsqrt()
    scale = inverse if weight is None else inverse * weight
    slope = -scale * inverse * means[1]
    offset = -scale * means[0] - slope * mean
    shape = (1, -1, 1, 1)
    wide = _wide(x)
    return direct.addcmul_(x, slope.to(wide).view(shape).to(x.dtype)).add_(offset.to(wide).view(shape).to(x.dtype))


@dataclass(frozen=True)
class Running:
    """Running statistics of a layer; None where it keeps none."""

    mean: Tensor | None
    variance: Tensor | None
    momentum: float

    def update(self, statistics: Statistics) -> None:
        """Blend in the statistics of a batch, the variance unbiased, as torch does."""
        if self.mean is None or self.variance is None:
            return
        unbiased = statistics.variance * (statistics.count / max(1, statistics.count - 1))
        for kept, new in ((self.mean, statistics.mean), (self.variance, unbiased)):
            # Like torch's kernel, which does not count as a change in place: autograd may have saved these.
            kept.data.mul_(1 - self.momentum).add_(new.to(kept.dtype), alpha=self.momentum)


def batch_norm(
    link: Link,
    rows: Sequence[Tensor],
    height: int,
    running: Running,
    weights: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
    eps: float,
) -> list[Tensor]:
    """Each part's rows of a batch normalisation in training mode, with a gradient; `running` is updated once."""
    with torch.no_grad():
        statistics = statistics_of(link, rows, height)
        running.update(statistics[0])
    return list(_BatchNorm.apply(link, statistics, eps, *rows, *weights, *biases))  # type: ignore[no-untyped-call]


class _GroupNorm(torch.autograd.Function):
    """Arguments after the fourth: for each part its rows, then its weight, then its bias."""

    @staticmethod
    def forward(ctx: Any, link: Link, groups: int, height: int, eps: float, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(link.here)
        rows, weights, biases = tensors[:count], tensors[count : 2 * count], tensors[2 * count :]
        images, channels, _, width = rows[0].shape
        ctx.link, ctx.groups, ctx.count = link, groups, channels // groups * height * width
        means, inverses, outputs = [], [], []
        for x, sums, weight, bias in zip(rows, _moments(link, rows), weights, biases, strict=True):
            grouped = sums.view(2, images, groups, -1).sum(3) / ctx.count
            mean = grouped[0]
            inverse = (grouped[1] - mean.square()).clamp_min(0).add(eps).rsqrt()
            scale, offset = _scale_and_offset(mean, inverse, weight, bias, channels // groups)
            outputs.append(torch.addcmul(_per_image(offset, x), x, _per_image(scale, x)))
            means.append(mean)
            inverses.append(inverse)
        ctx.save_for_backward(*rows, *weights, *means, *inverses)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        count, saved = len(gradients), ctx.saved_tensors
        rows, weights, means, inverses = (saved[i * count : (i + 1) * count] for i in range(4))
        own = [
            torch.stack([_sum_of(gradient), _sum_of(gradient, x)]) for gradient, x in zip(gradients, rows, strict=True)
        ]
        totals = sums_of(ctx.link, own)
        of_rows, of_weights, of_biases = [], [], []
        for i, gradient in enumerate(gradients):
            size = rows[i].shape[1] // ctx.groups
            mean, inverse = (value.repeat_interleave(size, 1) for value in (means[i], inverses[i]))
            of_biases.append(own[i][0].sum(0).to(weights[i].dtype))
            of_weights.append(((own[i][1] - own[i][0] * mean) * inverse).sum(0).to(weights[i].dtype))
            scaled = totals[i] * weights[i].double()
            first, second = (_over_group(value, ctx.groups) / ctx.count for value in scaled)
            slope = -inverse.pow(3) * (second - first * mean)
            offset = -inverse * first - slope * mean
            direct = gradient * _per_image(inverse * weights[i].double(), gradient)
            slope, offset = (_per_image(value, gradient) for value in (slope, offset))
            of_rows.append(direct.addcmul_(rows[i].to(direct.dtype), slope).add_(offset))
        return None, None, None, None, *of_rows, *of_weights, *of_biases


def _moments(link: Link, rows: Sequence[Tensor]) -> list[Tensor]:
    """(2, N, C) in float64: sums of values and of squares, over all parts."""
    return sums_of(link, [torch.stack([_sum_of(x), _sum_of(x, x)]) for x in rows])


def _sum_of(x: Tensor, y: Tensor | None = None) -> Tensor:
    """(N, C) in float64: sums over an image's rows and columns, of one tensor or of a product."""
    return x.sum((2, 3), dtype=torch.float64) if y is None else (x.double() * y).sum((2, 3))


def _over_group(value_nc: Tensor, groups: int) -> Tensor:
    images, channels = value_nc.shape
    return value_nc.view(images, groups, -1).sum(2).repeat_interleave(channels // groups, 1)


def _scale_and_offset(
    mean: Tensor, inverse: Tensor, weight: Tensor | None, bias: Tensor | None, size: int
) -> tuple[Tensor, Tensor]:
    scale = inverse.repeat_interleave(size, 1)
    scale = scale if weight is None else scale * weight
    offset = -mean.repeat_interleave(size, 1) * scale
    return scale, offset if bias is None else offset + bias


def _per_image(value_nc: Tensor, like: Tensor) -> Tensor:
    return value_nc.to(_wide(like)).to(like.dtype)[:, :, None, None]


def group_norm(
    link: Link,
    rows: Sequence[Tensor],
    height: int,
    groups: int,
    weights: Sequence[Tensor | None],
    biases: Sequence[Tensor | None],
    eps: float,
) -> list[Tensor]:
    """Each part's rows of a group normalisation, with a gradient."""
    given = [
        [
            torch.ones(x.shape[1], dtype=x.dtype, device=x.device) if w is None else w
            for x, w in zip(rows, weights, strict=True)
        ],
        [
            torch.zeros(x.shape[1], dtype=x.dtype, device=x.device) if b is None else b
            for x, b in zip(rows, biases, strict=True)
        ],
    ]
    return list(_GroupNorm.apply(link, groups, height, eps, *rows, *given[0], *given[1]))  # type: ignore[no-untyped-call]


def _wide(x: Tensor) -> torch.dtype:
    """The type of statistics of a tensor: float32 for those of sixteen bits."""
    return torch.promote_types(x.dtype, torch.float32)
