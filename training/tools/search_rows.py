"""The search's table for a recipe: the plans that do the same step on these ranks, within their memory."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from training.engine.predict import predict_memory
from training.foundation.errors import NotCalibratedError
from training.oracle.search.candidates import Candidate, Request
from training.oracle.search.search import search
from training.oracle.search.shape import WANTED
from training.recipe.config import OptimConfig
from training.recipe.optimisation import cross_entropy
from training.recipe.plan import EmptyBatch
from training.tools.planned import Planned, describe_recompute


def search_rows(planned: Planned, side_px: int, *, num_ranks: int, cap_bytes: float) -> dict[str, Any]:
    """Search for plans of the recipe's batch on a number of ranks.

    Args:
        cap_bytes: memory of a rank.

    Returns:
        "rows" with the plans, fastest first: "bytes" of the fullest rank are predicted exactly for the first ten, and
        added up from the blocks for the others. "excluded" with the reasons of strategies that have none.

    Raises:
        NotCalibratedError: this machine has not been measured for the recipe.
    """
    machine, parallel = planned.machine, planned.recipe.parallel
    if machine is None:
        raise NotCalibratedError(
            "plans can be compared in seconds once this machine has been measured for this recipe: add `--calibrate`."
        )
    request = Request(
        planned.costs,
        num_ranks,
        parallel.data_parallel * parallel.num_microbatches,
        machine.group_costs,
        cap_bytes,
        _optimizer_slots(planned.recipe.optim),
        may_recompute=not planned.plan.compiled,
        price_without_messages=machine.without_messages().group_costs,
    )
    found = search(request)
    rows = [_row(planned, plan) for plan in found.candidates]
    for row, plan in zip(rows[:WANTED], found.candidates, strict=False):
        row["bytes"] = _predicted_bytes(planned, plan, side_px)
    return {
        "num_ranks": num_ranks,
        "cap_bytes": None if cap_bytes == float("inf") else int(cap_bytes),
        "rows": [row for row in rows if row["bytes"] <= cap_bytes],
        "excluded": [asdict(each) for each in found.excluded],
    }


def _optimizer_slots(config: OptimConfig) -> int:
    """Tensors of the size of a weight that the optimizer keeps for it."""
    return 2 if config.name == "adamw" else int(config.momentum > 0)


def _row(planned: Planned, plan: Candidate) -> dict[str, Any]:
    tiles = plan.num_microbatches * plan.data_parallel * planned.recipe.parallel.microbatch_size
    return {
        "strategy": "ddp" if plan.strategy == "single" and plan.data_parallel > 1 else plan.strategy,
        "num_stages": plan.num_stages,
        "data_parallel": plan.data_parallel,
        "num_microbatches": plan.num_microbatches,
        "recompute": describe_recompute(plan.recompute),
        "cuts": list(plan.cuts),
        "seconds": plan.step_s,
        "tiles_per_s": tiles / plan.step_s if plan.step_s else None,
        "bytes": plan.rank_bytes,
        "communication": plan.communication,
        "bubble": plan.bubble,
    }


def _predicted_bytes(planned: Planned, plan: Candidate, side_px: int) -> int:
    """Bytes of the fullest rank: its live bytes, as predict.py counts them, and the state that it keeps."""
    size = planned.recipe.parallel.microbatch_size
    one_group = replace(
        planned.plan,
        strategy=plan.strategy,
        num_stages=plan.num_stages,
        num_microbatches=plan.num_microbatches,
        data_parallel=1,
        cuts=plan.cuts,
        recompute=plan.recompute,
    )
    memory = predict_memory(planned.blocks, cross_entropy, EmptyBatch(plan.num_microbatches, size, side_px), one_group)
    return max(rank.peak_bytes + state for rank, state in zip(memory, plan.state_bytes, strict=True))
