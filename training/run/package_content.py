"""Contents of a run's packages besides their weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.colour_statistics import HueStatistics
from training.data.facts import data_facts
from training.data.focus_statistics import FocusStatistics
from training.data.tile_dataset import TileSource, labelled, sample_looks, stain_of, tile_read_of
from training.engine.partition import stage_ranges
from training.engine.plan import Plan
from training.foundation.recipe_file import AUTO
from training.machine.threads import instruction_set
from training.packages.intervals import Intervals, bootstrap_intervals
from training.packages.write import PackageContent
from training.recipe.choice import Choice
from training.recipe.config import Recipe, RunRecipe
from training.run.start_weights import StartWeights
from training.run.state import Epoch


@dataclass(frozen=True)
class AppearanceStatistics:
    """Statistics of a sample of the training tiles; None where none has tissue."""

    hues: HueStatistics | None
    focus: FocusStatistics | None


@dataclass(frozen=True)
class RunFacts:
    """Facts that all packages of a run share."""

    recipe: Recipe
    recipe_name: str
    source: TileSource
    mean: list[float]
    std: list[float]
    looks: AppearanceStatistics
    run_id: str
    plan: dict[str, Any]
    start: StartWeights | None


def measure_appearance(source: TileSource, pool: ThreadPoolExecutor) -> AppearanceStatistics:
    """Measure the appearance of the training tiles."""
    return AppearanceStatistics(*sample_looks(source, labelled(source, "train"), pool))


def content_of(facts: RunFacts, which: str, epoch: Epoch) -> PackageContent:
    """Content of one of the packages.

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
        read=tile_read_of(source),
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
        intervals=_intervals(source, epoch.outputs_nk),
        start=None if facts.start is None else str(facts.start),
    )


def _intervals(source: TileSource, probabilities_nk: NDArray[np.float32]) -> Intervals | None:
    """Intervals of the validation; None if the dataset does not know the patients of its tiles."""
    groups: NDArray[np.str_] | None = getattr(source, "groups", None)
    if groups is None:
        return None
    tiles = labelled(source, "val")
    by = getattr(source, "grouped_by", "patient")
    return bootstrap_intervals(source.labels[tiles], probabilities_nk, groups[tiles], by=by)


def describe_plan(recipe: RunRecipe, plan: Plan, num_blocks: int, choice: Choice | None) -> dict[str, Any]:
    """Describe for records and packages how the network was spread."""
    return {
        "strategy": plan.strategy,
        "named": recipe.parallel.strategy if choice is None else AUTO,
        "num_stages": plan.num_stages,
        "parts": list(plan.parts),
        "num_microbatches": plan.num_microbatches,
        "data_parallel": plan.data_parallel,
        "recompute": recipe.parallel.model_dump(mode="json")["recompute"],
        "blocks_per_stage": [len(blocks) for blocks in stage_ranges(plan.cuts, num_blocks)],
    }
