"""Steps of every strategy on two real ranks, beside torch's own pipelining and beside the simulator.

    .venv/bin/python -m benchmarks.engine

Two gloo processes, one thread and one core each, ResNet-20-v2 on 160 px tiles, 8 micro-batches of one tile, fp32,
same cuts for all (not channels_last: torch's schedules cannot send such boundaries over gloo). Rounds of one step of
each contender follow each other, so that all meet the same noise; the figures are medians of their ratios to mp-basic
in the same round. Bytes are counted by the engine's own counter (for torch's schedules: what autograd keeps, plus the
receive buffers that it makes for all micro-batches).
Prints one JSON line per contender; the committed ones are in benchmarks/results/engine.jsonl.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from training.engine import Engine, TensorBatch, make_plan
from training.engine.allocator import keep_freed_memory
from training.engine.memory import LiveBytes
from training.engine.partition import block_costs, stage_ranges
from training.engine.ranks import Ranks, connect_ranks
from training.engine.recompute import Recompute
from training.engine.schedule import build_schedule
from training.engine.simulate import StageCost, simulate
from training.engine.stage import StageCopy
from training.models.resnet_v2 import resnet_v2_blocks
from training.parallel_plan import cross_entropy

DEPTH, SIDE_PX, NUM_STAGES, NUM_MICROBATCHES = 20, 160, 2, 8
WARM_UP, ROUNDS = 3, 9
OURS = [(strategy, 0) for strategy in ("mp-basic", "master", "gpipe", "1f1b", "chimera")] + [("1f1b", 2), ("master", 2)]
THEIRS = {"torch GPipe": ScheduleGPipe, "torch 1F1B": Schedule1F1B}


@dataclass
class Contender:
    """One way of doing a step."""

    name: str
    step: Callable[[], Any]
    peak_bytes: Callable[[], int]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder,), nprocs=NUM_STAGES)
        results = [pickle.loads((Path(folder) / f"rank{rank}").read_bytes()) for rank in range(NUM_STAGES)]
    seconds = {
        name: [max(r["seconds"][name][i] for r in results) for i in range(ROUNDS)] for name in results[0]["seconds"]
    }
    costs = [StageCost(*results[stage]["stage_s"][stage]) for stage in range(NUM_STAGES)]
    base = seconds["mp-basic"]
    for name, times in seconds.items():
        line = {
            "benchmark": "engine",
            "network": f"ResNet-{DEPTH}-v2, {SIDE_PX} px, fp32, {NUM_MICROBATCHES} micro-batches, {NUM_STAGES} ranks",
            "contender": name,
            "median step s": round(statistics.median(times), 3),
            "time / mp-basic": round(statistics.median(t / b for t, b in zip(times, base, strict=True)), 3),
            "simulated / mp-basic": _simulated(name, costs),
            "peak MB by rank": [round(r["peak_bytes"][name] / 1e6, 1) for r in results],
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            "command": "python -m benchmarks.engine",
        }
        print(json.dumps(line))


def _simulated(name: str, costs: list[StageCost]) -> float | None:
    """From the stages' own forward and backward times, measured in mp-basic."""
    if name.startswith("torch") or "recompute" in name:
        return None
    ends = [
        simulate(build_schedule(strategy, num_stages=NUM_STAGES, num_microbatches=NUM_MICROBATCHES), costs).end_s
        for strategy in (name, "mp-basic")
    ]
    return round(ends[0] / ends[1], 3)


def _rank(rank: int, folder: str) -> None:
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    torch.set_num_threads(1)
    keep_freed_memory()
    ranks = connect_ranks(timeout_s=600, init_method=f"file://{folder}/meeting-point", rank=rank, num_ranks=NUM_STAGES)
    timer = StageTimer()
    contenders = [_ours(strategy, every, ranks) for strategy, every in OURS]
    contenders += [_theirs(name, ranks) for name in THEIRS]
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    for round_ in range(WARM_UP + ROUNDS):
        for contender in contenders:
            torch.distributed.barrier()
            timer.is_on = contender.name == "mp-basic" and round_ >= WARM_UP
            start = time.perf_counter()
            contender.step()
            torch.distributed.barrier()
            if round_ >= WARM_UP:
                seconds[contender.name].append(time.perf_counter() - start)
    result = {
        "seconds": seconds,
        "peak_bytes": {contender.name: contender.peak_bytes() for contender in contenders},
        "stage_s": timer.medians(),
    }
    (Path(folder) / f"rank{rank}").write_bytes(pickle.dumps(result))
    ranks.close()


