"""Encoders whose code installed packages provide through the entry-point group `gemslide.encoders`.

An entry is a function `build()` without arguments, which returns an object with the attributes of `BuiltEncoder`. It
must not download anything; the weights are those in the row, which are loaded into its model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from torch import Tensor, nn

from training.encoders.kinds.backbone import Backbone, put_state
from training.foundation.errors import BadRecipeError, UnreadableError
from training.foundation.words.spelling import nearest

GROUP = "gemslide.encoders"
MAX_PREFIX_TOKENS = 1024


class BuiltEncoder(Protocol):
    """What an entry's function returns. `prefix_tokens` may be left out: 1 for models that return tokens."""

    model: nn.Module
    """From float32 images (N, 3, tile_px, tile_px), less mean, divided by std, to tokens (N, T, width), a feature map
    (N, width, H, W), or rows (N, dims); with fresh weights."""
    mean: Sequence[float]
    """Of red, green and blue, as fractions of full intensity."""
    std: Sequence[float]
    tile_px: int
    precision: str
    """Number format that it is meant for: "fp32" or "bf16"."""


class Expected(Protocol):
    """What a row says of the same encoder."""

    @property
    def mean(self) -> list[float]: ...
    @property
    def std(self) -> list[float]: ...
    @property
    def tile_px(self) -> int: ...
    @property
    def precision(self) -> str: ...


def entry_point_encoder(name: str, state: Mapping[str, Tensor], expected: Expected, where: str) -> Backbone:
    """The network that installed code builds, with the row's weights.

    Raises:
        UnreadableError: no installed package registers the name, its code cannot be imported or builds no encoder, or
            the weights are those of another network.
        BadRecipeError: the code was written for other tiles, another normalisation or number format than the row says.
    """
    entry = _find(name, where)
    built = _build(entry, where)
    _compare(built, expected, f"{where}: {entry.value}")
    prefix = getattr(built, "prefix_tokens", 1)
    if not isinstance(prefix, int) or not 0 <= prefix <= MAX_PREFIX_TOKENS:
        raise UnreadableError(f"{where}: {entry.value} returns prefix_tokens = {prefix!r:.60}, not a number of tokens.")
    put_state(built.model, state, where)
    return Backbone(built.model, prefix)


def _find(name: str, where: str) -> EntryPoint:
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in entries:
        return entries[name]
    near = nearest(name, sorted(entries), most=3)
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"Registered: {', '.join(sorted(entries)) or 'none'}."
    raise UnreadableError(
        f"{where}: needs the encoder {name!r} from the entry-point group {GROUP}, but no package installed here "
        f"registers it. {remedy} Install the package that does."
    )


def _build(entry: EntryPoint, where: str) -> Any:
    try:
        build = entry.load()
    except (ImportError, AttributeError) as error:
        raise UnreadableError(
            f"{where}: the encoder {entry.name!r} ({entry.value}) cannot be imported: {error!s:.200}. "
            "Reinstall its package."
        ) from error
    try:
        built = build()
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise UnreadableError(
            f"{where}: {entry.value} cannot build its encoder: {error!s:.200}. It must take no arguments."
        ) from error
    missing = [part for part in ("model", "mean", "std", "tile_px", "precision") if not hasattr(built, part)]
    if missing:
        raise UnreadableError(
            f"{where}: {entry.value} returns a {type(built).__name__} without {', '.join(missing)}. It must return an "
            "object with model, mean, std, tile_px and precision."
        )
    if not isinstance(built.model, nn.Module):
        raise UnreadableError(
            f"{where}: {entry.value} returns a {type(built.model).__name__} as `model`, not a torch.nn.Module."
        )
    return built


def _compare(built: BuiltEncoder, expected: Expected, where: str) -> None:
    """Refuse a row that contradicts the code."""
    for key in ("tile_px", "precision"):
        if getattr(built, key) != getattr(expected, key):
            raise _differ(where, key, getattr(built, key), getattr(expected, key))
    for key in ("mean", "std"):
        stated: Any = getattr(built, key)
        try:
            is_same = all(
                math.isclose(float(one), other, rel_tol=1e-6, abs_tol=1e-9)
                for one, other in zip(stated, getattr(expected, key), strict=True)
            )
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise _differ(where, key, stated, getattr(expected, key))


def _differ(where: str, key: str, built: object, expected: object) -> BadRecipeError:
    return BadRecipeError(
        f"{where} was written for {key} = {built!r:.80}, but the row says {expected!r:.80}. Correct the row."
    )
