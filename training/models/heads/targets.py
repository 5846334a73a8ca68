"""Targets of a slide-level network: what each of its outputs predicts.

    kind       outputs                                        columns of the targets
    class      k logits                                       class, 0 .. k - 1
    ordinal    k - 1 logits of "the grade is above j"         grade, 0 .. k - 1
    number     the value, standardised by mean and std        value, in its own unit
    cox        log risk                                       time, event (0 or 1); in training: gradient, 0 (losses.py)
    discrete   a logit of the hazard for each of B time bins  time, event (0 or 1)

Several targets stand side by side, in order, both in the outputs and in the columns. NaN is a missing value; a time
without an event, or an event without a time, is missing as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

Kind = Literal["class", "ordinal", "number", "cox", "discrete"]
_WITH_TIME = ("cox", "discrete")
_WITH_CLASSES = ("class", "ordinal")


@dataclass(frozen=True)
class Target:
    """One target.

    Raises:
        ValueError: its fields do not fit each other.
    """

    name: str
    kind: Kind
    num_outputs: int
    """Columns in the network's output: k classes; k - 1 for ordinal; B bins; otherwise 1."""
    weight: float = 1.0
    """Factor of its loss."""
    class_weights: tuple[float, ...] | None = None
    """Factor of the loss of each class or grade, k in all; None for equal ones."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of the time bins of kind "discrete", rising, B in all. Bin j holds times above bound j - 1, up to
    bound j."""
    mean: float = 0.0
    """Mean of a number over the training set."""
    std: float = 1.0
    """Standard deviation of a number over the training set."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise self._error(f"kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        least = 2 if self.kind == "class" else 1
        if self.num_outputs < least or (self.kind in ("number", "cox") and self.num_outputs != 1):
            wanted = f"{least} outputs or more" if self.kind in ("class", "ordinal", "discrete") else "1 output"
            raise self._error(f'kind "{self.kind}" has {wanted}, got {self.num_outputs}')
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise self._error(f"weight must be 0 or more, got {self.weight}")
        if not (math.isfinite(self.mean) and math.isfinite(self.std) and self.std > 0):
            raise self._error(f"mean must be finite and std above 0, got {self.mean} and {self.std}")
        self._check_class_weights()
        self._check_bounds()

    def _check_class_weights(self) -> None:
        weights = self.class_weights
        if weights is None:
            return
        if len(weights) != self.num_classes:
            raise self._error(f"class_weights must have {self.num_classes} entries, got {len(weights)}")
        if not all(math.isfinite(weight) and weight >= 0 for weight in weights):
            raise self._error(f"class_weights must be 0 or more, got {weights}")

    def _check_bounds(self) -> None:
        num_bounds = self.num_outputs if self.kind == "discrete" else 0
        if len(self.bounds) != num_bounds:
            raise self._error(f'kind "{self.kind}" with {self.num_outputs} outputs needs {num_bounds} bounds of time '
                              f"bins, got {len(self.bounds)}")  # fmt: skip
        rises = all(lower < upper for lower, upper in pairwise((0.0, *self.bounds)))
        if not rises or not all(map(math.isfinite, self.bounds)):
            raise self._error(f"bounds of time bins must rise from above 0 and be finite, got {self.bounds}")

    def _error(self, sentence: str) -> ValueError:
        return ValueError(f'target "{self.name}": {sentence}')

    @property
    def num_columns(self) -> int:
        """Columns in the tensor of targets."""
        return 2 if self.kind in _WITH_TIME else 1

    @property
    def num_classes(self) -> int:
        """Classes or grades; 0 for other kinds."""
        return {"class": self.num_outputs, "ordinal": self.num_outputs + 1}.get(self.kind, 0)


def output_slices(targets: Sequence[Target]) -> list[slice]:
    """Columns of each target in the network's output.

    Raises:
        ValueError: two targets have the same name.
    """
    names = [target.name for target in targets]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"targets need different names, got {', '.join(repeated)} more than once")
    return _slices([target.num_outputs for target in targets])


def column_slices(targets: Sequence[Target]) -> list[slice]:
    """Columns of each target in the tensor of targets."""
    return _slices([target.num_columns for target in targets])


def total_outputs(targets: Sequence[Target]) -> int:
    """Columns of the network's output."""
    return sum(target.num_outputs for target in targets)


def total_columns(targets: Sequence[Target]) -> int:
    """Columns of the tensor of targets."""
    return sum(target.num_columns for target in targets)


def check_values(targets: Sequence[Target], values_nc: Tensor) -> None:
    """Check the values that are not missing, before training; a loss cannot, since it runs without values too.

    Args:
        values_nc: (n, columns), with time and event for kind "cox".

    Raises:
        ValueError: the columns do not fit the targets, or a value is impossible; the message names the first.
    """
    if values_nc.ndim != 2 or values_nc.shape[1] != total_columns(targets):
        raise ValueError(f"the targets have {total_columns(targets)} columns, got values {tuple(values_nc.shape)}")
    for target, columns in zip(targets, column_slices(targets), strict=True):
        own_nc = values_nc[:, columns]
        wrong_n = ~own_nc.isnan().any(dim=1) & ~_is_possible(target, own_nc)
        if wrong_n.any():
            row = int(wrong_n.nonzero()[0, 0])
            raise ValueError(
                f'target "{target.name}": row {row} has {own_nc[row].tolist()}, which must be {_describe(target)}'
            )


def _is_possible(target: Target, own_nc: Tensor) -> Tensor:
    first_n = own_nc[:, 0]
    if target.kind in _WITH_CLASSES:
        return (first_n == first_n.round()) & (first_n >= 0) & (first_n < target.num_classes)
    if target.kind in _WITH_TIME:
        return first_n.isfinite() & (first_n > 0) & ((own_nc[:, 1] == 0) | (own_nc[:, 1] == 1))
    return torch.isfinite(first_n)


def _describe(target: Target) -> str:
    if target.kind in _WITH_CLASSES:
        return f"a whole number from 0 to {target.num_classes - 1}"
    return "a finite time above 0 and an event of 0 or 1" if target.kind in _WITH_TIME else "a finite number"


def _slices(widths: Sequence[int]) -> list[slice]:
    stops = list(accumulate(widths, initial=0))
    return [slice(start, stop) for start, stop in pairwise(stops)]
