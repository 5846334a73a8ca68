"""Which slides, and which devices, are this process's: alone it has all; torchrun's processes share them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import InferConfig
from pipeline.inference.devices import named_devices, serve
from pipeline.inference.predictor import OTHER_RANK, connection_to, default_device
from pipeline.inference.stage import run_on_of
from pipeline.store.threads import CORES


@dataclass(frozen=True)
class Share:
    """What one process does of a run over slides."""

    devices: tuple[str, ...]
    slides: slice
    """Of the run's slides."""
    serves: bool = False
    """It has no slides: it predicts blocks that the first process hands out."""
    rank: int = 0


def share_of_this_process(devices: str, num_slides: int) -> Share:
    """Slides are shared out one by one; where there are fewer than processes, all work on the blocks of each.

    Args:
        devices: as typed; under torchrun "auto" is the GPU of the process's number on its machine.

    Raises:
        BadRecipeError: this machine has no such device.
    """
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and devices == "auto" and default_device() == "cuda":
        devices = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    names = named_devices(devices)
    if num_slides >= world:
        return Share(names, slice(rank, None, world))
    if rank:
        return Share(names, slice(0, 0), serves=True, rank=rank)
    others = tuple(f"{OTHER_RANK}{number}" for number in range(1, world))
    return Share((*names, *others), slice(None))


def serve_first_rank(share: Share, package: Path, config: InferConfig) -> None:
    """Predict the blocks that the first process hands out, until it has no more.

    Raises:
        UnreadableError: not a package, or damaged.
    """
    with connection_to(f"{OTHER_RANK}{share.rank}", is_caller=False) as connection:
        serve(connection, package, run_on_of(share.devices[0], config), threads=CORES)
