"""Tensors that every part has whole."""

from __future__ import annotations

from training.parallel.halo import Window, whole
from training.parallel.parted import Parted


def gathered(x: Parted) -> Parted:
    """The whole tensor on every part."""
    return x if x.height is None else x.like(whole(x.splitting.link, x.tensors, x.height), None)


def with_enough_rows(x: Parted, window: Window, *, ceil_mode: bool = False) -> Parted:
    """A tensor as a layer takes it: whole, if the layer's output has fewer rows than there are parts."""
    if x.height is None:
        return x
    return with_rows_for(x, window.outputs(x.height, ceil_mode=ceil_mode))


def with_rows_for(x: Parted, height_out: int) -> Parted:
    """The same for an output of this height."""
    return gathered(x) if height_out < x.splitting.link.num_parts else x