class StageTimer:
    """Times the forwards and backwards of stages while it is on."""

    def __init__(self) -> None:
        self.is_on = False
        self._seconds: dict[tuple[int, str], list[float]] = {}
        for name in ("forward", "backward"):
            setattr(StageCopy, name, self._timed(getattr(StageCopy, name), name))

    def _timed(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(copy: StageCopy, *args: Any) -> Any:
            start = time.perf_counter()
            result = method(copy, *args)
            if self.is_on:
                self._seconds.setdefault((copy.stage, name), []).append(time.perf_counter() - start)
            return result

        return timed

    def medians(self) -> dict[int, tuple[float, float]]:
        """(forward, backward) of each stage seen."""
        stages = {stage for stage, _ in self._seconds}
        return {
            stage: (
                statistics.median(self._seconds[stage, "forward"]),
                statistics.median(self._seconds[stage, "backward"]),
            )
            for stage in stages
        }


def _blocks() -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=DEPTH, num_classes=2)


def _batch() -> TensorBatch:
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(1, 3, SIDE_PX, SIDE_PX, generator=generator) for _ in range(NUM_MICROBATCHES)]
    return TensorBatch(tuple((image, torch.tensor([k % 2])) for k, image in enumerate(images)))


def _cuts() -> tuple[list[float], tuple[int, ...]]:
    costs: list[float] = [cost.flops for cost in block_costs(_blocks(), (1, 3, SIDE_PX, SIDE_PX))]
    return costs, make_plan("mp-basic", costs=costs, num_stages=NUM_STAGES).cuts


def _ours(strategy: str, every: int, ranks: Ranks) -> Contender:
    plan = make_plan(
        strategy,
        costs=_cuts()[0],
        num_stages=NUM_STAGES,
        num_microbatches=NUM_MICROBATCHES,
        recompute=Recompute(every),
    )
    engine, batch = Engine(_blocks(), plan, ranks=ranks), _batch()

    def peak() -> int:
        engine.live_bytes.enabled = True
        engine.train_step(batch, cross_entropy)
        return engine.live_bytes.peak

    name = f"{strategy}, recompute every {every}" if every else strategy
    return Contender(name, lambda: engine.train_step(batch, cross_entropy), peak)


def _theirs(name: str, ranks: Ranks) -> Contender:
    """torch.distributed.pipelining as its documentation says: static shapes, loss scaled by the caller, plain SGD."""
    blocks = _blocks()
    indices = stage_ranges(_cuts()[1], len(blocks))[ranks.rank]
    module, before = nn.Sequential(*(blocks[i] for i in indices)), nn.Sequential(*blocks[: indices.start])
    batch = _batch()
    images = torch.cat([image for image, _ in batch.parts])
    labels = torch.cat([label for _, label in batch.parts])
    with torch.no_grad():
        example = before(images[:1])
        output = module(example)
    needs = example.requires_grad_(ranks.rank > 0)
    stage = PipelineStage(
        module, ranks.rank, NUM_STAGES, torch.device("cpu"), input_args=(needs,), output_args=(output.requires_grad_(),)
    )
    schedule = THEIRS[name](
        stage,
        NUM_MICROBATCHES,
        loss_fn=lambda logits, targets: cross_entropy(logits, targets) / NUM_MICROBATCHES,
        scale_grads=False,
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def step() -> None:
        if ranks.rank == 0:
            schedule.step(images)
        else:
            schedule.step(target=labels, losses=[], return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()

    def peak() -> int:
        counter = LiveBytes(enabled=True)
        counter.exclude([*module.parameters(), *module.buffers()])
        with counter.watch():
            step()
        boundary: Tensor = example if ranks.rank else output
        return counter.peak + NUM_MICROBATCHES * boundary.numel() * boundary.element_size()

    return Contender(name, step, peak)


if __name__ == "__main__":
    main()
