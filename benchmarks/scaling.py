"""GEMS's two scaling results on paper: what the oracle says of clusters that were not at hand.

    .venv/bin/python -m benchmarks.scaling

Nothing is measured here but the search's own time. Blocks take what the cluster's file and cluster.py assume; all other
assumptions stand in docs/explanation/oracle.md. Prints JSON lines; the committed ones are in
benchmarks/results/scaling.jsonl, drawn by benchmarks.draw_scaling. Takes about two minutes.

- "efficiency": ResNet-1001-v2 at 512 px under MASTER, 8 stages: the time of a step of one group beside that of 128
  groups, by micro-batches in a group, for a network card that 4 GPUs share and for one each, without and with jitter:
  each group takes longer by a normal random factor, and the step waits for the slowest.
- "tiles": ResNet-110-v2 at 1024 px: tiles per second under the plans that GEMS ran, and under the fastest that fit.
- "cap": the fastest plans within the memory that MASTER over 4 ranks takes, cut by bytes, with 16 micro-batches.
- "search": the fastest plans on 1,024 ranks with 8 GB each, on one core.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch

from benchmarks.machine import circumstances
from training.engine.partition import BlockCost, partition
from training.engine.recompute import Recompute
from training.engine.strategies import STRATEGIES, build_schedule, place
from training.oracle.clusters.cluster import Cluster, load_cluster
from training.oracle.search.candidates import Request
from training.oracle.search.memory import RankMemory
from training.oracle.search.search import search
from training.oracle.simulation.costs import stage_costs
from training.oracle.simulation.simulate import simulate
from training.recipe.config import Recipe, load_recipe
from training.recipe.plan import blocks_of, costs_of

RECIPES = Path(__file__).parents[1] / "training/recipes"
ABCI, H100 = "abci_v100", "h100_nvlink"
NUM_STAGES, NUM_GROUPS = 8, 128
PER_GROUP = (1, 2, 4, 8, 16, 32, 64)
JITTERS = (0.0, 0.01, 0.03)
PAPER = {1: 32 * 60, 4: 7.25 * 60, 128: 27.5}
"""Minutes of GEMS's run on 1024 px tiles, by GPUs (SC20, and a talk of its authors)."""
SGD_SLOTS = 1


def main() -> None:
    conditions = {"benchmark": "scaling", **circumstances("benchmarks.scaling")}
    for part in (_efficiency, _tiles, _cap, _search):
        for line in part():
            print(json.dumps({"part": part.__name__.removeprefix("_"), **line, **conditions}), flush=True)


@cache
def _counted(recipe_name: str, side_px: int, precision: str) -> tuple[BlockCost, ...]:
    recipe = load_recipe(RECIPES / recipe_name)
    train = recipe.train.model_copy(update={"precision": precision})
    parallel = recipe.parallel.model_copy(update={"microbatch_size": 1})
    recipe = Recipe.model_validate(
        {**recipe.model_dump(), "train": train.model_dump(), "parallel": parallel.model_dump()}
    )
    with torch.device("meta"):
        blocks = blocks_of(recipe.model, side_px)
    return tuple(costs_of(recipe, blocks, side_px))


def _step_s(
    cluster: Cluster, blocks: Sequence[BlockCost], strategy: str, *, stages: int, groups: int, microbatches: int,
    recompute: Recompute = Recompute(),
) -> float:  # fmt: skip
    """Seconds of a step; cuts balance the blocks' seconds."""
    cuts = partition([block.times.forward_s for block in blocks if block.times], stages)
    schedule = build_schedule(strategy, num_stages=stages, num_microbatches=microbatches)
    placement = place(strategy, num_stages=stages, data_parallel=groups)
    costs = cluster.group_costs(stage_costs(blocks, cuts, recompute), schedule, placement)
    return simulate(schedule, costs).end_s


def _efficiency() -> Iterator[dict[str, Any]]:
    shared = load_cluster(Path(ABCI))
    card = shared.network.model_copy(update={"bytes_per_s": shared.network.bytes_per_s * shared.node.gpus})
    for ranks_per_card, cluster in ((4, shared), (1, shared.model_copy(update={"network": card}))):
        blocks = cluster.with_times(_counted("resnet1001_512.toml", 512, "fp32"), "fp32")
        for microbatches in PER_GROUP:
            alone_s, all_s = (
                _step_s(cluster, blocks, "master", stages=NUM_STAGES, groups=groups, microbatches=microbatches)
                for groups in (1, NUM_GROUPS)
            )
            for jitter in JITTERS:
                yield {
                    "network": "ResNet-1001-v2, 512 px, fp32",
                    "cluster": cluster.name,
                    "GPUs that share a card": ranks_per_card,
                    "micro-batches in a group": microbatches,
                    "jitter": jitter,
                    "one group s": round(alone_s, 4),
                    f"{NUM_GROUPS} groups s": round(all_s + jitter * _slowest(NUM_GROUPS) * alone_s, 4),
                    "efficiency": round(alone_s / (all_s + jitter * _slowest(NUM_GROUPS) * alone_s), 4),
                }


