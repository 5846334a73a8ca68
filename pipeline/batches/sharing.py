"""Slides and devices of this process: all of them if it runs alone; under torchrun, processes share them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pipeline.batches.devices import named_devices, serve
from pipeline.batches.network import Load
from pipeline.batches.where import OTHER_RANK, RunOn, connection_to, default_device
from pipeline.run_record import SlideOutcome
from pipeline.store.reading.threads import CORES
from training.foundation.errors import BadRecipeError


@dataclass(frozen=True)
class Share:
    """One process's share of a run over slides."""

    devices: tuple[str, ...]
    slides: slice
    """Of the run's slides."""
    serves: bool = False
    """It has no slides: it computes blocks that the first process hands out."""
    rank: int = 0
    sharers: int = 1
    """Processes that have slides."""


def share_of_this_process(devices: str, num_slides: int) -> Share:
    """Assign slides to processes in turn; if there are fewer slides than processes, all work on the blocks of each.

    Args:
        devices: as typed; under torchrun "auto" is the GPU whose number is the process's local rank.

    Raises:
        BadRecipeError: this machine has no such device, or several are named for one process of torchrun.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and devices == "auto" and default_device() == "cuda":
        devices = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    names = named_devices(devices)
    if world > 1 and len(names) > 1:
        raise BadRecipeError(
            f"--devices {devices}: each process that torchrun starts takes one device. Start one per device "
            f"(--nproc-per-node {len(names)}), and leave --devices out."
        )
    if num_slides >= world:
        return Share(names, slice(rank, None, world), rank=rank, sharers=world)
    if rank:
        return Share(names, slice(0, 0), serves=True, rank=rank)
    others = tuple(f"{OTHER_RANK}{number}" for number in range(1, world))
    return Share((*names, *others), slice(None))


def serve_first_rank(share: Share, load: Load, run_on: RunOn) -> None:
    """Compute the blocks that the first process hands out, until it has no more.

    Raises:
        UnreadableError: the network is damaged.
    """
    with connection_to(f"{OTHER_RANK}{share.rank}", is_caller=False) as connection:
        serve(connection, load, run_on, threads=CORES)


def gather_outcomes(share: Share, outcomes: list[SlideOutcome]) -> list[SlideOutcome] | None:
    """Gather the outcomes of all processes' slides in the first process, which waits for the others.

    So no process fails while another is still working: torchrun would kill that one.

    Returns:
        None in all but the first process, which has received theirs.
    """
    if share.rank:
        with connection_to(_outcomes_channel(share.rank), is_caller=False) as connection:
            connection.send(outcomes)
        return None
    everyone = list(outcomes)
    for rank in range(1, share.sharers):
        with connection_to(_outcomes_channel(rank), is_caller=True) as connection:
            everyone += connection.recv() or []
    return everyone


def _outcomes_channel(rank: int) -> str:
    return f"outcomes of {OTHER_RANK}{rank}"
