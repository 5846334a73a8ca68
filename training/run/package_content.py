"""What a run's packages say besides their weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.colour_statistics import HueStatistics
from training.config import Recipe
from training.data_facts import data_facts
from training.engine.partition import stage_ranges
from training.engine.plan import Plan
from training.focus_statistics import FocusStatistics
from training.intervals import Intervals, bootstrap_intervals
from training.package import PackageContent
from training.run_state import Epoch
from training.start_weights import StartWeights
from training.threads import instruction_set
from training.tile_dataset import TileSource, labelled, sample_looks, stain_of


@dataclass(frozen=True)
class Looks:
    """Of a sample of the training tiles; None where none has tissue."""

    hues: HueStatistics | None
    focus: FocusStatistics | None


@dataclass(frozen=True)
class RunFacts:
    """What all packages of a run share."""

    recipe: Recipe
    recipe_name: str
    source: TileSource
    mean: list[float]
    std: list[float]
    looks: Looks
    run_id: str
    plan: dict[str, Any]
    start: StartWeights | None


def looks_of(source: TileSource, pool: ThreadPoolExecutor) -> Looks:
    """What the training tiles look like."""
    return Looks(*sample_looks(source, labelled(source, "train"), pool))


def content_of(facts: RunFacts, which: str, epoch: Epoch) -> PackageContent:
    """Of one of the packages.

    Args:
        which: "best" or "last".
    """
    source = facts.source
    return PackageContent(
        recipe=facts.recipe,
        recipe_name=facts.recipe_name,
        classes=source.classes,
        tile_px=source.tile_px,
        mpp=source.mpp,
        mean=facts.mean,
        std=facts.std,
        stain=stain_of(source),
        split_fingerprint=source.fingerprint,
        run_id=facts.run_id,
        plan=facts.plan,
        which=which,
        epoch=epoch.number,
        metrics=epoch.metrics,
        isa=instruction_set(),
        hues=facts.looks.hues,
        focus=facts.looks.focus,
        data=data_facts(source, facts.recipe.data.tile_set),
        intervals=_intervals(source, epoch.probabilities_nk),
        start=None if facts.start is None else str(facts.start),
    )


def _intervals(source: TileSource, probabilities_nk: NDArray[np.float32]) -> Intervals | None:
    """Of the validation; None where the dataset does not say whose its tiles are."""
    groups: NDArray[np.str_] | None = getattr(source, "groups", None)
    if groups is None:
        return None
    tiles = labelled(source, "val")
    by = getattr(source, "grouped_by", "patient")
    return bootstrap_intervals(source.labels[tiles], probabilities_nk, groups[tiles], by=by)


def describe_plan(recipe: Recipe, plan: Plan, num_blocks: int) -> dict[str, Any]:
    """How the network was spread, for records and packages."""
    return {
        "strategy": plan.strategy,
        "named": recipe.parallel.strategy,
        "num_stages": plan.num_stages,
        "num_microbatches": plan.num_microbatches,
        "data_parallel": plan.data_parallel,
        "recompute": recipe.parallel.model_dump(mode="json")["recompute"],
        "blocks_per_stage": [len(blocks) for blocks in stage_ranges(plan.cuts, num_blocks)],
    }
