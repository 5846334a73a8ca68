"""The search's table for a recipe: the plans that do the same step on these ranks, within their memory."""

from __future__ import annotations

from typing import Any

from training.foundation.errors import OutOfMemoryError
from training.oracle.search.candidates import Candidate, Excluded
from training.oracle.search.shape import WANTED
from training.recipe.choice import none_fits, plans_on, with_candidate
from training.recipe.planned import Planned, describe_recompute
from training.tools.plan.fsdp_row import fsdp_row


def search_rows(planned: Planned, *, num_ranks: int, cap_bytes: float) -> dict[str, Any]:
    """Search for plans of the recipe's batch on a number of ranks.

    Args:
        cap_bytes: memory of a rank.

    Returns:
        "rows" with the plans, fastest first: "bytes" of the fullest rank are predicted exactly for the first ten, and
        added up from the blocks for the others. "parallel" is what stands in a recipe for each of these ten.
        "excluded" with the reason ("refused") of each strategy without a plan, and of each of the ten that turns out
        to need more. "fsdp" is a row that the engine has no strategy for.

    Raises:
        NotCalibratedError: this machine has not been measured for the recipe.
        OutOfMemoryError: no plan fits.
    """
    found = plans_on(planned, num_ranks, cap_bytes)
    rows = [_row(planned, plan) for plan in found.candidates]
    for row, plan in zip(rows[:WANTED], found.candidates, strict=False):
        chosen = with_candidate(planned, plan)
        row["bytes"] = chosen.predicted_bytes()
        row["parallel"] = chosen.recipe.parallel.model_dump(mode="json", exclude_defaults=True)
    ddp = next(
        (
            (plan, row)
            for plan, row in zip(found.candidates, rows, strict=True)
            if plan.num_stages == 1 and not plan.divisions
        ),
        None,
    )
    fsdp = None if ddp is None else fsdp_row(planned, *ddp)
    fitting = [row for row in rows if row["bytes"] <= cap_bytes]
    larger = [(plan, row) for plan, row in zip(found.candidates, rows, strict=True) if row["bytes"] > cap_bytes]
    if not fitting:
        raise OutOfMemoryError(none_fits(found, planned.recipe, num_ranks, cap_bytes))
    return {
        "num_ranks": num_ranks,
        "cap_bytes": None if cap_bytes == float("inf") else int(cap_bytes),
        "rows": fitting,
        "fsdp": fsdp,
        "excluded": [
            *(_excluded(each, each.reason) for each in found.excluded),
            *(_excluded(plan, _too_large(row)) for plan, row in larger),
        ],
    }


def _excluded(plan: Candidate | Excluded, reason: str) -> dict[str, Any]:
    return {
        "strategy": plan.strategy,
        "num_stages": plan.num_stages,
        "data_parallel": plan.data_parallel,
        "parts": [division.parts for division in plan.divisions],
        "refused": reason,
    }


def _too_large(row: dict[str, Any]) -> str:
    return f"recompute {row['recompute']} needs {row['bytes'] / 1e9:.3g} GB, predicted exactly"


def _row(planned: Planned, plan: Candidate) -> dict[str, Any]:
    tiles = plan.num_microbatches * plan.data_parallel * planned.recipe.parallel.microbatch_size
    return {
        "strategy": "ddp" if plan.strategy == "single" and plan.data_parallel > 1 else plan.strategy,
        "num_stages": plan.num_stages,
        "data_parallel": plan.data_parallel,
        "parts": [division.parts for division in plan.divisions],
        "num_microbatches": plan.num_microbatches,
        "recompute": describe_recompute(plan.recompute),
        "cuts": list(plan.cuts),
        "seconds": plan.step_s,
        "tiles_per_s": tiles / plan.step_s if plan.step_s else None,
        "bytes": plan.rank_bytes,
        "communication": plan.communication,
        "bubble": plan.bubble,
    }
