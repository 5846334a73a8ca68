"""Construction of the stages that a rank holds, from a plan and a list of blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from training.engine.cutting import Cutting
from training.engine.memory import LiveBytes
from training.engine.partition import stage_ranges
from training.engine.placement import Held
from training.engine.plan import Plan
from training.engine.ranks import Ranks
from training.engine.stage import StageCopy
from training.foundation.words.counts import counted
from training.parallel.branches import branches_in, keep_branches
from training.parallel.link import Link, VirtualLink
from training.parallel.wrap import Parts, aliases


def named_stages(blocks: Sequence[nn.Module], plan: Plan, ranks: Ranks) -> list[nn.Sequential]:
    """The blocks of each stage, named by their index in the whole network.

    Raises:
        ValueError: ranks, cuts and blocks do not match, two stages share a weight, or branches are missing.
    """
    if ranks.num_ranks != plan.world_size:
        in_parts = f" in {counted(sum(plan.parts), 'part')}" if plan.parts else ""
        raise ValueError(
            f"{plan.strategy} with {counted(plan.num_stages, 'stage')}{in_parts} and "
            f"{counted(plan.data_parallel, 'group')} needs {counted(plan.world_size, 'rank')}, got {ranks.num_ranks}; "
            f"start {counted(plan.world_size, 'process', 'processes')} or change num_stages"
        )
    if any(len(each) < each.count for block in blocks for each in branches_in(block)):
        raise ValueError(
            "another engine has taken over these blocks and released the branches of other ranks; "
            "build the network again"
        )
    ranges = stage_ranges(plan.cuts, len(blocks))
    stages = [nn.Sequential(OrderedDict((str(i), blocks[i]) for i in indices)) for indices in ranges]
    home: dict[int, int] = {}
    for stage, module in enumerate(stages):
        for name, weight in (*module.named_parameters(), *module.named_buffers()):
            if home.setdefault(id(weight), stage) != stage:
                raise ValueError(f"stages {home[id(weight)]} and {stage} share the weight {name}; give each its own")
    return stages


MakeLink = Callable[[tuple[int, ...]], Link]
"""From the ranks of a stage's parts to the link between them."""


def make_copies(
    plan: Plan, rank: int, stages: Sequence[nn.Sequential], *, counter: LiveBytes, link: MakeLink
) -> dict[Held, StageCopy]:
    """The stages that a rank holds; a stage held for two replicas is a single copy."""
    by_stage: dict[int, StageCopy] = {}
    for stage in sorted({stage for _, stage in plan.placement.held_by(rank)}):
        module = plan.place_module(_own_branches(plan, rank, stage, stages[stage]))
        first_block = int(next(iter(module._modules)))
        by_stage[stage] = StageCopy(
            module,
            stage=stage,
            first_block=first_block,
            device=plan.device,
            precision=plan.precision,
            segments=plan.recompute.segments(stage, len(module)),
            counter=counter,
            is_last=stage == plan.num_stages - 1,
            blocks=[_compiled(block) for block in module] if plan.compiled else None,
            cutting=Cutting(
                range(first_block, first_block + len(module)),
                _parts(plan, rank, stage, module, link),
                _rows_parts(plan, stage + 1),
            ),
        )
    return {(replica, stage): by_stage[stage] for replica, stage in plan.placement.held_by(rank)}


def _own_branches(plan: Plan, rank: int, stage: int, module: nn.Sequential) -> nn.Sequential:
    """Release the branches of sub-graphs that are on other ranks."""
    here, num_parts = plan.placement.parts_on(rank, stage), plan.divisions[stage].num_sub_graphs
    if num_parts > len(here):
        keep_branches(module, here[0], num_parts)
    return module


def _parts(plan: Plan, rank: int, stage: int, module: nn.Sequential, link: MakeLink) -> Parts | None:
    """The parts of a stage that a rank holds; None for a stage in one part."""
    placement = plan.placement
    if placement.num_parts(stage) == 1:
        return None
    ranks = placement.ranks_of[placement.first_held(rank, stage), stage]
    is_virtual = len(set(ranks)) == 1
    between: Link = VirtualLink(len(ranks)) if is_virtual else link(ranks)
    return Parts(between, plan.split_of(stage), aliases(module, len(between.here)))


def _rows_parts(plan: Plan, stage: int) -> int:
    """Number of parts into which a stage cuts images."""
    if stage >= plan.num_stages or plan.split_of(stage) != "rows":
        return 1
    return plan.placement.num_parts(stage)


def _compiled(block: nn.Module) -> Any:
    """Compile one block by itself, so that the cuts of the network do not change what is fused."""
    return torch.compile(block, dynamic=False)
