"""One process on one core: what the engine costs beside a plain loop, and what its memory and precision settings bring.

    .venv/bin/python -m benchmarks.engine_alone

One stage through the engine beside a plain PyTorch loop (ResNet-20-v2, tiles of 256 and 160 px, 8 micro-batches);
ResNet-110-v2 on one tile of 1024 px: kept as it is, norms computed again, every second block recomputed, and bf16 in
channels_last. Times are medians of ratios within rounds (rounds.py says which rounds count); bytes are the engine's own
count, beside what it predicts. Prints JSON lines; the committed ones are in
benchmarks/results/engine_alone.jsonl. It takes 20 GB of memory and, on a quiet machine, most of an hour.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY, Compute, ratio, run_rounds
from training.engine import Engine, TensorBatch, make_plan
from training.engine.allocator import keep_freed_memory
from training.engine.partition import block_costs
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.models.resnet_v2 import resnet_v2_blocks
from training.parallel_plan import cross_entropy

SMALL_DEPTH, SMALL_SIDES_PX, NUM_MICROBATCHES = 20, (256, 160), 8
DEPTH, SIDE_PX = 110, 1024
SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32, norm": {"recompute": Recompute(rest="norm")},
    "fp32, recompute every 2": {"recompute": Recompute(2)},
    "bf16, channels_last": {"precision": "bf16", "channels_last": True},
    "bf16, channels_last, norm": {"precision": "bf16", "channels_last": True, "recompute": Recompute(rest="norm")},
}


def main() -> None:
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    torch.set_num_threads(1)
    keep_freed_memory()
    about = circumstances("benchmarks.engine_alone")
    for part in (_beside_a_loop, _settings):
        for line in part():
            print(json.dumps({"benchmark": "engine_alone", **line, **about}), flush=True)


def _beside_a_loop() -> Iterator[dict[str, Any]]:
    for side_px in SMALL_SIDES_PX:
        yield _loop_line(side_px)


def _loop_line(side_px: int) -> dict[str, Any]:
    batch = _batch(side_px, NUM_MICROBATCHES)
    engine = Engine(_blocks(SMALL_DEPTH), _plan(SMALL_DEPTH))
    model = nn.Sequential(*_blocks(SMALL_DEPTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def plain() -> float:
        total = 0.0
        for image, label in batch.parts:
            loss: Tensor = cross_entropy(model(image), label) / NUM_MICROBATCHES
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        return total

    times, rounds = _race({"engine": lambda: engine.train_step(batch, cross_entropy), "plain loop": plain}, most=60)
    network = f"ResNet-{SMALL_DEPTH}-v2, {side_px} px, {NUM_MICROBATCHES} micro-batches"
    line = {"network": network, "contender": "single, fp32", "good rounds": rounds}
    return {**line, "time / plain loop": ratio(times["engine"], times["plain loop"])}


def _settings() -> list[dict[str, Any]]:
    batch = _batch(SIDE_PX, 1)
    plans = {name: _plan(DEPTH, **options) for name, options in SETTINGS.items()}
    engines = {name: Engine(_blocks(DEPTH), plan, count_bytes=True) for name, plan in plans.items()}
    measured = {}
    for name, engine in engines.items():
        engine.train_step(batch, cross_entropy)
        measured[name] = engine.live_bytes.peak
        engine.live_bytes.enabled = False
    steps = {name: lambda e=engine: e.train_step(batch, cross_entropy) for name, engine in engines.items()}
    times, rounds = _race(steps, most=12, least=7)
    lines = []
    for name, plan in plans.items():
        (predicted,) = predict_memory(_blocks(DEPTH), cross_entropy, batch, plan)
        line: dict[str, Any] = {"network": f"ResNet-{DEPTH}-v2, one tile of {SIDE_PX} px", "contender": name}
        line["good rounds"] = rounds
        line["median step s"] = round(statistics.median(times[name]), 2) if times[name] else BUSY
        line["time / fp32"] = ratio(times[name], times["fp32"])
        line["fp32 / time"] = ratio(times["fp32"], times[name])
        line["live GB"] = round(measured[name] / 1e9, 3)
        line["live bytes / fp32"] = round(measured[name] / measured["fp32"], 3)
        line["predicted / measured"] = round(predicted.peak_bytes / measured[name], 6)
        lines.append(line)
    return lines


def _race(steps: Mapping[str, Callable[[], Any]], **limits: int) -> tuple[dict[str, list[float]], int]:
    """Seconds of each contender in the good rounds, and how many those are."""
    compute = Compute()

    def timed(step: Callable[[], Any]) -> Callable[[], Any]:
        def work() -> None:
            with compute.timed("step"):
                step()

        return work

    rounds = run_rounds({name: timed(step) for name, step in steps.items()}, compute, **limits)
    return {name: [turns[name].seconds for turns in rounds] for name in steps}, len(rounds)


def _blocks(depth: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=depth, num_classes=2)


def _batch(side_px: int, num_microbatches: int) -> TensorBatch:
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(1, 3, side_px, side_px, generator=generator) for _ in range(num_microbatches)]
    return TensorBatch(tuple((image, torch.tensor([k % 2])) for k, image in enumerate(images)))


def _plan(depth: int, **options: Any) -> Plan:
    costs = [cost.flops for cost in block_costs(_blocks(depth), (1, 3, 32, 32))]
    return make_plan(
        "single",
        costs=costs,
        make_optimizer=lambda named: torch.optim.SGD([weight for _, weight in named], lr=0.01),
        **options,
    )


if __name__ == "__main__":
    main()
