"""Interpolation of tensors in rows.

Where a row of the output lies in the input is asked of torch itself, with the same arguments: interpolated numbers of
rows are places of rows. Two rows, weighted, then make one, and torch interpolates along the other axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.parallel.halo import with_rows
from training.parallel.link import rows_of
from training.parallel.parted import Parted
from training.parallel.whole import gathered

_MODES = ("nearest", "nearest-exact", "bilinear")


def interpolate(
    x: Parted,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Parted:
    """As `functional.interpolate`.

    Raises:
        NotSplittableError: a mode that weighs more than two rows.
    """
    if mode not in _MODES or antialias:
        raise x.refusal(f"interpolate with mode {mode!r}" + (" and antialias" if antialias else ""))
    how: dict[str, Any] = {
        "mode": mode,
        "align_corners": align_corners,
        "recompute_scale_factor": recompute_scale_factor,
    }
    if x.height is None:
        return x.like([functional.interpolate(t, size, scale_factor, **how) for t in x.tensors], None)
    places = _places_of_rows(x, _first(size), _first(scale_factor), how)
    link = x.splitting.link
    height = len(places)
    if height < link.num_parts:
        return interpolate(gathered(x), size, scale_factor, mode, align_corners, recompute_scale_factor)
    upper = places.floor().long()
    lower = places.ceil().long()
    own = [rows_of(height, part, link.num_parts) for part in range(link.num_parts)]
    wanted = tuple(range(int(upper[rows.start]), int(lower[rows.stop - 1]) + 1) for rows in own)
    along = {"size": None if size is None else _last(size), "scale_factor": _last(scale_factor)}
    results = []
    for part, rows in zip(link.here, with_rows(link, x.tensors, x.height, wanted), strict=True):
        mine = slice(own[part].start, own[part].stop)
        blended = _blend(rows, upper[mine] - wanted[part].start, lower[mine] - wanted[part].start, places[mine])
        results.append(_along_width(blended, along, how))
    return x.like(results, height)


def _places_of_rows(x: Parted, size: int | None, scale: float | None, how: dict[str, Any]) -> Tensor:
    """(rows of the output,): where each lies in the input, float64."""
    assert x.height is not None
    numbers = torch.arange(x.height, dtype=torch.float64).view(1, 1, -1, 1)
    if scale is not None:
        return functional.interpolate(numbers, scale_factor=(scale, 1.0), **how).view(-1)
    return functional.interpolate(numbers, size=(size or 0, 1), **how).view(-1)


def _blend(rows: Tensor, upper: Tensor, lower: Tensor, places: Tensor) -> Tensor:
    first = rows.index_select(2, upper.to(rows.device))
    share = (places - places.floor()).to(rows.device, torch.promote_types(rows.dtype, torch.float32)).view(1, 1, -1, 1)
    if not share.any():
        return first
    return torch.lerp(first, rows.index_select(2, lower.to(rows.device)), share.to(rows.dtype))


def _along_width(rows: Tensor, along: dict[str, Any], how: dict[str, Any]) -> Tensor:
    if along["scale_factor"] is not None:
        return functional.interpolate(rows, scale_factor=(1.0, along["scale_factor"]), **how)
    return functional.interpolate(rows, size=(rows.shape[2], along["size"]), **how)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, Sequence) else value


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, Sequence) else value
