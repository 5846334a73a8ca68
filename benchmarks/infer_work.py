"""One network on one slide: the inference workflow against the network alone."""

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
from pipeline.inference.infer import infer_slide, slide_grid
from pipeline.inference.predictor import Predictor
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import InferConfig, IngestConfig
from pipeline.store.reading.reader import StoreReader
from training.data.augment import to_input
from training.foundation.progress import Advance
from training.inference import RunOn
from training.machine.allocator import keep_for_prediction
from training.predict.numerics import Numerics, Precision

CLASSES = 2


@dataclass(frozen=True)
class Work:
    """A network on a slide."""

    name: str
    network: Callable[[int], nn.Module]
    tile_px: int
    slide_px: int
    precision: Precision = "fp32"
    device: str = "cpu"


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
    reader, predictor = opened(work, project)
    batches = _batches(reader, predictor, work.precision)
    alone(predictor, batches)  # warm-up
    rounds = [_round(project, predictor, batches, swap=bool(number % 2)) for number in range(num_rounds)]
    return _line(work, rounds, usual_batch_size(predictor.devices, predictor.tile_px))


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
        "benchmark": "infer",
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


def _batches(reader: StoreReader, predictor: Predictor, precision: Precision) -> list[torch.Tensor]:
    """Normalised tiles in memory with the area of 12 batches of 32 tiles of 224 px, at least two batches."""
    size, mean, std = (
        usual_batch_size(predictor.devices, predictor.tile_px),
        predictor._classifier.mean,
        predictor._classifier.std,
    )
    count = 12 if predictor.tile_px < 1000 else 6
    corners = slide_grid(reader, predictor).corners_xy0[: size * count]
    batches = []
    for start in range(0, len(corners), size):
        tiles = [
            reader.read_square(0, int(x), int(y), predictor.tile_px, predictor.tile_px)
            for x, y in corners[start : start + size]
        ]
        images = to_input(np.stack(tiles), mean, std).to(predictor.run_on.device)
        batches.append(images.to(torch.bfloat16) if precision == "bf16" else images)
    return [images for images in batches if len(images) == size]


def alone(predictor: Predictor, batches: list[torch.Tensor]) -> float:
    """Tiles per second of the network alone."""
    network, is_gpu = predictor._classifier.forward_only.network, predictor.run_on.device.startswith("cuda")
    with torch.inference_mode():
        start = time.perf_counter()
        for images in batches:
            network(images)
        if is_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return sum(map(len, batches)) / seconds


def _round(project: Project, predictor: Predictor, batches: list[torch.Tensor], *, swap: bool) -> dict[str, Any]:
    """Run half of the batches alone before and half after, so that a slow spell of the machine affects both."""
    half = len(batches) // 2
    before = alone(predictor, batches[:half] if not swap else batches)
    forget(project)
    start = time.perf_counter()
    report = infer_slide("S-1", predictor, project, every_tile(predictor))
    total_s = time.perf_counter() - start
    after = alone(predictor, batches[half:] if not swap else batches)
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
    _, predictor = opened(work, project, Mean())
    return _line(work, rounds, usual_batch_size(predictor.devices, predictor.tile_px))


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
    _, trial = opened(work, project, Mean())
    _, predictor = opened(work, project)
    forget(project)
    infer_slide("S-1", trial, project, every_tile(trial))
    turns.ready()
    for _ in range(num_rounds):
        forget(project)
        clock, began_at, start_s = Clock(turns.now), time.perf_counter(), turns.now()
        report = infer_slide("S-1", predictor, project, every_tile(predictor), advance=clock)
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
    reader, predictor = opened(work, Project(root))
    batches = _batches(reader, predictor, work.precision)
    alone(predictor, batches[:1])
    turns.ready()
    while not turns.is_over:
        for images in batches:
            alone(predictor, [images])
            log.append((time.perf_counter(), turns.now(), len(images)))
    return log


def forget(project: Project) -> None:
    shutil.rmtree(project.store_path("S-1") / "predictions", ignore_errors=True)
