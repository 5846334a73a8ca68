"""What `strategy = "auto"` becomes: the fastest plan for the recipe's batch that fits the ranks that are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from training.engine.recompute import Recompute
from training.foundation.errors import NotCalibratedError, OutOfMemoryError
from training.foundation.words.counts import counted
from training.oracle.search.candidates import Candidate, Excluded, Found, Request
from training.oracle.search.search import search
from training.parallel.division import WHOLE
from training.recipe.config import Recipe
from training.recipe.optimisation import optimizer_slots
from training.recipe.parallel import ParallelConfig
from training.recipe.plan import plan_of
from training.recipe.planned import Planned

NOT_MEASURED = "not measured; add `--calibrate`"


@dataclass(frozen=True)
class Choice:
    """A plan that was chosen, and why."""

    step_s: float
    """Predicted."""
    rank_bytes: int
    """Predicted, of the fullest rank."""
    cap_bytes: int | None
    machine: str
    """For which it was chosen."""

    def as_json(self) -> dict[str, Any]:
        """Entry of the run record."""
        return {
            "machine": self.machine,
            "predicted_step_s": self.step_s,
            "predicted_bytes": self.rank_bytes,
            "cap_bytes": self.cap_bytes,
        }


def on_one_rank(recipe: Recipe) -> Recipe:
    """The recipe's batch on a single rank: where the search for `auto` begins."""
    if not recipe.parallel.is_auto:
        return recipe
    given = recipe.parallel.model_dump(exclude_defaults=True)
    return recipe.model_copy(update={"parallel": ParallelConfig.model_validate({**given, "strategy": "single"})})


def plans_on(planned: Planned, num_ranks: int, cap_bytes: float) -> Found:
    """Search for plans of the recipe's batch.

    Args:
        planned: with seconds.
        cap_bytes: memory of a rank.

    Raises:
        NotCalibratedError: this machine has not been measured for the recipe.
    """
    machine, parallel = planned.machine, planned.recipe.parallel
    if machine is None:
        raise NotCalibratedError(
            "plans can be compared in seconds once this machine has been measured for this recipe: add `--calibrate`."
        )
    divided = {division: costs for division, costs in planned.divided.items() if division != WHOLE}
    request = Request(
        planned.costs,
        num_ranks,
        parallel.data_parallel * parallel.num_microbatches,
        machine.group_costs,
        cap_bytes,
        optimizer_slots(planned.recipe.optim),
        may_recompute=not planned.plan.compiled,
        divided={} if planned.plan.compiled else divided,
        price_without_messages=machine.without_messages().group_costs,
    )
    found = search(request)
    missing = [Excluded("single", 1, 1, NOT_MEASURED, (division,)) for division in planned.not_measured]
    return replace(found, excluded=(*found.excluded, *missing))


def with_candidate(planned: Planned, candidate: Candidate) -> Planned:
    """The recipe with a plan that was found."""
    before = planned.recipe
    is_ddp = candidate.strategy == "single" and candidate.data_parallel > 1
    parallel = ParallelConfig.model_validate(
        {
            "strategy": "ddp" if is_ddp else candidate.strategy,
            "num_stages": candidate.num_stages,
            "num_microbatches": candidate.num_microbatches,
            "microbatch_size": before.parallel.microbatch_size,
            "data_parallel": candidate.data_parallel,
            "recompute": _as_setting(candidate.recompute),
            "cuts": candidate.cuts or None,
            "parts": [division.parts for division in candidate.divisions] or 1,
            "split": [division.split for division in candidate.divisions] or "rows",
            "timeout_s": before.parallel.timeout_s,
        }
    )
    recipe = before.model_copy(update={"parallel": parallel})
    plan = plan_of(recipe, planned.blocks, planned.side_px, planned.plan.device, planned.costs)
    return replace(planned, recipe=recipe, plan=plan)


def _as_setting(recompute: Recompute) -> str | dict[str, Any]:
    if not recompute.every:
        return "none" if recompute.rest == "keep" else recompute.rest
    return {"every": recompute.every, "prefix": recompute.prefix, "rest": recompute.rest}


def choose(planned: Planned, num_ranks: int, cap_bytes: float) -> tuple[Planned, Choice]:
    """The recipe with the fastest plan that fits, by its predicted memory.

    Args:
        planned: the recipe `on_one_rank`, with seconds.
        cap_bytes: memory of a rank.

    Raises:
        NotCalibratedError: as `plans_on`.
        OutOfMemoryError: none fits.
    """
    found = plans_on(planned, num_ranks, cap_bytes)
    for candidate in found.candidates:
        chosen = with_candidate(planned, candidate)
        rank_bytes = chosen.predicted_bytes()
        if rank_bytes <= cap_bytes:
            cap = None if cap_bytes == float("inf") else int(cap_bytes)
            machine = "" if planned.machine is None else planned.machine.named
            return chosen, Choice(candidate.step_s, rank_bytes, cap, machine)
    raise OutOfMemoryError(none_fits(found, planned.recipe, num_ranks, cap_bytes))


def none_fits(found: Found, recipe: Recipe, num_ranks: int, cap_bytes: float) -> str:
    """Say that a search has no plan, and what was least."""
    parallel = recipe.parallel
    reasons = sorted({each.reason for each in found.excluded})
    return (
        f"no plan of this recipe fits {counted(num_ranks, 'rank')} with {cap_bytes / 1e9:.3g} GB each "
        f"({'; '.join(reasons[:4]) or 'predicted exactly, all need more'}). Use more ranks, smaller tiles, or fewer "
        f"tiles at a time ([parallel] microbatch_size = {parallel.microbatch_size}, which changes the result)."
    )
