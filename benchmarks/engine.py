"""Steps of every strategy on two real ranks, compared with torch's own pipelining and with the simulator.

    .venv/bin/python -m benchmarks.engine

Two gloo processes, one thread and one core each, ResNet-20-v2 on 256 px tiles, 8 micro-batches of one tile, fp32, the
same cuts for all (not channels_last: torch's schedules cannot send such boundaries over gloo). Times are medians of
ratios within rounds (rounds.py defines the rounds that count); those against torch also for 160 px, where the fixed
costs of a micro-batch weigh more. A simulation takes the costs of stages. From the costs in mp-basic's step, where one
rank computes at a time, and with free messages, it predicts how much faster than mp-basic a strategy would be. From the
costs in the strategy's own step, where both ranks share the memory, it predicts the time of that step: with free
messages, and with the time that a message of that length took by itself just before.

For memory each contender runs in two fresh processes: growth of the resident set above its size before the first step,
and the bytes that the engine predicts and counts. Torch is used as documented: static shapes, the loss scaled by the
caller, plain SGD. Prints JSON lines; the committed ones are in benchmarks/results/engine.jsonl. Takes about thirty
minutes on an idle machine; `--only times` runs a part.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from benchmarks.machine import circumstances
from benchmarks.rounds import BUSY, Compute, Turn, ratio, run_rounds
from training.engine import Engine, TensorBatch, make_plan
from training.engine.partition import block_costs, stage_ranges
from training.engine.plan import Plan
from training.engine.predict import predict_memory
from training.engine.ranks import Ranks, connect_ranks
from training.engine.recompute import Recompute
from training.engine.stage import StageCopy
from training.engine.strategies import build_schedule
from training.engine.transport import GroupWire
from training.machine.allocator import keep_for_training
from training.models.resnet_v2 import resnet_v2_blocks
from training.oracle.simulation.costs import Costs, StageCost
from training.oracle.simulation.links import Link, pairs
from training.oracle.simulation.simulate import simulate
from training.recipe.optimisation import cross_entropy

DEPTH, SIDE_PX, SMALL_PX, NUM_STAGES, NUM_MICROBATCHES, MANY = 20, 256, 160, 2, 8, 64
RACE_ROUNDS = 21
"""Many rounds, as two contenders differ by about 1 %, and successive rounds by as much."""
OURS = ("mp-basic", "master", "gpipe", "1f1b", "chimera")
THEIRS = {"torch gpipe": ScheduleGPipe, "torch 1f1b": Schedule1F1B}
BESIDE_TORCH = (("mp-basic", "gpipe", "torch gpipe"), ("mp-basic", "1f1b", "torch 1f1b"))
RACES = {SIDE_PX: (("mp-basic", "master", "chimera"), *BESIDE_TORCH), SMALL_PX: BESIDE_TORCH}
POLICIES = {
    "keep": Recompute(),
    "recompute every 2": Recompute(2),
    "norm": Recompute(rest="norm"),
    "offload": Recompute(rest="offload"),
}
Work = Callable[[], Any]


def main() -> None:
    conditions = {
        "network": f"ResNet-{DEPTH}-v2, fp32, {NUM_STAGES} ranks",
        **circumstances("benchmarks.engine"),
    }
    parts = {"times": _times, "resident": _resident, "counted": _counted}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(parts))
    only = parser.parse_args().only
    for part in [parts[only]] if only else parts.values():
        for line in part():
            print(json.dumps({"benchmark": "engine", "side px": SIDE_PX, **line, **conditions}), flush=True)


# --- time ------------------------------------------------------------------------------------------


def _times() -> Iterator[dict[str, Any]]:
    for side_px, races in RACES.items():
        for names in races:
            results = on_two_ranks(_race, names, side_px)
            for line in _race_lines(names, [rounds for rounds, _ in results], results[0][1]):
                yield {"side px": side_px, **line}


def _race_lines(
    names: Sequence[str], by_rank: Sequence[Sequence[dict[str, Turn]]], message_s: dict[str, float]
) -> Iterator[dict[str, Any]]:
    rounds = by_rank[0]
    seconds = {name: [turns[name].seconds for turns in rounds] for name in names}
    turns = list(zip(*by_rank, strict=True))
    # From the costs of stages when one rank computes at a time, and in the same strategy's step.
    simulated = {
        name: [_simulated(name, turn, costs_of="mp-basic") for turn in turns] for name in names if name in OURS
    }
    for name, times in seconds.items():
        line: dict[str, Any] = {"contender": name, "micro-batches": NUM_MICROBATCHES, "good rounds": len(rounds)}
        line["median step s"] = round(statistics.median(times), 3) if times else BUSY
        line["time / mp-basic"] = ratio(times, seconds["mp-basic"])
        if name in OURS:
            line["simulated / mp-basic"] = ratio(simulated[name], simulated["mp-basic"])
            rows = zip(simulated[name], seconds["mp-basic"], simulated["mp-basic"], strict=True)
            line["time / its simulation"] = ratio(times, [own * step / basic for own, step, basic in rows])
            price = message_s["both ways" if name == "chimera" else "one way"]
            from_own = [_simulated(name, turn, costs_of=name) for turn in turns]
            with_messages = [_simulated(name, turn, costs_of=name, message_s=price) for turn in turns]
            line["seconds / simulated from its own stages"] = ratio(times, from_own)
            line["seconds / simulated from its own stages and messages"] = ratio(times, with_messages)
            line["message ms"] = round(1000 * price, 2)
        if f"torch {name}" in seconds:
            line["time / torch's"] = ratio(times, seconds[f"torch {name}"])
        yield line


def _simulated(strategy: str, turns: Sequence[dict[str, Turn]], *, costs_of: str, message_s: float = 0.0) -> float:
    """Simulated seconds, from the times of each stage's forward and backward in this round's step of a strategy."""
    times: dict[tuple[str, int], list[float]] = {}
    for turn in turns:
        for key, parts in turn[costs_of].compute.parts.items():
            times.setdefault(key, []).extend(parts)
    costs = [
        StageCost(
            *(statistics.mean(times[name, stage]) for name in ("forward", "backward")), input_bytes=1, gradient_bytes=1
        )
        for stage in range(NUM_STAGES)
    ]
    schedule = build_schedule(strategy, num_stages=NUM_STAGES, num_microbatches=NUM_MICROBATCHES)
    return simulate(schedule, Costs(costs, pairs(Link("message", alpha_s=message_s)))).end_s


def _race(ranks: Ranks, names: Sequence[str], side_px: int) -> tuple[list[dict[str, Turn]], dict[str, float]]:
    keep_for_training()
    message_s = _message_s(ranks, side_px)
    compute = Compute()
    for name in ("forward", "backward"):
        compute.wrap(StageCopy, name, lambda copy: copy.stage)
        compute.wrap(PipelineStage, f"{name}_one_chunk", lambda stage: stage.stage_index)
    contenders = {name: _step_of(name, ranks, NUM_MICROBATCHES, side_px) for name in names}
    return run_rounds(contenders, compute, least=RACE_ROUNDS), message_s


def _message_s(ranks: Ranks, side_px: int) -> dict[str, float]:
    """Seconds of one boundary between otherwise idle ranks, one after the other and both at once (medians).

    The boundary is the last data written to the cache, as after a stage's computation.
    """
    blocks = _blocks()
    (cut,) = _plan("mp-basic", NUM_MICROBATCHES).cuts
    boundary: Tensor = nn.Sequential(*blocks[:cut])(random_batch(1, side_px).parts[0][0])
    row, peer, wire = torch.zeros(boundary.nbytes, dtype=torch.uint8), 1 - ranks.rank, GroupWire(ranks)
    elsewhere = torch.zeros(2**28, dtype=torch.uint8)

    def meet(sends: bool, takes: bool) -> None:
        for works in wire.group([(row, peer)] * sends, [(torch.empty_like(row), peer)] * takes):
            for work in works:
                work.wait()

    times_by_way: dict[str, list[float]] = {"one way": [], "both ways": []}
    first = ranks.rank == 0
    for _ in range(30):
        for way, seconds in times_by_way.items():
            elsewhere.add_(1)
            row.add_(1)
            dist.barrier()
            start = time.perf_counter()
            if way == "both ways":
                meet(True, True)
            else:
                meet(first, not first)
                meet(not first, first)
            seconds.append((time.perf_counter() - start) / (1 if way == "both ways" else 2))
    return {way: statistics.median(seconds) for way, seconds in times_by_way.items()}


# --- memory ----------------------------------------------------------------------------------------


def _resident() -> Iterator[dict[str, Any]]:
    for count in (NUM_MICROBATCHES, MANY):
        for name in ("gpipe", "1f1b"):
            if (name, count) == ("gpipe", MANY):
                continue
            ours, theirs = (on_two_ranks(_grown, one, count) for one in (name, f"torch {name}"))
            line = {"contender": name, "micro-batches": count}
            line["resident MB by rank"] = [round(value / 1e6, 1) for value in ours]
            line["torch's resident MB by rank"] = [round(value / 1e6, 1) for value in theirs]
            line["resident bytes / torch's, by rank"] = [round(a / b, 3) for a, b in zip(ours, theirs, strict=True)]
            line["resident bytes / torch's"] = round(sum(ours) / sum(theirs), 3)
            yield line


def _grown(ranks: Ranks, name: str, num_microbatches: int) -> int:
    """Largest growth of the resident set in three steps, in bytes; a first network warms up the libraries."""
    _step_of("mp-basic", ranks, 2)()
    gc.collect()
    before = _status_bytes("VmRSS")
    step = _step_of(name, ranks, num_microbatches)
    Path("/proc/self/clear_refs").write_text("5")  # resets the kernel's peak
    for _ in range(3):
        step()
    return _status_bytes("VmHWM") - before


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def _counted() -> Iterator[dict[str, Any]]:
    for strategy in OURS:
        for policy, recompute in POLICIES.items():
            plan = _plan(strategy, NUM_MICROBATCHES, recompute)
            predicted = [rank.peak_bytes for rank in predict_memory(_blocks(), cross_entropy, random_batch(8), plan)]
            measured = on_two_ranks(_live_bytes, strategy, recompute)
            line: dict[str, Any] = {"contender": strategy, "policy": policy, "micro-batches": NUM_MICROBATCHES}
            line["live MB by rank"] = [round(value / 1e6, 1) for value in measured]
            line["predicted / measured"] = [round(p / m, 6) for p, m in zip(predicted, measured, strict=True)]
            yield line


def _live_bytes(ranks: Ranks, strategy: str, recompute: Recompute) -> int:
    engine = Engine(_blocks(), _plan(strategy, NUM_MICROBATCHES, recompute), ranks=ranks, count_bytes=True)
    peaks = []
    for _ in range(2):
        engine.train_step(random_batch(NUM_MICROBATCHES), cross_entropy)
        peaks.append(engine.live_bytes.peak)
    return max(peaks)


# --- two ranks -------------------------------------------------------------------------------------


def on_two_ranks(task: Callable[..., Any], *args: Any) -> list[Any]:
    """Results of `task(ranks, *args)` on each of two pinned processes."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (folder, task, args), nprocs=NUM_STAGES)
        return [pickle.loads((Path(folder) / f"rank{rank}").read_bytes()) for rank in range(NUM_STAGES)]


