"""One network on one slide: the workflow of inference, or of embedding, against the network alone."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.machine import peak_bytes
from benchmarks.make_slide import make_slide
from benchmarks.networks import predictor_of
from benchmarks.slices import Turns, in_turns
from pipeline.batches.network import usual_batch_size
from pipeline.embedding.embed import EmbedReport
from pipeline.inference.infer import InferReport, infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig
from pipeline.store.reading.reader import StoreReader
from training.data.augment import to_input
from training.foundation.progress import Advance, no_bar
from training.inference import RunOn
from training.machine.allocator import keep_for_prediction
from training.predict.numerics import Numerics, Precision

CLASSES = 2


@dataclass(frozen=True)
class Opened:
    """A network that is ready, and the workflow that gives it a slide's tiles."""

    network: nn.Module
    mean: list[float]
    std: list[float]
    run_on: RunOn
    tile_px: int
    batch_size: int
    run: Callable[[Advance], InferReport | EmbedReport]
    """Does the whole slide."""
    forget: Callable[[], None]
    """Removes the slide's results."""


@dataclass(frozen=True)
class Work:
    """A network on a slide."""

    name: str
    network: Callable[[int], nn.Module]
    tile_px: int
    slide_px: int
    precision: Precision = "fp32"
    device: str = "cpu"
    benchmark: str = "infer"

    def opened(self, project: Project, network: nn.Module | None = None) -> Opened:
        """The network, or another one in its place, and inference with it."""
        _, predictor = opened(self, project, network)
        return Opened(
            network=predictor._classifier.forward_only.network,
            mean=predictor._classifier.mean,
            std=predictor._classifier.std,
            run_on=predictor.run_on,
            tile_px=predictor.tile_px,
            batch_size=usual_batch_size(predictor.devices, predictor.tile_px),
            run=lambda advance: infer_slide("S-1", predictor, project, every_tile(predictor), advance=advance),
            forget=lambda: forget(project),
        )


def every_tile(predictor: Predictor) -> InferConfig:
    """Settings that include every tile."""
    return InferConfig(min_tissue=0.0, precision=predictor.run_on.numerics.precision)


def slide_of(folder: Path, side_px: int) -> Project:
    """Project with one slide of this size, made once."""
    project = Project(folder / str(side_px))
    if not project.root.exists():
        project.root.mkdir(parents=True)
        source = project.root / "slide.svs"
        make_slide(source, side_px=side_px, colour="ycbcr")
        ingest_slide(IngestRequest(source, "S-1"), project, IngestConfig())
    return project


def measure(work: Work, project: Project, num_rounds: int) -> dict[str, Any]:
    """Tiles per second of the workflow, of its prediction part, and of the network alone, one after the other."""
    ready = work.opened(project)
    batches = _batches(project, ready)
    alone(ready, batches)  # warm-up
    rounds = [_round(ready, batches, swap=bool(number % 2)) for number in range(num_rounds)]
    return _line(work, rounds, ready.batch_size)


def opened(work: Work, project: Project, network: nn.Module | None = None) -> tuple[StoreReader, Predictor]:
    keep_for_prediction()
    torch.manual_seed(0)
    reader = StoreReader(project.store_path("S-1"))
    predictor = predictor_of(
        network or work.network(CLASSES),
        "bench",
        tile_px=work.tile_px,
        mpp=reader.mpp0,
        num_classes=CLASSES,
        run_on=RunOn(work.device, Numerics(work.precision)),
    )
    return reader, predictor


def _line(work: Work, rounds: list[dict[str, Any]], batch_size: int) -> dict[str, Any]:
    return {
        "benchmark": work.benchmark,
        "work": work.name,
        "device": work.device,
        "road / alone": median(rates["road"] / rates["alone"] for rates in rounds),
        "predicting / alone": median(rates["predicting"] / rates["alone"] for rates in rounds),
        "road / alone, all rounds": sorted(round(rates["road"] / rates["alone"], 3) for rates in rounds),
        "predicting / alone, all rounds": sorted(round(rates["predicting"] / rates["alone"], 3) for rates in rounds),
        "alone tiles/s": median(rates["alone"] for rates in rounds),
        "tiles": rounds[0]["tiles"],
        "batch": batch_size,
        "seconds of the last round": rounds[-1]["seconds"],
        "peak memory of the process, MiB": rounds[-1].get("peak_bytes", peak_bytes()) // 2**20,
        "rounds": len(rounds),
    }


