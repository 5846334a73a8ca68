"""Works with the code of the checkout that PYTHONPATH names, as `benchmarks.two_trees` asks; calls what both have."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import pipeline
from pipeline.config import IngestConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.store.reader import StoreReader
from training.engine import Engine, TensorBatch, make_plan
from training.engine.partition import block_costs
from training.engine.ranks import alone
from training.models.resnet_v2 import resnet_v2_blocks
from training.parallel_plan import cross_entropy

SQUARE_PX, SQUARES = 512, 300
SIDE_PX, NUM_MICROBATCHES = 96, 4


def ingest(slide: Path, **settings: object) -> int:
    """Ingest the slide; CRC-32 over the chunk files in order of their names."""
    with tempfile.TemporaryDirectory() as folder:
        report = ingest_slide(IngestRequest(slide, "S-1"), Project(Path(folder)), IngestConfig(**settings))
        crc = 0
        for path in sorted(path for path in (report.store / "0").rglob("[0-9]*") if path.is_file()):
            crc = zlib.crc32(path.read_bytes(), crc)
    return crc


def read(reader: StoreReader, mpp: float | None) -> int:
    """Random squares of the slide, at level 0 or at a resolution between levels."""
    random, crc = np.random.default_rng(0), 0
    width_px0, height_px0 = reader.size_wh_px0
    for _ in range(SQUARES if mpp is None else SQUARES // 10):
        x_px0, y_px0 = int(random.integers(width_px0 - 2048)), int(random.integers(height_px0 - 2048))
        pixels = (
            reader.read_square(0, x_px0, y_px0, SQUARE_PX, SQUARE_PX)
            if mpp is None
            else reader.read_at_mpp(x_px0, y_px0, SQUARE_PX, SQUARE_PX, mpp)
        )
        crc = zlib.crc32(np.ascontiguousarray(pixels), crc)
    return crc


def train_steps() -> int:
    """Steps of `master` with both replicas on this rank; CRC-32 over the weights."""
    torch.manual_seed(0)
    blocks = resnet_v2_blocks(depth=20, num_classes=2)
    costs = [cost.flops for cost in block_costs(blocks, (1, 3, SIDE_PX, SIDE_PX))]
    plan = make_plan("master", costs=costs, num_stages=1, num_microbatches=NUM_MICROBATCHES)
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(1, 3, SIDE_PX, SIDE_PX, generator=generator) for _ in range(NUM_MICROBATCHES)]
    batch = TensorBatch(tuple((image, torch.tensor([k % 2])) for k, image in enumerate(images)))
    engine = Engine(blocks, plan, ranks=alone())
    for _ in range(3):
        engine.train_step(batch, cross_entropy)
    crc = 0
    for block in blocks:
        for value in block.state_dict().values():
            crc = zlib.crc32(value.detach().contiguous().numpy(), crc)
    return crc


def main() -> None:
    slide = Path(sys.argv[1])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        report = ingest_slide(IngestRequest(slide, "S-1"), Project(Path(folder)), IngestConfig())
        reader = StoreReader(report.store)
        works: dict[str, Callable[[], int]] = {
            "ingest, tiles copied": lambda: ingest(slide),
            "ingest, decoded": lambda: ingest(slide, pass_through=False),
            "300 squares of 512 px at level 0": lambda: read(reader, None),
            "30 squares of 512 px at 0.7 µm/px": lambda: read(reader, 0.7),
            "3 training steps of master, ResNet-20-v2": train_steps,
        }
        say({"root": str(Path(pipeline.__file__).parents[1]), "works": list(works)})
        for line in sys.stdin:
            cpu, wall = time.process_time(), time.perf_counter()
            crc = works[line.strip()]()
            say({"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall, "crc32": crc})


def say(answer: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
