"""Batches through a network that only predicts: started here, collected later, in halves when memory runs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.data.augment import normalised
from training.foundation.errors import BadRecipeError
from training.machine.allocator import give_back_what_is_free
from training.machine.memory_errors import is_out_of_memory
from training.predict.numerics import Numerics

LOOK_AT_MEMORY_EVERY = 64
"""Batches on a CPU between two checks of the memory."""


@dataclass
class Seconds:
    """Time spent on batches, by kind of work."""

    transfer: float = 0.0
    """Copying between this machine's memory and the device's."""
    compute: float = 0.0


@dataclass
class Running:
    """A batch in progress."""

    _parts_nk: list[Tensor]
    _seconds: Seconds
    _timers: Sequence[GpuTimer] = ()

    def result(self) -> NDArray[np.float32]:
        """Class probabilities or features, float32 (tiles, columns); waits until they are ready."""
        for timer in self._timers:
            transfer, compute = timer.seconds()
            self._seconds.transfer += transfer
            self._seconds.compute += compute
        return np.concatenate([part_nk.numpy() for part_nk in self._parts_nk])


class GpuTimer:
    """Events of a part of a batch: it arrived on its first device, was computed, and left its last one."""

    def __init__(self) -> None:
        timed = (torch.cuda.Event(enable_timing=True) for _ in range(5))  # type: ignore[no-untyped-call]
        self.start, self.arrived, self.computed, self.leaving, self.left = timed

    def seconds(self) -> tuple[float, float]:
        """Transfer and compute; waits until both have ended. Each span is between two events of one device."""
        self.left.synchronize()
        self.computed.synchronize()
        transfer_ms = self.start.elapsed_time(self.arrived) + self.leaving.elapsed_time(self.left)
        return transfer_ms / 1000, self.arrived.elapsed_time(self.computed) / 1000


@dataclass
class ForwardOnly:
    """Runs a network that is ready to predict.

    Args:
        network: from images float32 (N, 3, side, side) to outputs, one or more rows per image.
        finish: turns outputs into values float32 (N, columns): class probabilities, or features.
        device: device of the images.
        views: how a tile is turned and mirrored; the mean of all views' values is the tile's.
    """

    network: nn.Module
    finish: Callable[[Tensor], Tensor]
    mean: list[float]
    std: list[float]
    device: torch.device
    numerics: Numerics
    views: tuple[tuple[int, bool], ...] = ((0, False),)
    seconds: Seconds = field(default_factory=Seconds)
    max_tiles: int | None = None
    """Tiles at a time through the network: no limit until memory runs out once; one in deterministic runs."""
    _copying: torch.cuda.Stream | None = None
    _watching: torch.cuda.Stream | None = None
    _batches_here: int = 0

    def __post_init__(self) -> None:
        if self.numerics.deterministic:
            self.max_tiles = 1
            torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        if self.numerics.precision == "fp32":
            # By default cuDNN rounds to TensorFloat-32, of ten bits: fp32 must give the same as on a CPU.
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def start(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        """Start a batch. On a GPU it runs while the caller does something else; on a CPU it is done on return.

        Args:
            tiles_nhwc: uint8 (tiles, side, side, 3), RGB; not to be changed before the result is ready.

        Raises:
            BadRecipeError: not even one tile fits into the device's memory.
        """
        with torch.inference_mode():
            return self._on_gpu(tiles_nhwc) if self.device.type == "cuda" else self._here(tiles_nhwc)

    def _here(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        start = time.perf_counter()
        tiles = torch.from_numpy(np.ascontiguousarray(tiles_nhwc))
        parts_nk = self._in_parts(tiles, lambda part: self._values(part).cpu())
        self.seconds.compute += time.perf_counter() - start
        self._batches_here += 1
        if self._batches_here % LOOK_AT_MEMORY_EVERY == 0:
            give_back_what_is_free()
        return Running(parts_nk, self.seconds)

    def _on_gpu(self, tiles_nhwc: NDArray[np.uint8]) -> Running:
        timers: list[GpuTimer] = []
        tiles = torch.from_numpy(np.ascontiguousarray(tiles_nhwc))
        return Running(self._in_parts(tiles, lambda part: self._part_on_gpu(part, timers)), self.seconds, timers)

    def _part_on_gpu(self, tiles_nhwc: Tensor, timers: list[GpuTimer]) -> Tensor:
        """Run a part; copies use their own stream, so that the next batch arrives while this one is computed."""
        timer = GpuTimer()
        self._copying = self._copying or torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        computing = torch.cuda.current_stream(self.device)
        pinned = tiles_nhwc.pin_memory()
        with torch.cuda.stream(self._copying):
            timer.start.record()
            tiles = pinned.to(self.device, non_blocking=True)
            timer.arrived.record()
        computing.wait_event(timer.arrived)
        tiles.record_stream(computing)
        on_device_nk = self._values(tiles)
        last = torch.cuda.current_stream(on_device_nk.device)
        timer.leaving.record(last)
        if self.device.index in (None, on_device_nk.device.index):
            timer.computed.record(last)
        else:
            self._see_computed(timer)
        values_nk = torch.empty(on_device_nk.shape, pin_memory=True)
        values_nk.copy_(on_device_nk, non_blocking=True)
        timer.left.record(last)
        timers.append(timer)
        return values_nk

    def _see_computed(self, timer: GpuTimer) -> None:
        """Record the last device's end on the first one where they differ: spans are timed on one device."""
        self._watching = self._watching or torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self._watching.wait_event(timer.leaving)
        timer.computed.record(self._watching)

    def _in_parts(self, tiles_nhwc: Tensor, run: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Run a function on a batch's tiles, all at once or, if memory runs out, fewer at a time."""
        parts, at = [], 0
        while at < len(tiles_nhwc):
            part = tiles_nhwc[at : at + (self.max_tiles or len(tiles_nhwc))]
            try:
                parts.append(run(part))
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                self._take_fewer(len(part), error)
                continue
            at += len(part)
        return parts

    def _take_fewer(self, num_tiles: int, error: Exception) -> None:
        if num_tiles == 1:
            raise BadRecipeError(
                f"one tile of this model does not fit into the memory of {self.device} ({error!s:.200}). "
                "Spread the model over several devices (--devices cuda:0+cuda:1), or use one with more memory."
            ) from error
        self.max_tiles = (num_tiles + 1) // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _values(self, tiles_nhwc: Tensor) -> Tensor:
        images_nchw = normalised(tiles_nhwc, self.mean, self.std)
        if self.numerics.precision == "bf16":
            images_nchw = images_nchw.to(torch.bfloat16)
        total_nk = self.finish(self.network(_viewed(images_nchw, *self.views[0])))
        for view in self.views[1:]:
            total_nk = total_nk + self.finish(self.network(_viewed(images_nchw, *view)))
        return total_nk / len(self.views)


def _viewed(images_nchw: Tensor, quarter_turns: int, mirrored: bool) -> Tensor:
    if mirrored:
        images_nchw = images_nchw.flip(3)
    return images_nchw.rot90(quarter_turns, (2, 3)) if quarter_turns else images_nchw
