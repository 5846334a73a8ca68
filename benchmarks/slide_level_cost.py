"""What slide-level training and inference cost: memory of a step, the share of reading, and the map of attention.

    .venv/bin/python -m benchmarks.slide_level_cost [--only memory | reading | attention]

- memory: live bytes of a step of the transformer (256 wide, 4 layers, every block recomputed, 1,024 features),
  predicted for 100,000 tiles; and measured beside predicted for 16,384 tiles.
- reading: an epoch of 200 slides with 10,000 tiles of 1,024 features each, ABMIL, one slide a step, one thread of
  torch, read ahead as `gemslide train` does; and the same with the bags in memory, in turns of 20 slides. The share of
  reading is what the first takes longer. Features come from 20 stores, each read ten times, which the system may hold
  in its cache.
- attention: `gemslide infer` of one slide of 100,000 tiles of 1,280 features with stored features: seconds of
  prediction, attention map, GeoJSON and record together.

Prints a JSON line for each; the committed ones are in benchmarks/results/slide_level_cost.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import circumstances
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slide_level.model import SlideModel
from pipeline.slide_level.predict import predict_unit
from pipeline.slide_level.stored_bags import SlideFeatures, open_slide_features, read_bag
from pipeline.store.layers.features import Features, new_features
from pipeline.store.reading.reader import StoreReader
from tests.small_trained_project import make_slide
from training.engine.engine import Engine
from training.engine.executor import Batch
from training.engine.plan import Plan, make_plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.models.heads.losses import loss_of_targets
from training.models.heads.targets import Target
from training.models.slide_models import slide_model_blocks
from training.recipe.plan import PREFETCH

TARGETS = [Target("tumour", "class", 2)]
PARTS = ("memory", "reading", "attention")
ENCODER_ID = "drawn-00000000"


class StoredBag:
    """A slide whose features are read from its store when they are asked for."""

    def __init__(self, slide: SlideFeatures) -> None:
        self._slide = slide

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(1, self._slide.stored.num_tiles, self._slide.stored.dims + 2)]

    def inputs(self, microbatch: int) -> torch.Tensor:
        """The features and places of the slide."""
        return torch.from_numpy(read_bag([self._slide]))[None]

    def targets(self, microbatch: int) -> torch.Tensor:
        """The class."""
        return torch.zeros(1, 1)


class DrawnBag:
    """Bags with random features, made when they are asked for."""

    def __init__(self, num_tiles: int, dims: int, bags: list[np.ndarray[Any, np.dtype[np.float32]]] | None = None):
        self._num_tiles, self._dims, self._bags = num_tiles, dims, bags

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(1, self._num_tiles, self._dims + 2)]

    def inputs(self, microbatch: int) -> torch.Tensor:
        """The features and places of a bag."""
        if self._bags:
            return torch.from_numpy(self._bags[microbatch])[None]
        random = torch.Generator().manual_seed(microbatch)
        bag = torch.randn(self.shapes[0], generator=random)
        bag[..., -2:] *= 10_000
        return bag

    def targets(self, microbatch: int) -> torch.Tensor:
        """The class."""
        return torch.zeros(1, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    only = parser.parse_args().only
    measured = {"memory": memory, "reading": reading, "attention": attention}
    for part in PARTS if only is None else (only,):
        for line in measured[part]():
            line = {"benchmark": f"slide_level_cost {part}", **line}
            print(json.dumps({**line, **circumstances("benchmarks.slide_level_cost")}), flush=True)


def memory() -> Iterator[dict[str, Any]]:
    """Predicted, and for fewer tiles measured."""
    blocks = slide_model_blocks("transformer", dims=1024, num_outputs=2)
    plan, loss = _plan(len(blocks), every=1), loss_of_targets(TARGETS)
    (large,) = predict_memory(blocks, loss, DrawnBag(100_000, 1024), plan)
    yield {"tiles": 100_000, "predicted_gib": round(large.peak_bytes / 2**30, 3)}
    batch = DrawnBag(16_384, 1024)
    (predicted,) = predict_memory(blocks, loss, batch, plan)
    engine = Engine(blocks, plan, count_bytes=True)
    start = time.perf_counter()
    engine.train_step(batch, loss)
    yield {
        "tiles": 16_384,
        "predicted_bytes": predicted.peak_bytes,
        "measured_bytes": engine.live_bytes.peak,
        "measured_by_predicted": engine.live_bytes.peak / predicted.peak_bytes,
        "step_s": round(time.perf_counter() - start, 1),
    }


def reading() -> Iterator[dict[str, Any]]:
    """The share of an epoch that is reading: from stores, as training reads ahead, beside the same bags in memory."""
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        project = Project(Path(folder))
        slides = [_slide(project, number, 10_000, 1024) for number in range(20)]
        opened = [slide for name in slides if (slide := open_slide_features(project, name, ENCODER_ID))]
        held = [read_bag([slide]) for slide in opened]
        torch.set_num_threads(1)
        seconds = {"stored": 0.0, "held": 0.0}
        with _abmil_engine() as engine:
            for turn in range(10):
                # They take turns in going first, so that a machine that slows down favours neither.
                for way in sorted(seconds, reverse=bool(turn % 2)):
                    batches = [
                        StoredBag(slide) if way == "stored" else DrawnBag(10_000, 1024, [bag])
                        for slide, bag in zip(opened, held, strict=True)
                    ]
                    seconds[way] += _train(engine, batches)
    yield {
        "slides": 200, "tiles": 10_000, "dims": 1024, "epoch_s": round(seconds["stored"], 2),
        "in_memory_s": round(seconds["held"], 2), "reading_share": round(1 - seconds["held"] / seconds["stored"], 3),
    }  # fmt: skip


@contextmanager
def _abmil_engine() -> Iterator[Engine]:
    blocks = slide_model_blocks("abmil", dims=1024, num_outputs=2)
    engine = Engine(blocks, replace(_plan(len(blocks)), prefetch=PREFETCH))
    try:
        yield engine
    finally:
        engine.close()


def _train(engine: Engine, batches: Sequence[Batch]) -> float:
    """Seconds of a step for each batch; the first inputs of the next one are read meanwhile."""
    loss = loss_of_targets(TARGETS)
    start = time.perf_counter()
    for batch, upcoming in zip(batches, [*batches[1:], None], strict=True):
        engine.train_step(batch, loss, upcoming=upcoming)
    return time.perf_counter() - start


def attention() -> Iterator[dict[str, Any]]:
    """Seconds from stored features to results."""
    from tests.pipeline.slide_level.drawn_model import write_drawn_model

    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        project = Project(Path(folder))
        name = _slide(project, 0, 100_000, 1280)
        slide = open_slide_features(project, name, ENCODER_ID)
        assert slide is not None
        for kind in ("mean", "abmil", "clam"):
            package = write_drawn_model(project, slide, kind)
            model = SlideModel.load(package)
            start = time.perf_counter()
            predict_unit(name, [slide], model, project)
            yield {"tiles": 100_000, "dims": 1280, "model": kind, "seconds": round(time.perf_counter() - start, 2)}


def _plan(num_blocks: int, every: int = 0) -> Plan:
    recompute = Recompute(every) if every else Recompute()
    return make_plan("single", num_stages=1, num_microbatches=1, costs=[1.0] * num_blocks, recompute=recompute)


def _slide(project: Project, number: int, num_tiles: int, dims: int) -> str:
    """A small slide whose store holds features of many overlapping tiles."""
    name = f"slide-{number:02}"
    first = project.store_path("slide-00")
    if number == 0:
        source = project.root / "slide-00.tiff"
        project.root.mkdir(parents=True, exist_ok=True)
        make_slide(source, 1)
        ingest_slide(IngestRequest(source, name), project, IngestConfig())
    else:
        shutil.copytree(first, project.store_path(name), ignore=shutil.ignore_patterns("features"))
        root = json.loads((project.store_path(name) / "zarr.json").read_text())
        root["attributes"]["gemslide"]["slide_id"] = name
        (project.store_path(name) / "zarr.json").write_text(json.dumps(root))
    reader = StoreReader(project.store_path(name))
    step = 8 if num_tiles <= 10_000 else 2
    columns = reader.size_wh_px0[0] // step
    places = np.stack(np.divmod(np.arange(num_tiles), columns)[::-1], 1) * step
    random = np.random.default_rng(number)
    values = random.normal(size=(num_tiles, dims)).astype(np.float16)
    features = Features(
        ENCODER_ID, values, places.astype(np.int32), 64.0, float(step),
        {
            "encoder": {}, "weights_sha256": "0" * 64,
            "made_from": {"source_sha256": reader.source_sha256, "tiles": {"min_tissue": 0.5, "overlap": 0.0}},
        },
    )  # fmt: skip
    with new_features(reader.path, features):
        pass
    return name


if __name__ == "__main__":
    main()
