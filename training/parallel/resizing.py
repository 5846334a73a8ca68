"""Interpolation of tensors in rows.

Where a row of the output lies in the input is asked of torch itself, with the same arguments: interpolated numbers of
rows are places of rows. Two rows, weighted, then make one, and torch interpolates along the other axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

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
    upper, lower = [math.floor(place) for place in places], [math.ceil(place) for place in places]
    own = [rows_of(height, part, link.num_parts) for part in range(link.num_parts)]
    wanted = tuple(range(upper[rows.start], lower[rows.stop - 1] + 1) for rows in own)
    along = {"size": None if size is None else _last(size), "scale_factor": _last(scale_factor)}
    results = []
    for part, rows in zip(link.here, with_rows(link, x.tensors, x.height, wanted), strict=True):
        mine, start = slice(own[part].start, own[part].stop), wanted[part].start
        shares = [place - above for place, above in zip(places[mine], upper[mine], strict=True)]
        blended = _blend(rows, [row - start for row in upper[mine]], [row - start for row in lower[mine]], shares)
        results.append(_along_width(blended, along, how))
    return x.like(results, height)


def _places_of_rows(x: Parted, size: int | None, scale: float | None, how: dict[str, Any]) -> list[float]:
    """Where each row of the output lies in the input."""
    assert x.height is not None
    given = {"size": (size or 0, 1)} if scale is None else {"scale_factor": (scale, 1.0)}
    with _disable_current_modes():  # the numbers are needed where tensors have none, too
        numbers = torch.arange(x.height, dtype=torch.float64).view(1, 1, -1, 1)
        places: list[float] = functional.interpolate(numbers, **given, **how).view(-1).tolist()
    return places


def _blend(rows: Tensor, upper: Sequence[int], lower: Sequence[int], shares: Sequence[float]) -> Tensor:
    first = rows.index_select(2, torch.tensor(upper, device=rows.device))
    if not any(shares):
        return first
    share = torch.tensor(shares, dtype=torch.promote_types(rows.dtype, torch.float32), device=rows.device)
    second = rows.index_select(2, torch.tensor(lower, device=rows.device))
    return torch.lerp(first, second, share.view(1, 1, -1, 1).to(rows.dtype))


def _along_width(rows: Tensor, along: dict[str, Any], how: dict[str, Any]) -> Tensor:
    if along["scale_factor"] is not None:
        return functional.interpolate(rows, scale_factor=(1.0, along["scale_factor"]), **how)
    return functional.interpolate(rows, size=(rows.shape[2], along["size"]), **how)


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, Sequence) else value


def _last(value: Any) -> Any:
    return value[-1] if isinstance(value, Sequence) else value
