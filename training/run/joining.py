"""Joining the ranks of a run, as `training.local_ranks` or torchrun has started them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from training.engine.ranks import Ranks, alone, connect_ranks, refuse_mixed
from training.local_ranks import MEETING_VARIABLE
from training.machine.devices import device_here
from training.run.preflight import Checked


def join_ranks(world_size: int, *, timeout_s: float) -> tuple[Ranks, torch.device]:
    """Connect this rank to the others, and choose its device.

    Raises:
        LostPeerError: the others did not connect within the timeout.
    """
    device, backend = device_here()
    if world_size == 1:
        return alone(), device
    return connect_ranks(timeout_s=timeout_s, device=device, backend=backend, **_rendezvous(world_size)), device


def agree_on(checked: Checked, ranks: Ranks) -> Checked:
    """The run as the first rank checked it, once all have found that they check the same.

    Each rank reads recipe and tiles by itself; on several machines they may be others. What the oracle chose may differ
    where machines do: the first rank's choice is everyone's.

    Raises:
        MixedRanksError: a setting, the tiles or the starting weights differ.
        LostPeerError: a rank is gone or too slow.
    """
    if ranks.num_ranks == 1:
        return checked
    parallel, choice = ranks.broadcast_from_first((checked.recipe.parallel, checked.choice))
    if choice is not None:
        recipe = checked.recipe.model_copy(update={"parallel": parallel})
        checked = replace(checked, recipe=recipe, choice=choice)
    mine = {
        **_by_name(checked.recipe.model_dump(mode="json")),
        "torch": torch.__version__,
        "the tile set's fingerprint": checked.source.fingerprint,
        "the SHA-256 of the starting weights": checked.start.sha256 if checked.start else None,
    }
    refuse_mixed(ranks.gather(mine))
    return checked


def _by_name(settings: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    return {f"[{table}] {key}": value for table, keys in settings.items() for key, value in keys.items()}


def _rendezvous(world_size: int) -> dict[str, Any]:
    """Rendezvous of the ranks: a file on one machine, torchrun's address otherwise."""
    if MEETING_VARIABLE not in os.environ:
        return {}
    where = os.environ[MEETING_VARIABLE]
    return {"init_method": f"file://{where}", "rank": int(os.environ["RANK"]), "num_ranks": world_size}