def _rank(rank: int, folder: str, task: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.sched_setaffinity(0, {rank % (os.cpu_count() or 1)})
    torch.set_num_threads(1)
    ranks = connect_ranks(timeout_s=600, init_method=f"file://{folder}/meeting-point", rank=rank, num_ranks=NUM_STAGES)
    (Path(folder) / f"rank{rank}").write_bytes(pickle.dumps(task(ranks, *args)))
    ranks.close()


def _step_of(name: str, ranks: Ranks, num_microbatches: int, side_px: int = SIDE_PX) -> Work:
    return (_theirs if name in THEIRS else _ours)(name, ranks, random_batch(num_microbatches, side_px))


def _ours(strategy: str, ranks: Ranks, batch: TensorBatch) -> Work:
    engine = Engine(_blocks(), _plan(strategy, len(batch.parts)), ranks=ranks)
    return partial(engine.train_step, batch, cross_entropy)


def _theirs(name: str, ranks: Ranks, batch: TensorBatch) -> Work:
    num_microbatches = len(batch.parts)
    blocks = _blocks()
    indices = stage_ranges(_plan("mp-basic", num_microbatches).cuts, len(blocks))[ranks.rank]
    module, before = nn.Sequential(*(blocks[i] for i in indices)), nn.Sequential(*blocks[: indices.start])
    images = torch.cat([image for image, _ in batch.parts])
    labels = torch.cat([label for _, label in batch.parts])
    with torch.no_grad():
        example: Tensor = before(images[:1])
        output: Tensor = module(example)
    del before
    needs = example.requires_grad_(ranks.rank > 0)
    stage = PipelineStage(
        module, ranks.rank, NUM_STAGES, torch.device("cpu"), input_args=(needs,), output_args=(output.requires_grad_(),)
    )
    schedule = THEIRS[name](
        stage,
        num_microbatches,
        loss_fn=lambda logits, targets: cross_entropy(logits, targets) / num_microbatches,
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

    return step


def _blocks() -> list[nn.Module]:
    torch.manual_seed(0)
    return resnet_v2_blocks(depth=DEPTH, num_classes=2)


def random_batch(num_microbatches: int, side_px: int = SIDE_PX) -> TensorBatch:
    """Micro-batches of one image each, always the same."""
    generator = torch.Generator().manual_seed(1)
    images = [torch.randn(1, 3, side_px, side_px, generator=generator) for _ in range(num_microbatches)]
    return TensorBatch(tuple((image, torch.tensor([k % 2])) for k, image in enumerate(images)))


def _plan(strategy: str, num_microbatches: int, recompute: Recompute | None = None) -> Plan:
    costs = [cost.flops for cost in block_costs(_blocks(), (1, 3, SIDE_PX, SIDE_PX))]
    return make_plan(
        strategy,
        costs=costs,
        num_stages=NUM_STAGES,
        num_microbatches=num_microbatches,
        recompute=recompute,
        # Plain SGD, as for torch.
        make_optimizer=lambda named: torch.optim.SGD([weight for _, weight in named], lr=0.01),
    )


if __name__ == "__main__":
    main()
