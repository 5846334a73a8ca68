"""The same training on another number of ranks: the same batch and micro-batches, so the same weights, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

from training.engine.strategies import strategy_for
from training.foundation.errors import WrongWorldSizeError
from training.foundation.recipe_file import SUBGRAPH
from training.foundation.words.counts import counted
from training.recipe.parallel import ParallelConfig


def spread_over(parallel: ParallelConfig, num_ranks: int, *, most_stages: int) -> ParallelConfig:
    """`parallel` for this many ranks: with its number of stages if that fits, otherwise the nearest number that does.

    More stages are preferred to fewer, which take more memory on each rank.

    Args:
        num_ranks: 1 or more.
        most_stages: number of blocks of the network.

    Returns:
        `parallel` unchanged if nothing fits.
    """
    if parallel.world_size == num_ranks:
        return parallel
    microbatches = parallel.data_parallel * parallel.num_microbatches
    if parallel.is_in_parts:
        return _parts_spread_over(parallel, num_ranks, microbatches, most_stages)
    fitting = [
        stages
        for stages in _by_preference(parallel.num_stages, num_ranks)
        if microbatches % (num_ranks // stages) == 0 and stages <= most_stages
    ]
    if not fitting:
        return parallel
    num_stages = fitting[0]
    groups = num_ranks // num_stages
    return ParallelConfig.model_validate(
        {
            **parallel.model_dump(),
            "strategy": strategy_for(parallel.resolved_strategy, num_stages),
            "num_stages": num_stages,
            "data_parallel": groups,
            "num_microbatches": microbatches // groups,
        }
    )


def _parts_spread_over(parallel: ParallelConfig, num_ranks: int, microbatches: int, most_stages: int) -> ParallelConfig:
    """Parts, alike in all stages, on so many ranks: each on its own where the ranks can be divided by their number."""
    (num_parts,) = set(parallel.parts_of_stages)
    split = parallel.split_of_stages[0]
    parallel = parallel.model_copy(
        update={"strategy": parallel.resolved_strategy, "num_subgraphs": 1, "parts": num_parts, "split": split}
    )
    places, rest = divmod(num_ranks, num_parts)
    if not rest:
        one_each = parallel.model_copy(update={"parts": 1, "virtual_parts": False})
        spread = spread_over(one_each, places, most_stages=most_stages)
        if spread.world_size == places:
            return ParallelConfig.model_validate({**spread.model_dump(), "parts": num_parts})
    if microbatches % num_ranks:
        return parallel
    return ParallelConfig.model_validate(
        {
            **parallel.model_dump(),
            "strategy": "single",
            "num_stages": 1,
            "data_parallel": num_ranks,
            "num_microbatches": microbatches // num_ranks,
            "virtual_parts": True,
        }
    )


def _by_preference(wanted: int, num_ranks: int) -> Iterator[int]:
    divisors = [number for number in range(1, num_ranks + 1) if num_ranks % number == 0]
    yield from (number for number in divisors if number >= wanted)
    yield from (number for number in reversed(divisors) if number < wanted)


def check_world_size(parallel: ParallelConfig, recipe_name: str, world_size: int) -> None:
    """Refuse another number of ranks than the recipe's.

    Raises:
        WrongWorldSizeError: with how to start the right number.
    """
    if parallel.world_size != world_size:
        raise WrongWorldSizeError(
            f"{recipe_name}: {parallel.strategy} with num_stages = {parallel.num_stages}{_parts_text(parallel)} and "
            f"data_parallel = {parallel.data_parallel} needs {counted(parallel.world_size, 'rank')}, but "
            f"{counted(world_size, 'is', 'are')} started. Give `--nproc {parallel.world_size}` (torchrun: "
            "--nproc-per-node), or change [parallel] (`elastic = true` takes any number that gives the same result)."
        )


def _parts_text(parallel: ParallelConfig) -> str:
    if parallel.strategy == SUBGRAPH:
        return f", num_subgraphs = {parallel.num_subgraphs}"
    shown = parallel.parts if isinstance(parallel.parts, int) else list(parallel.parts)
    return f", parts = {shown}" if parallel.is_in_parts else ""
