"""What a training run leaves behind: TensorBoard files, a run record, and a bar to watch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.event_file import EventFile
from training.foundation.progress import Advance, bar
from training.foundation.publish import explain_unwritable
from training.foundation.run_record import RunRecord, recorded

VERSIONED = ("gemslide", "torch", "numpy", "zarr", "imagecodecs", "safetensors")


@contextmanager
def run_log(
    project_dir: Path, *, settings: dict[str, Any], inputs: list[dict[str, str]], num_steps: int, **extra: Any
) -> Iterator[RunLog]:
    """The log of a run for as long as the block lasts; its record is written however the block ends.

    Args:
        extra: what else stands in the record, by its key.

    Raises:
        DiskFullError: no room for it, or no permission; while the run goes on, too.
    """
    record = RunRecord("train", settings, inputs=inputs, versioned=VERSIONED, extra={**extra, "epochs": []})
    events_dir = project_dir / "runs" / "tensorboard" / record.run_id
    with (
        recorded(record, project_dir / "runs"), record.phase("total"),
        _event_file(events_dir) as events, bar("training", num_steps) as advance,
    ):  # fmt: skip
        log = RunLog(record, events, events_dir, advance)
        log.expect(num_steps)
        yield log


@contextmanager
def _event_file(folder: Path) -> Iterator[EventFile]:
    with explain_unwritable(folder):
        events = EventFile(folder)
    try:
        yield events
    finally:
        with explain_unwritable(folder):
            events.close()


class RunLog:
    """The log of one run, written by rank 0. Its methods raise DiskFullError."""

    def __init__(self, record: RunRecord, events: EventFile, events_dir: Path, advance: Advance):
        self.run_id = record.run_id
        self._record, self._events, self._events_dir, self._advance = record, events, events_dir, advance

    def expect(self, num_steps: int) -> None:
        """How many steps there will be, for whoever looks on."""
        self._scalars({"train/num_steps": num_steps}, 0)

    def step(
        self, step: int, *, loss: float, lr: float, gradient_norm: float | None, num_tiles: int, seconds: float
    ) -> None:
        """One optimizer step."""
        self._record.add_seconds("train", seconds)
        values = {"train/loss": loss, "train/lr": lr, "train/tiles_per_s": num_tiles / seconds}
        if gradient_norm is not None:
            values["train/gradient_norm"] = gradient_norm
        self._scalars(values, step)
        self._advance.describe(f"training  loss {loss:.3f}")
        self._advance(1)

    def epoch(
        self, epoch: int, step: int, *, train_loss: float, metrics: dict[str, float], seconds: float,
        images: dict[str, NDArray[np.uint8]],
    ) -> None:  # fmt: skip
        """One validation."""
        self._record.add_seconds("validate", seconds)
        self._scalars(
            {**{f"val/{name}": value for name, value in metrics.items()}, "train/epoch_loss": train_loss}, step
        )
        with explain_unwritable(self._events_dir):
            for name, image_hwc in images.items():
                self._events.image(f"val/{name}", image_hwc, step)
        self._record.extra["epochs"].append({"epoch": epoch, "step": step, "train_loss": train_loss, **metrics})
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        self._advance.say(f"epoch {epoch}: train loss {train_loss:.3f}, validation {shown}")

    def _scalars(self, values: dict[str, float], step: int) -> None:
        with explain_unwritable(self._events_dir):
            for name, value in values.items():
                self._events.scalar(name, value, step)

    def finish(self, outputs: dict[str, str], extra: dict[str, Any]) -> None:
        """Name what the run made."""
        self._record.outputs = sorted(set(outputs.values()))
        self._record.extra |= {"models": outputs, **extra}
