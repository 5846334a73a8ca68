"""What a training run leaves behind: TensorBoard files, a run record, and a bar to watch."""

from __future__ import annotations

import json
import os
import platform
import secrets
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

VERSIONED = ("gemslide", "torch", "numpy", "zarr", "imagecodecs", "safetensors")


class RunLog:
    """The log of one run, written by rank 0. Use as a context manager: the record is written however it ends."""

    def __init__(self, project_dir: Path, *, settings: dict[str, Any], inputs: list[dict[str, str]], num_steps: int):
        self.run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self._path = project_dir / "runs" / f"{self.run_id}.json"
        self._writer = SummaryWriter(str(project_dir / "runs" / "tensorboard" / self.run_id))
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
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._progress.stop()
        self._writer.close()
        outcome = "done" if kind is None else getattr(error, "code", "failed")
        if kind is KeyboardInterrupt:
            outcome = "interrupted"
        self._seconds["total"] = time.perf_counter() - self._start
        record = {
            "run_id": self.run_id,
            "verb": "train",
            **self._record,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONED}},
            "host": {"system": platform.system(), "machine": platform.machine(), "cpus": os.cpu_count()},
            "seconds": {name: round(value, 3) for name, value in self._seconds.items()},
            "outcome": outcome,
        }
        aside = self._path.with_name(f".{self._path.name}.partial")
        aside.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        aside.replace(self._path)

    def step(
        self, step: int, *, loss: float, lr: float, gradient_norm: float | None, num_tiles: int, seconds: float
    ) -> None:
        """One optimizer step."""
        self._seconds["train"] += seconds
        self._writer.add_scalar("train/loss", loss, step)
        self._writer.add_scalar("train/lr", lr, step)
        if gradient_norm is not None:
            self._writer.add_scalar("train/gradient_norm", gradient_norm, step)
        self._writer.add_scalar("train/tiles_per_s", num_tiles / seconds, step)
        self._progress.update(self._bar, advance=1, description=f"training  loss {loss:.3f}")

    def epoch(
        self, epoch: int, step: int, *, train_loss: float, metrics: dict[str, float], seconds: float,
        pictures: dict[str, NDArray[np.uint8]],
    ) -> None:  # fmt: skip
        """One validation."""
        self._seconds["validate"] += seconds
        for name, value in metrics.items():
            self._writer.add_scalar(f"val/{name}", value, step)
        for name, picture_hwc in pictures.items():
            self._writer.add_image(f"val/{name}", picture_hwc, step, dataformats="HWC")
        self._writer.add_scalar("train/epoch_loss", train_loss, step)
        self._record["epochs"].append({"epoch": epoch, "step": step, "train_loss": train_loss, **metrics})
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        self._progress.console.print(f"epoch {epoch}: train loss {train_loss:.3f}, validation {shown}")

    def finish(self, outputs: dict[str, str], extra: dict[str, Any]) -> None:
        """Name what the run made."""
        self._record["outputs"] = sorted(set(outputs.values()))
        self._record["models"] = outputs
        self._record |= extra
