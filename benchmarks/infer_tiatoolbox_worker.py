"""A slide from its file to published predictions, timed, in a separate process: our part of `infer_tiatoolbox`.

    .venv/bin/python -m benchmarks.infer_tiatoolbox_worker SLIDE WEIGHTS.pt OUT.npz --mpp MPP [--precision fp32|bf16]

`ingest_seconds` is the ingest of the slide file into a new store, `seconds` is `infer_slide` on that store, all tiles
whatever their content, to the published results in all default formats. `import_seconds` and `build_seconds` (the
network with its weights, ready to predict) come before them. Published probabilities have 16 bits; those in OUT.npz are
as the network gave them, float32, with their tiles' `corners_xy`. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.others_predict import peak_mib

if TYPE_CHECKING:  # importing them is timed
    from pipeline.batches.block_runner import Seconds
    from pipeline.batches.blocks import Block
    from pipeline.batches.devices import Devices
    from pipeline.batches.journal import BatchResult
    from pipeline.inference.infer import InferReport
    from pipeline.inference.predictor import Predictor
    from pipeline.project import Project

IMPORTED = (
    "benchmarks.networks",
    "pipeline.inference.infer",
    "pipeline.ingest.ingest",
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
)


def main() -> None:
    options = _options()
    clock = [time.perf_counter()]
    import_all()
    clock.append(time.perf_counter())
    recorder = build(options.weights, options.mpp, options.precision)
    clock.append(time.perf_counter())
    with tempfile.TemporaryDirectory(dir=options.out.parent) as folder:
        project = ingest(options.slide, Path(folder))
        clock.append(time.perf_counter())
        report = infer(recorder, project)
        clock.append(time.perf_counter())
    np.savez(options.out, **recorder.predictions())
    imported, built, ingested, inferred = (round(end - start, 3) for start, end in pairwise(clock))
    line = {
        "tiles": report.num_tiles,
        "seconds": inferred,
        "ingest_seconds": ingested,
        "import_seconds": imported,
        "build_seconds": built,
        "parts": report.seconds,
        "peak_mib": peak_mib(),
    }
    print(json.dumps(line))


class Recorder:
    """Devices whose results are all recorded."""

    def __init__(self, devices: Devices[Predictor]) -> None:
        self._devices, self.turn = devices, threading.Lock()
        self._corners: dict[int, Any] = {}
        self._probabilities: dict[int, Any] = {}

    @property
    def network(self) -> Predictor:
        return self._devices.network

    @property
    def seconds(self) -> Seconds:
        return self._devices.seconds

    def results(self, blocks: Iterator[Block]) -> Iterator[BatchResult]:
        """Results from the devices."""
        for result in self._devices.results(self._seen(blocks)):
            self._probabilities[result.number] = result.values_nk
            yield result

    def _seen(self, blocks: Iterator[Block]) -> Iterator[Block]:
        for block in blocks:
            for index, number in enumerate(block.batches):
                self._corners[number] = block.corners_xy0[block.tiles_of(index)]
            yield block

    def predictions(self) -> dict[str, Any]:
        """Corners and probabilities of every tile once; a few glass tiles are predicted twice, as a check."""
        numbers = sorted(self._probabilities)
        corners_xy = np.concatenate([self._corners[number] for number in numbers])
        probabilities = np.concatenate([self._probabilities[number] for number in numbers])
        _, first = np.unique(corners_xy, axis=0, return_index=True)
        return {"corners_xy": corners_xy[first], "probabilities": probabilities[first]}


def import_all() -> None:
    """Import everything that the functions below and the writing of results use, to exclude it from their time."""
    for name in IMPORTED:
        import_module(name)


def build(weights: Path, mpp: float, precision: Any) -> Recorder:
    """Our way of running the network of these weights."""
    import torch

    from benchmarks.networks import predictor_of, resnet18, torchvision_name
    from pipeline.batches.devices import OneDevice
    from training.inference import RunOn
    from training.predict.numerics import Numerics

    network, stored = resnet18(2), torch.load(weights)
    network.load_state_dict({key: stored[torchvision_name(key)] for key in network.state_dict()})
    run_on = RunOn("cpu", Numerics(precision))
    return Recorder(OneDevice(predictor_of(network, "bench", tile_px=224, mpp=mpp, num_classes=2, run_on=run_on)))


def ingest(slide: Path, folder: Path) -> Project:
    """Make a project with the slide."""
    from pipeline.ingest.ingest import IngestRequest, ingest_slide
    from pipeline.project import Project
    from pipeline.settings.config import IngestConfig

    project = Project(folder)
    ingest_slide(IngestRequest(slide, "S-1"), project, IngestConfig())
    return project


def infer(recorder: Recorder, project: Project) -> InferReport:
    """Predict every tile of the slide, and publish the results."""
    from pipeline.inference.infer import infer_slide
    from pipeline.settings.config import InferConfig

    config = InferConfig(min_tissue=0.0, precision=recorder.network.run_on.numerics.precision)
    return infer_slide("S-1", recorder.network, project, config, devices=recorder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slide", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mpp", type=float, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    return parser.parse_args()


if __name__ == "__main__":
    main()
