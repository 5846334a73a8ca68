"""Contents of a slide-level run's packages besides their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.data.bag_source import BagSource, units_by_split
from training.engine.plan import Plan
from training.foundation.words.counts import counted
from training.foundation.words.unit_digest import unit_digest
from training.machine.threads import instruction_set
from training.models.heads.targets import Target
from training.packages.slide_card import SlideCard
from training.packages.slide_package import SlidePackageContent
from training.recipe.slides import SlideRecipe
from training.run.package_content import describe_plan
from training.run.state import Epoch

KINDS = {
    "class": "a probability for each class",
    "ordinal": "a probability for each class, of which higher ones follow lower ones",
    "number": "a number",
    "cox": "a risk: higher means an earlier event",
    "discrete": "the probability of no event by the end of each interval of time",
}


@dataclass(frozen=True)
class SlideRunFacts:
    """Facts that all packages of a run share."""

    recipe: SlideRecipe
    recipe_name: str
    source: BagSource
    targets: Sequence[Target]
    plan: Plan
    num_blocks: int
    run_id: str


def contents_of(
    facts: SlideRunFacts, epochs: Mapping[str, Epoch], median_risks: Mapping[str, Mapping[str, float]]
) -> list[SlidePackageContent]:
    """Content of the packages of some epochs, by "best" and "last".

    Args:
        median_risks: of the training units, by epoch and target.
    """
    return [_content(facts, which, epoch, median_risks[which]) for which, epoch in epochs.items()]


def _content(facts: SlideRunFacts, which: str, epoch: Epoch, median_risks: Mapping[str, float]) -> SlidePackageContent:
    recipe, source = facts.recipe, facts.source
    plan = describe_plan(recipe, facts.plan, facts.num_blocks, None)
    units = units_by_split(source)
    trained = np.flatnonzero(np.isin(source.splits, ("train", "val")))
    config = {
        "runtime": "torch",
        "level": source.unit,
        "model": recipe.model.model_dump(mode="json"),
        "dims": source.dims,
        "targets": _targets(facts, median_risks),
        "encoder": dict(source.encoder),
        "run_id": facts.run_id,
        "recipe": facts.recipe_name,
        "bags_sha256": source.fingerprint,
        "parallel": plan,
        "which": which,
        "epoch": epoch.number,
        "threads": recipe.train.threads,
        "isa": instruction_set(),
        "units": units,
        "test_units": sorted(unit_digest(str(unit)) for unit in source.units[source.splits == "test"]),
        "trained_units": sorted(unit_digest(str(unit)) for unit in source.units[trained]),
    }
    return SlidePackageContent(config, facts.recipe_name, epoch.metrics, _card(facts, which, epoch, units), plan)


def _targets(facts: SlideRunFacts, median_risks: Mapping[str, float]) -> list[dict[str, Any]]:
    packaged = []
    for config, target in zip(facts.recipe.target, facts.targets, strict=True):
        packaged.append(
            {
                "name": target.name,
                "columns": list(config.columns),
                "kind": target.kind,
                "num_outputs": target.num_outputs,
                "classes": list(facts.source.classes.get(target.name, ())),
                "bounds": list(target.bounds),
                "mean": target.mean,
                "std": target.std,
                "median_risk": median_risks.get(target.name),
            }
        )
    return packaged


def _card(facts: SlideRunFacts, which: str, epoch: Epoch, units: Mapping[str, int]) -> SlideCard:
    recipe, source, encoder = facts.recipe, facts.source, facts.source.encoder
    model, train, row = recipe.model, recipe.train, encoder.get("row", {})
    length = counted(train.epochs, "epoch") if train.epochs else counted(train.steps or 0, "optimizer step")
    targets = []
    for config, target in zip(recipe.target, facts.targets, strict=True):
        classes = source.classes.get(target.name, ())
        listed = f" ({', '.join(classes)})" if classes else ""
        targets.append((f"{target.name} (from {' and '.join(config.columns)})", KINDS[target.kind] + listed))
    optim = recipe.optim
    return SlideCard(
        model_id="",
        network=f"{model.name}, {model.hidden} wide, for {source.dims} features",
        unit=source.unit,
        targets=targets,
        encoder=str(encoder["encoder_id"]),
        encoder_licence=str(row.get("licence", "not known")),
        encoder_citation=str(row.get("citation", "not known")),
        tile=f"tiles of {encoder['side_um']:g} µm",
        units_by_split=units,
        metrics=epoch.metrics,
        trained=[
            f"Run `{facts.run_id}`, recipe `{facts.recipe_name}`, seed {train.seed}: {length}, {train.precision}; this "
            f"is the {which} epoch, number {epoch.number}.",
            f"{optim.name}, learning rate {optim.lr:g} ({optim.schedule}), weight decay {optim.weight_decay:g}.",
            f"A step has {counted(recipe.parallel.batch_size, source.unit)}, each with at most {recipe.data.max_tiles} "
            "tiles.",
            f"Units, splits, targets and features have the SHA-256 `{source.fingerprint}`.",
        ],
    )
