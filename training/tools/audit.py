"""A rank that compares predictions with the clock: `python -m training.local_ranks … -m training.tools.audit …`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from training.engine.batches import TensorBatch
from training.foundation.errors import OutOfMemoryError, WrongWorldSizeError
from training.foundation.publish import write_bytes_atomic
from training.foundation.words.counts import counted
from training.machine.devices import backend_of, local_ranks, room_bytes
from training.oracle.audit.accuracy import accuracy, summary
from training.oracle.audit.race import Raced, race
from training.oracle.audit.trace import chrome_trace
from training.oracle.predict import predict_step
from training.oracle.search.candidates import Candidate
from training.recipe.choice import none_fits, on_one_rank, plans_on, with_candidate
from training.recipe.config import Recipe
from training.recipe.dividing import with_parts_to_choose
from training.recipe.optimisation import loss_of
from training.recipe.plan import blocks_of
from training.recipe.planned import Planned, describe_recompute, planned_of, with_seconds
from training.tools.on_ranks import Measuring, parser_of, run_on_ranks


def audit(
    of: Measuring,
    *,
    sample: int,
    cap_bytes: float | None = None,
    trace: Path | None = None,
    least_share: float | None = None,
) -> dict[str, Any]:
    """Train a few steps under some of a recipe's plans; every rank calls it.

    Args:
        sample: number of plans.
        cap_bytes: most memory of a rank; None for what this machine has.
        trace: file for a Chrome trace, which the first rank writes.
        least_share: as for `race`.

    Returns:
        "runs": one object for each plan, and "summary".

    Raises:
        GemslideError: another number of ranks than the recipe's, this machine has not been measured for it, no plan
            fits, or other programs had the cores.
    """
    _check_ranks(of.recipe, of.ranks.num_ranks)
    plans, picked = _sampled(of, sample, cap_bytes)
    bare = {name: planned.plan for name, planned in plans.items()}
    loss = loss_of(of.recipe.optim)
    options = {} if least_share is None else {"least_share": least_share}
    measured = race(bare, partial(_blocks, of.recipe, of.side_px), _batch(of), loss, of.ranks, **options)
    timelines = {name: predict_step(each.plan, each.divided, _machine(each)) for name, each in plans.items()}
    predicted_s = {name: timeline.end_s for name, timeline in timelines.items()}
    if trace is not None and of.ranks.rank == 0:
        write_bytes_atomic(trace, json.dumps(chrome_trace(measured, timelines)).encode())
    return {
        "runs": [_run(plans[name], predicted_s[name], raced) for name, raced in measured.items()],
        "summary": summary(predicted_s, {name: raced.step_s for name, raced in measured.items()}, picked),
    }


def _check_ranks(recipe: Recipe, num_ranks: int) -> None:
    wanted = num_ranks if recipe.parallel.is_auto else recipe.parallel.world_size
    if wanted != num_ranks:
        raise WrongWorldSizeError(
            f"the recipe needs {counted(wanted, 'rank')}, but {counted(num_ranks, 'is', 'are')} started"
        )


def _sampled(of: Measuring, sample: int, cap_bytes: float | None) -> tuple[dict[str, Planned], str]:
    """Plans by name: the first of each strategy, then others from all over the table; the first rank's on all ranks.

    Returns:
        them, and the name of the one that would be picked.
    """
    num_ranks = of.ranks.num_ranks
    cap_bytes = cap_bytes or room_bytes(of.device, local_ranks())
    planned = with_parts_to_choose(planned_of(on_one_rank(of.recipe), of.side_px, of.device), num_ranks, cap_bytes)
    planned = with_seconds(planned, of.project_dir, num_ranks=num_ranks, backend=backend_of(of.ranks.wire))
    found = of.ranks.broadcast_from_first(plans_on(planned, num_ranks, cap_bytes))
    if not found.candidates:
        raise OutOfMemoryError(none_fits(found, of.recipe, num_ranks, cap_bytes))
    plans = {_name(each): with_candidate(planned, each) for each in sampled(found.candidates, sample)}
    return plans, _name(found.candidates[0])


def sampled(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """The first plan of each strategy, whole and in parts, then others evenly from the rest; fastest first.

    Args:
        candidates: in the order in which they are preferred.
    """
    first = {(each.strategy, bool(each.divisions)): each for each in reversed(candidates)}
    chosen = [each for each in candidates if first[each.strategy, bool(each.divisions)] is each][:number]
    rest = [each for each in candidates if each not in chosen]
    more = min(number - len(chosen), len(rest))
    chosen += [rest[index * len(rest) // more] for index in range(more)]
    return sorted(chosen, key=lambda each: each.step_s)


def _name(plan: Candidate) -> str:
    parts = "".join(f", {division.parts} parts by {division.split}" for division in dict.fromkeys(plan.divisions))
    stages = f"S = {plan.num_stages}, D = {plan.data_parallel}{parts}"
    return f"{plan.strategy}, {stages}, {describe_recompute(plan.recompute)}"


def _blocks(recipe: Recipe, side_px: int) -> list[torch.nn.Module]:
    torch.manual_seed(recipe.train.seed)
    return blocks_of(recipe.model, side_px)


def _batch(of: Measuring) -> TensorBatch:
    """A batch of the recipe's shape, with random pixels."""
    parallel = of.recipe.parallel
    generator = torch.Generator().manual_seed(of.recipe.train.seed)
    size = (parallel.microbatch_size, 3, of.side_px, of.side_px)
    labels = (parallel.microbatch_size,)
    return TensorBatch(
        tuple(
            (
                torch.randn(size, generator=generator),
                torch.randint(of.recipe.model.num_classes, labels, generator=generator),
            )
            for _ in range(parallel.data_parallel * parallel.num_microbatches)
        )
    )


def _machine(planned: Planned) -> Any:
    assert planned.machine is not None  # `with_seconds` has found it
    return planned.machine


def _run(planned: Planned, predicted_s: float, raced: Raced) -> dict[str, Any]:
    parallel = planned.recipe.parallel
    return {
        "strategy": parallel.strategy,
        "recompute": describe_recompute(planned.plan.recompute),
        "num_stages": parallel.num_stages,
        "data_parallel": parallel.data_parallel,
        "parts": list(planned.plan.parts),
        "num_microbatches": parallel.num_microbatches,
        "cuts": list(planned.plan.cuts),
        "predicted_s": predicted_s,
        "measured_s": raced.step_s,
        "accuracy": accuracy(predicted_s, raced.step_s),
        "predicted_bytes": max(rank.peak_bytes for rank in planned.predicted_ranks()),
        "measured_bytes": max(raced.live_bytes),
        "rounds": len(raced.rounds_s),
    }


def _arguments() -> argparse.Namespace:
    parser = parser_of("python -m training.tools.audit")
    parser.add_argument("--sample", type=int, default=8)
    parser.add_argument("--cap-bytes", type=int)
    parser.add_argument("--trace", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    asked = {"sample": arguments.sample, "cap_bytes": arguments.cap_bytes, "trace": arguments.trace}
    return run_on_ranks(arguments, partial(audit, **asked))


if __name__ == "__main__":
    sys.exit(main())