def median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def _batches(project: Project, ready: Opened) -> list[torch.Tensor]:
    """Normalised tiles in memory with the area of 12 batches of 32 tiles of 224 px, at least two batches."""
    reader, size, side_px = StoreReader(project.store_path("S-1")), ready.batch_size, ready.tile_px
    count = 12 if side_px < 1000 else 6
    columns, rows = (side // side_px for side in reader.size_wh_px0)
    corners = [(column * side_px, row * side_px) for row in range(rows) for column in range(columns)]
    batches = []
    for start in range(0, len(corners[: size * count]), size):
        tiles = [reader.read_square(0, x, y, side_px, side_px) for x, y in corners[start : start + size]]
        images = to_input(np.stack(tiles), ready.mean, ready.std).to(ready.run_on.device)
        batches.append(images.to(torch.bfloat16) if ready.run_on.numerics.precision == "bf16" else images)
    return [images for images in batches if len(images) == size]


def alone(ready: Opened, batches: list[torch.Tensor]) -> float:
    """Tiles per second of the network alone."""
    with torch.inference_mode():
        start = time.perf_counter()
        for images in batches:
            ready.network(images)
        if ready.run_on.device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return sum(map(len, batches)) / seconds


def _round(ready: Opened, batches: list[torch.Tensor], *, swap: bool) -> dict[str, Any]:
    """Run half of the batches alone before and half after, so that a slow spell of the machine affects both."""
    half = len(batches) // 2
    before = alone(ready, batches[:half] if not swap else batches)
    ready.forget()
    start = time.perf_counter()
    report = ready.run(no_bar)
    total_s = time.perf_counter() - start
    after = alone(ready, batches[half:] if not swap else batches)
    return {
        "alone": 2 / (1 / before + 1 / after),
        "road": report.num_tiles / total_s,
        "predicting": report.num_tiles / report.seconds["predict"],
        "tiles": report.num_tiles,
        "seconds": report.seconds,
    }


def measure_in_turns(work: Work, project: Project, num_rounds: int) -> dict[str, Any]:
    """Measure on a CPU: the workflow and the network alone run in turns of a quarter second (`benchmarks.slices`)."""
    rounds, alone_log = in_turns(_workflow_in_turns, _alone_in_turns, work, project.root, num_rounds)
    for rates in rounds:
        inside = [(now_s, tiles) for at_s, now_s, tiles in alone_log if rates["began_at"] <= at_s <= rates["ended_at"]]
        rates["alone"] = sum(tiles for _, tiles in inside[1:]) / (inside[-1][0] - inside[0][0])
    return _line(work, rounds, work.opened(project, Mean()).batch_size)


class Mean(nn.Module):
    """Trivial network for a first trial of the workflow."""

    def forward(self, images_nchw: Tensor) -> Tensor:
        return images_nchw.float().mean((2, 3))[:, :CLASSES]


class Clock(Advance):
    """Clock for the start and end of a slide's prediction."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__()
        self._now, self.first_s, self.last_s = now, 0.0, 0.0

    def expect(self, steps: int) -> None:
        self.first_s = self._now()

    def __call__(self, steps: int) -> None:
        self.last_s = self._now()


def _workflow_in_turns(turns: Turns, work: Work, root: Path, num_rounds: int) -> list[dict[str, Any]]:
    project, rounds = Project(root), []
    trial, ready = work.opened(project, Mean()), work.opened(project)
    trial.forget()
    trial.run(no_bar)
    turns.ready()
    for _ in range(num_rounds):
        trial.forget()
        ready.forget()
        clock, began_at, start_s = Clock(turns.now), time.perf_counter(), turns.now()
        report = ready.run(clock)
        rounds.append(
            {
                "began_at": began_at,
                "ended_at": time.perf_counter(),
                "road": report.num_tiles / (turns.now() - start_s),
                "predicting": report.num_tiles / (clock.last_s - clock.first_s),
                "tiles": report.num_tiles,
                "seconds": {"predict": round(clock.last_s - clock.first_s, 3)},
                "peak_bytes": peak_bytes(),
            }
        )
    return rounds


def _alone_in_turns(turns: Turns, work: Work, root: Path, _: int) -> list[tuple[float, float, int]]:
    """Completion time of each batch, on the machine's clock and on this process's own, and its tiles."""
    log = []
    project = Project(root)
    ready = work.opened(project)
    batches = _batches(project, ready)
    alone(ready, batches[:1])
    turns.ready()
    while not turns.is_over:
        for images in batches:
            alone(ready, [images])
            log.append((time.perf_counter(), turns.now(), len(images)))
    return log


def forget(project: Project) -> None:
    shutil.rmtree(project.store_path("S-1") / "predictions", ignore_errors=True)