@cache
def _slowest(number: int) -> float:
    """Expected maximum of so many standard normal numbers, as the integral over quantiles."""
    steps = 100_000
    normal = NormalDist()
    return sum(normal.inv_cdf(((index + 0.5) / steps) ** (1 / number)) for index in range(steps)) / steps


GEMS = (
    # (GPUs, strategy, stages, groups, micro-batches in a group, recomputation)
    (1, "single", 1, 1, 8, Recompute(rest="norm")),
    (4, "mp-basic", 4, 1, 8, Recompute()),
    (4, "master", 4, 1, 2, Recompute()),
    (4, "master", 4, 1, 8, Recompute()),
    (128, "master", 4, 32, 8, Recompute()),
)


def _tiles() -> Iterator[dict[str, Any]]:
    for name, precision in ((ABCI, "fp32"), (H100, "fp32"), (H100, "bf16")):
        cluster = load_cluster(Path(name))
        blocks = cluster.with_times(_counted("resnet110_1024.toml", 1024, precision), precision)
        common = {"network": f"ResNet-110-v2, 1024 px, {precision}", "cluster": cluster.name}
        for gpus, strategy, stages, groups, microbatches, recompute in GEMS:
            step_s = _step_s(
                cluster, blocks, strategy, stages=stages, groups=groups, microbatches=microbatches, recompute=recompute
            )
            line = {"GPUs": gpus, "plan": f"{strategy}, S = {stages}, D = {groups}, N = {microbatches}"}
            yield {**common, **line, "tiles/s": round(groups * microbatches / step_s, 2), "paper min": PAPER[gpus]}
        for gpus in PAPER:
            best = search(_request(cluster, blocks, gpus, 8 * max(gpus, 8), cluster.gpu.memory_bytes)).candidates[0]
            plan = f"fastest: {best.strategy}, S = {best.num_stages}, D = {best.data_parallel}"
            rate = best.num_microbatches * best.data_parallel / best.step_s
            line = {"GPUs": gpus, "plan": plan, "recompute": best.recompute.rest, "every": best.recompute.every}
            yield {**common, **line, "tiles/s": round(rate, 2), "GB": round(best.rank_bytes / 1e9, 2)}


def _request(
    cluster: Cluster, blocks: Sequence[BlockCost], ranks: int, microbatches: int, cap_bytes: float,
    strategies: Sequence[str] = tuple(STRATEGIES),
) -> Request:  # fmt: skip
    free = cluster.without_messages()
    return Request(
        blocks, ranks, microbatches, cluster.group_costs, cap_bytes, SGD_SLOTS, strategies,
        price_without_messages=free.group_costs,
    )  # fmt: skip


def _cap() -> Iterator[dict[str, Any]]:
    for name in (ABCI, H100):
        cluster = load_cluster(Path(name))
        blocks = cluster.with_times(_counted("resnet110_1024.toml", 1024, "fp32"), "fp32")
        cuts = partition([block.saved_bytes for block in blocks], 4)
        schedule = build_schedule("master", num_stages=4, num_microbatches=16)
        stages = stage_costs(blocks, cuts, Recompute())
        cap_bytes = RankMemory(schedule, schedule.placement, SGD_SLOTS).most_bytes(stages)
        master_s = simulate(schedule, cluster.group_costs(stages, schedule, schedule.placement)).end_s
        found = search(_request(cluster, blocks, 4, 16, cap_bytes)).candidates
        pipelined = search(
            _request(cluster, blocks, 4, 16, cap_bytes, [each for each in STRATEGIES if each != "single"])
        )
        for which, best in (("any", found[0]), ("pipelines", pipelined.candidates[0])):
            yield {
                "cluster": cluster.name,
                "of": which,
                "cap GB": round(cap_bytes / 1e9, 2),
                "master s": round(master_s, 4),
                "fastest": f"{best.strategy}, S = {best.num_stages}, D = {best.data_parallel}",
                "recompute": f"every {best.recompute.every}, {best.recompute.rest} in the rest",
                "GB": round(best.rank_bytes / 1e9, 2),
                "times faster": round(master_s / best.step_s, 3),
            }


def _search() -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    cluster = load_cluster(Path(ABCI))
    for recipe_name, side_px in (("resnet110_1024.toml", 1024), ("resnet1001_512.toml", 512)):
        blocks = cluster.with_times(_counted(recipe_name, side_px, "fp32"), "fp32")
        start_s = time.perf_counter()
        found = search(_request(cluster, blocks, 1024, 4096, 8e9))
        yield {
            "recipe": recipe_name,
            "blocks": len(blocks),
            "ranks": 1024,
            "plans": len(found.candidates),
            "fastest": found.candidates[0].strategy,
            "seconds": round(time.perf_counter() - start_s, 2),
        }


if __name__ == "__main__":
    main()
