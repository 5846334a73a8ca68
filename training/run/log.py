"""Logs of a training run: TensorBoard files, a run record, and a progress bar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.engine.engine import StepResult
from training.foundation.progress import Advance, bar
from training.foundation.publish import explain_unwritable
from training.foundation.run_record import RunRecord, new_run_id, recorded
from training.run.event_file import EventFile
from training.run.resuming import Resumed
from training.run.start_weights import StartWeights

VERSIONED = ("gemslide", "torch", "numpy", "zarr", "imagecodecs", "safetensors")


@contextmanager
def run_log(
    project_dir: Path, *, run_id: str | None = None, settings: dict[str, Any], inputs: list[dict[str, str]],
    num_steps: int, **extra: Any,
) -> Iterator[RunLog]:  # fmt: skip
    """The log of a run for as long as the block lasts; its record is written however the block ends.

    Args:
        run_id: name of the record; None for a new one.
        extra: further entries of the record, by key.

    Raises:
        DiskFullError: no space for it, or no permission; also during the run.
    """
    record = RunRecord(
        "train", settings, run_id or new_run_id(), inputs=inputs, versioned=VERSIONED, extra={**extra, "epochs": []}
    )
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
        self._loss = float("nan")

    def expect(self, num_steps: int) -> None:
        """Log the expected number of steps."""
        self._scalars({"train/num_steps": num_steps}, 0)

    def describe(self, facts: Mapping[str, float]) -> None:
        """Log numbers about the training data, once, by tag."""
        self._scalars(facts, 0)

    def begin(self, resumed: Resumed, start: StartWeights | None) -> None:
        """Log the start of the run: with fresh weights, with those of another run, or from where it died."""
        if start:
            self._record.extra["start"] = start.as_json()
            self._advance.say(f"{start}")
        for complaint in resumed.record.get("complaints", ()):
            self._advance.say(f"warning: {complaint}")
        if resumed.record:
            self._record.extra["resumed"] = resumed.record
        if resumed.state.steps_done:
            self._record.extra["epochs"] = [dict(line) for line in resumed.state.epochs]
            self._advance.begin_at(resumed.state.steps_done)
            self._advance.say(f"resuming after step {resumed.state.steps_done}, from {resumed.record['checkpoint']}")
            for key, (before, now) in resumed.record["differs"].items():
                self._advance.say(
                    f"warning: {key} was {before} and is now {now}: the weights will not be identical, bit for bit, to "
                    "those of an uninterrupted run"
                )

    def step(
        self, step: int, result: StepResult | None, *, lr: float, amount: int, unit: str, seconds: float, memory: int
    ) -> None:
        """Log one optimizer step; without a result if it was skipped.

        Args:
            amount: of tiles, patients or slides in the step, as `unit` says in the singular.
        """
        self._record.add_seconds("train", seconds)
        values = {"train/lr": lr, f"train/{unit}s_per_s": amount / seconds}
        if result is None:
            self._record.extra["skipped_steps"] = [*self._record.extra.get("skipped_steps", []), step]
            self._advance.say(f"warning: step {step} was not finite and was skipped")
        else:
            values |= {"train/loss": result.loss, "train/gradient_norm": result.gradient_norm}
            self._loss = result.loss
        self._scalars(values, step)
        rate = f"{amount / seconds:.3g} {unit}s/s"
        self._advance.describe(f"loss {self._loss:.3f}  {rate}  {memory / 2**30:.1f} GiB")
        self._advance(1)

    def checkpoint(self, seconds: float) -> None:
        """Log one checkpoint."""
        self._record.add_seconds("checkpoint", seconds)

    def epoch(
        self, line: Mapping[str, int | float], metrics: Mapping[str, float], *, seconds: float,
        images: Mapping[str, NDArray[np.uint8]],
    ) -> None:  # fmt: skip
        """Log one validation.

        Args:
            line: entry of the record: `epoch`, `step`, `train_loss`, and the metrics.
        """
        self._record.add_seconds("validate", seconds)
        step = int(line["step"])
        training = {"train/epoch_loss": line["train_loss"]} if "train_loss" in line else {}
        self._scalars({**{f"val/{name}": value for name, value in metrics.items()}, **training}, step)
        with explain_unwritable(self._events_dir):
            for name, image_hwc in images.items():
                self._events.image(f"val/{name}", image_hwc, step)
        self._record.extra["epochs"].append(dict(line))
        shown = "  ".join(f"{name} {value:.3f}" for name, value in metrics.items())
        train_loss = line.get("train_loss", float("nan"))
        self._advance.say(f"epoch {line['epoch']}: train loss {train_loss:.3f}, validation {shown}")

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        with explain_unwritable(self._events_dir):
            for name, value in values.items():
                self._events.scalar(name, value, step)

    def finish(self, outputs: dict[str, str], extra: dict[str, Any]) -> None:
        """Record the outputs of the run."""
        self._record.outputs = sorted(set(outputs.values()))
        self._record.extra |= {"models": outputs, **extra}
