"""What a training run leaves behind: TensorBoard files, a run record, and a bar to watch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from training.event_file import EventFile
from training.foundation.errors import DiskFullError
from training.foundation.publish import explain_unwritable
from training.foundation.run_record import RecordFile, host, new_run_id, versions_of

VERSIONED = ("gemslide", "torch", "numpy", "zarr", "imagecodecs", "safetensors")


class RunLog:
    """The log of one run, written by rank 0. Use as a context manager: the record is written however it ends.

    Raises:
        DiskFullError: no room for it, or no permission; while the run goes on, too.
    """

    def __init__(self, project_dir: Path, *, settings: dict[str, Any], inputs: list[dict[str, str]], num_steps: int):
        self.run_id = new_run_id()
        self._file = RecordFile(project_dir / "runs", self.run_id)
        self._events_dir = project_dir / "runs" / "tensorboard" / self.run_id
        self._start = time.perf_counter()
        self._seconds = {"train": 0.0, "validate": 0.0}
        self._record: dict[str, Any] = {"settings": settings, "inputs": inputs, "outputs": [], "epochs": []}
        columns = (
            TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(), TimeRemainingColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._bar = self._progress.add_task("training", total=num_steps)

    def __enter__(self) -> RunLog:
        try:
            with explain_unwritable(self._events_dir):
                self._events = EventFile(self._events_dir)
        except DiskFullError as error:
            self._write_record(error.code)
            raise
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._progress.stop()
        outcome = "done" if kind is None else getattr(error, "code", "failed")
        if kind is KeyboardInterrupt:
            outcome = "interrupted"
        self._write_record(outcome)
        with explain_unwritable(self._events_dir):
            self._events.close()

    def _write_record(self, outcome: str) -> None:
        self._seconds["total"] = time.perf_counter() - self._start
        self._file.write(
            {
                "run_id": self.run_id,
                "verb": "train",
                **self._record,
                "versions": versions_of(VERSIONED),
                "host": host(),
                "seconds": {name: round(value, 3) for name, value in self._seconds.items()},
                "outcome": outcome,
            }
        )

    def step(
        self, step: int, *, loss: float, lr: float, gradient_norm: float | None, num_tiles: int, seconds: float
    ) -> None:
        """One optimizer step."""
        self._seconds["train"] += seconds
        values = {"train/loss": loss, "train/lr": lr, "train/tiles_per_s": num_tiles / seconds}
        if gradient_norm is not None:
            values["train/gradient_norm"] = gradient_norm
        self._scalars(values, step)
        self._progress.update(self._bar, advance=1, description=f"training  loss {loss:.3f}")

    def epoch(
        self, epoch: int, step: int, *, train_loss: float, metrics: dict[str, float], seconds: float,
        images: dict[str, NDArray[np.uint8]],
    ) -> None:  # fmt: skip
        """One validation."""
        self._seconds["validate"] += seconds
        self._scalars(
            {**{f"val/{name}": value for name, value in metrics.items()}, "train/epoch_loss": train_loss}, step
        )
        with explain_unwritable(self._events_dir):
            for name, image_hwc in images.items():
                self._events.image(f"val/{name}", image_hwc, step)
        self._record["epochs"].append({"epoch": epoch, "step": step, "train_loss": train_loss, **metrics})
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        self._progress.console.print(f"epoch {epoch}: train loss {train_loss:.3f}, validation {shown}")

    def _scalars(self, values: dict[str, float], step: int) -> None:
        with explain_unwritable(self._events_dir):
            for name, value in values.items():
                self._events.scalar(name, value, step)

    def finish(self, outputs: dict[str, str], extra: dict[str, Any]) -> None:
        """Name what the run made."""
        self._record["outputs"] = sorted(set(outputs.values()))
        self._record["models"] = outputs
        self._record |= extra
