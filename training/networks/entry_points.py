"""Networks that installed packages provide through the entry-point group `gemslide.models`.

An entry is a function `build(*, num_classes: int, tile_px: int) -> torch.nn.Module`, which returns a network from
images (N, 3, tile_px, tile_px) to (N, num_classes), with fresh weights.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import torch

from training.foundation.errors import UnreadableError
from training.foundation.words.counts import counted
from training.foundation.words.spelling import nearest

GROUP = "gemslide.models"


def find_entry_point(name: str, where: str) -> EntryPoint:
    """The entry point of this name.

    Raises:
        UnreadableError: no installed package registers it.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name in entries:
        return entries[name]
    near = nearest(name, sorted(entries), most=3)
    remedy = f"Did you mean {' or '.join(near)}?" if near else f"Registered: {', '.join(sorted(entries)) or 'none'}."
    raise UnreadableError(
        f"{where}: needs the network {name!r} from the entry-point group {GROUP}, but no package installed here "
        f"registers it. {remedy} Install the package that does."
    )


def build_from_entry_point(
    entry: EntryPoint, where: str, *, value: str | None, num_classes: int, tile_px: int
) -> torch.nn.Module:
    """The network with fresh weights, made by installed code.

    Args:
        value: `module:function` that the package was made with; None if unknown.

    Raises:
        UnreadableError: the name stands for another function now, or its function cannot be imported, or returns
            no network.
    """
    if value not in (None, entry.value):
        raise UnreadableError(
            f"{where}: made with the network {entry.name!r} of {value}, but here that name stands for {entry.value}. "
            "Install the package that it was made with."
        )
    try:
        build = entry.load()
    except (ImportError, AttributeError) as error:
        raise UnreadableError(
            f"{where}: the network {entry.name!r} ({entry.value}) cannot be imported: {error!s:.200}. "
            "Reinstall its package."
        ) from error
    try:
        network = build(num_classes=num_classes, tile_px=tile_px)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnreadableError(
            f"{where}: {entry.value} cannot build a network for {counted(num_classes, 'class', 'classes')} and "
            f"tiles of {tile_px} px: {error!s:.200}. It must take the keywords num_classes and tile_px."
        ) from error
    if not isinstance(network, torch.nn.Module):
        raise UnreadableError(f"{where}: {entry.value} returns a {type(network).__name__}, not a torch.nn.Module.")
    return network
