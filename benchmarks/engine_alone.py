"""One process on one core: cost of the engine against a plain loop, and gains from its memory and precision settings.

    .venv/bin/python -m benchmarks.engine_alone

Four parts, `--only` one of them:

- `loop`: one stage through the engine against a plain PyTorch loop (ResNet-20-v2, 8 tiles of 256 and of 160 px).
- `times`: ResNet-110-v2 on one tile of 512 px: everything kept, norms recomputed, every second block recomputed, and
  bf16 in channels_last. (At 1024 px a step keeps 19.5 GB and takes a minute of a core: too much for rounds.)
- `limits`: the same network's floating-point operations, and their time at the best rate of the core's matrix
  products, in fp32 and in bf16: no step can be faster.
- `bytes`: the same settings on one tile of 1024 px, one step per process: the engine's own count, against its
  prediction. Takes 22 GB of memory.

Times are medians of ratios within rounds (rounds.py defines the rounds that count). Prints JSON lines; the committed
ones are in benchmarks/results/engine_alone.jsonl. Takes half an hour on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.machine import circumstances
from benchmarks.roofline import count_work, rates_of
from benchmarks.rounds import BUSY, Compute, ratio, run_rounds
from training.engine import Engine, TensorBatch, make_plan
from training.engine.partition import block_costs
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.engine.recompute import Recompute
from training.engine.stage import Precision
from training.machine.allocator import keep_for_training
from training.models.resnet_v2 import resnet_v2_blocks
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch

SMALL_DEPTH, SMALL_SIDES_PX, NUM_MICROBATCHES = 20, (256, 160), 8
DEPTH, TIMED_PX, COUNTED_PX = 110, 512, 1024
SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp32, norm": {"recompute": Recompute(rest="norm")},
    "fp32, channels_last": {"channels_last": True},
    "fp32, recompute every 2": {"recompute": Recompute(2)},
    "bf16, channels_last": {"precision": "bf16", "channels_last": True},
    "bf16, channels_last, norm": {"precision": "bf16", "channels_last": True, "recompute": Recompute(rest="norm")},
}


def main() -> None:
    parts = {"loop": _beside_a_loop, "times": _times, "limits": _limits, "bytes": _bytes}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(parts))
    only = parser.parse_args().only
    _make_ready()
    conditions = circumstances("benchmarks.engine_alone")
    for part in [parts[only]] if only else parts.values():
        for line in part():
            print(json.dumps({"benchmark": "engine_alone", **line, **conditions}), flush=True)


def _make_ready() -> None:
    os.sched_setaffinity(0, {(os.cpu_count() or 1) - 1})
    torch.set_num_threads(1)
    keep_for_training()


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


def _times() -> Iterator[dict[str, Any]]:
    batch = _batch(TIMED_PX, 1)
    engines = {name: Engine(_blocks(DEPTH), _plan(DEPTH, **options)) for name, options in SETTINGS.items()}
    steps = {name: lambda e=engine: e.train_step(batch, cross_entropy) for name, engine in engines.items()}
    times, rounds = _race(steps, most=12, least=7)
    for name in SETTINGS:
        line: dict[str, Any] = {"network": f"ResNet-{DEPTH}-v2, one tile of {TIMED_PX} px", "contender": name}
        line["good rounds"] = rounds
        line["median step s"] = round(statistics.median(times[name]), 2) if times[name] else BUSY
        line["time / fp32"] = ratio(times[name], times["fp32"])
        line["fp32 / time"] = ratio(times["fp32"], times[name])
        yield line


def _limits() -> Iterator[dict[str, Any]]:
    cpu = torch.device("cpu")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    flops = count_work(_blocks(DEPTH), (1, 3, TIMED_PX, TIMED_PX), "fp32", cpu).flops
    rates = {precision: rates_of(cpu, precision, side=2048).flops for precision in precisions}
    for precision in precisions:
        yield {
            "network": f"ResNet-{DEPTH}-v2, one tile of {TIMED_PX} px",
            "contender": f"{precision}, at the rate of its matrix products",
            "GFLOP of a step": round(flops / 1e9),
            "GFLOP/s": round(rates[precision] / 1e9),
            "rate / fp32": round(rates[precision] / rates["fp32"], 3),
            "least step s": round(flops / rates[precision], 2),
        }


def _bytes() -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    of_fp32 = None
    for name, options in SETTINGS.items():
        with context.Pool(1) as pool:
            measured = pool.apply(_counted, (name,))
        (predicted,) = predict_memory(
            _blocks(DEPTH), cross_entropy, EmptyBatch(1, 1, COUNTED_PX), _plan(DEPTH, **options)
        )
        of_fp32 = of_fp32 or measured
        yield {
            "network": f"ResNet-{DEPTH}-v2, one tile of {COUNTED_PX} px",
            "contender": name,
            "live GB": round(measured / 1e9, 3),
            "live bytes / fp32": round(measured / of_fp32, 3),
            "predicted / measured": round(predicted.peak_bytes / measured, 6),
        }


def _counted(name: str) -> int:
    _make_ready()
    engine = Engine(_blocks(DEPTH), _plan(DEPTH, **SETTINGS[name]), count_bytes=True)
    engine.train_step(_batch(COUNTED_PX, 1), cross_entropy)
    return engine.live_bytes.peak


def _race(steps: Mapping[str, Callable[[], Any]], **limits: int) -> tuple[dict[str, list[float]], int]:
    """Seconds of each contender in the good rounds, and the number of good rounds."""
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
