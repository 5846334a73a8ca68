"""Recipes of slide-level models, which learn from all features of a patient or slide: `[data] source = "features"`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from torch import nn

from training.foundation.errors import BadRecipeError
from training.foundation.recipe_file import SUBGRAPH, data_source
from training.foundation.settings import Section, load_section
from training.foundation.words.class_names import check_class_name
from training.models.heads.targets import Target, total_outputs
from training.models.slide_models import slide_model_blocks
from training.recipe.config import MAX_CLASSES, Recipe, RunRecipe, load_recipe

FEATURES = "features"
"""`[data] source` of these recipes."""
MAX_BAG_TILES = 2**20

ColumnName = Annotated[str, Field(min_length=1, max_length=200)]


def _inside_the_project(path: str) -> str:
    if "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError("name a file inside the project, by a path relative to it")
    return path


RelativePath = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_inside_the_project)]


class SlideDataConfig(Section):
    """`[data]` of a slide-level recipe."""

    source: Literal["features"]
    encoder: str = Field(min_length=1, max_length=80)
    """Encoder whose features are read: its id, or its name if a slide has the features of one of that name only."""
    cohort: RelativePath
    """Manifest of the slides, relative to the project."""
    table: RelativePath | None = None
    """Clinical table with targets, by patient or slide; without one, targets are columns of the manifest."""
    unit: Literal["patient", "slide"] = "patient"
    """What has one label: all slides of a patient together, or each slide."""
    folds: RelativePath | None = None
    """File of `gemslide folds`; without one, the manifest's column `split` decides."""
    fold: int = Field(0, ge=0, le=1000)
    """The fold that tests; the next one validates."""
    max_tiles: int = Field(8192, ge=1, le=MAX_BAG_TILES)
    """Most tiles of a patient in a training step, drawn anew in each epoch. Validation and inference see all."""
    balance: bool = False
    """Draw the classes of the first target equally often."""


class TargetConfig(Section):
    """`[[target]]`: something to be predicted of a patient or slide."""

    name: str = Field(min_length=1, max_length=100)
    columns: tuple[ColumnName, ...] = Field(min_length=1, max_length=2)
    """One column; for survival two: time and event."""
    kind: Literal["class", "ordinal", "number", "survival"]
    weight: float = Field(1.0, gt=0, le=1e6)
    """Factor of its loss."""
    classes: tuple[Annotated[str, AfterValidator(check_class_name)], ...] = Field((), max_length=MAX_CLASSES)
    """Order of its classes; needed for "ordinal"."""
    class_weights: Literal["none", "balanced"] = "none"
    """"balanced": each class weighs as much as any other in training."""
    loss: Literal["cox", "discrete"] = "cox"
    """Of survival: Cox's partial likelihood over the batch, or hazards of intervals of time."""
    bins: int = Field(4, ge=2, le=100)
    """Intervals of "discrete", with as many events each."""

    @model_validator(mode="after")
    def columns_fit_the_kind(self) -> Self:
        needed = 2 if self.kind == "survival" else 1
        if len(self.columns) != needed:
            both = "two columns, time and event" if needed == 2 else "one column"
            raise ValueError(f"target {self.name!r}: a {self.kind} needs {both}, got {list(self.columns)}")
        if self.kind == "ordinal" and len(self.classes) < 2:
            raise ValueError(f"target {self.name!r}: an ordinal needs its `classes`, from the lowest to the highest")
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"target {self.name!r}: a class stands twice in {list(self.classes)}")
        return self


class SlideModelConfig(Section):
    """`[model]` of a slide-level recipe."""

    name: Literal["mean", "max", "abmil", "clam", "transmil", "transformer"]
    hidden: int = Field(256, ge=8, le=8192)
    """Width inside the model."""
    layers: int = Field(4, ge=1, le=1000)
    """Layers of a transformer."""
    heads: int = Field(8, ge=1, le=256)
    """Heads of attention of a transformer."""

    @model_validator(mode="after")
    def heads_share_the_width(self) -> Self:
        if self.name in ("transmil", "transformer") and self.hidden % (4 * self.heads):
            raise ValueError(f"hidden = {self.hidden} must be a multiple of 4 · heads = {4 * self.heads}")
        return self


class SlideRecipe(RunRecipe):
    """A whole slide-level recipe. A micro-batch is one patient or slide."""

    data: SlideDataConfig
    target: tuple[TargetConfig, ...] = Field(min_length=1, max_length=100)
    model: SlideModelConfig

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        twice = [name for name, count in Counter(target.name for target in self.target).items() if count > 1]
        if twice:
            raise ValueError(f"two targets are called {twice[0]!r}")
        if self.parallel.is_auto:
            raise ValueError('[parallel] strategy = "auto" is for tiles: bags differ in size from step to step')
        if self.parallel.is_in_parts:
            self._check_parts()
        if self.parallel.microbatch_size != 1:
            raise ValueError(
                f"[parallel] microbatch_size = {self.parallel.microbatch_size}: a micro-batch is one {self.data.unit}; "
                "set num_microbatches to the number of them in a step"
            )
        if self.optim.label_smoothing:
            raise ValueError("[optim] label_smoothing is for models of tiles; leave it out")
        if self.train.compiled:
            raise ValueError("[train] compiled = true would compile the model for each size of a bag; leave it out")
        if self.model.name == "clam" and self.target[0].kind != "class":
            raise ValueError(f"model clam needs a class as its first target, got {self.target[0].kind!r}")
        if self.data.balance and self.target[0].kind not in ("class", "ordinal"):
            raise ValueError("[data] balance draws the classes of the first target equally often, which has none")
        if any(target.kind == "survival" and target.loss == "cox" for target in self.target):
            self._check_cox()
        return self

    def _check_parts(self) -> None:
        if set(self.parallel.split_of_stages) != {"branches"}:
            raise ValueError(
                "[parallel] parts share the rows of a tile or the filters of its layers; a bag has neither. Use "
                f'strategy = "{SUBGRAPH}" with num_subgraphs'
            )
        if self.model.name != "transformer":
            raise ValueError(
                f"[parallel] sub-graphs share the heads of a transformer; model {self.model.name} has no branches"
            )

        most = max(self.parallel.parts_of_stages)
        if most > self.model.heads:
            raise ValueError(
                f"[parallel] {most} sub-graphs cannot share {self.model.heads} heads; use at most {self.model.heads}, "
                "or set [model] heads"
            )

    def _check_cox(self) -> None:
        if self.parallel.batch_size < 2:
            raise ValueError(
                f"Cox's loss compares the patients of a step, but it has {self.parallel.batch_size}: raise [parallel] "
                'num_microbatches, or use loss = "discrete"'
            )


def load_any_recipe(path: Path) -> Recipe | SlideRecipe:
    """Read and check a recipe of tiles, or a slide-level one.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key, or values that do not fit.
    """
    return load_section(SlideRecipe, path) if data_source(path) == FEATURES else load_recipe(path)


def load_tile_recipe(path: Path) -> Recipe:
    """Read and check a recipe of tiles.

    Raises:
        BadRecipeError: as `load_any_recipe`; or it is a slide-level one.
    """
    recipe = load_any_recipe(path)
    if isinstance(recipe, SlideRecipe):
        raise BadRecipeError(
            f'{path}: is a slide-level recipe ([data] source = "features"), which has no tiles to measure. It is '
            "planned with `gemslide plan` and trained with `gemslide train`."
        )
    return recipe


def blocks_of_slides(model: SlideModelConfig, dims: int, targets: Sequence[Target]) -> list[nn.Module]:
    """The network of a recipe or a package for features of `dims` numbers, with fresh weights.

    Raises:
        ValueError: sizes that do not fit together.
    """
    return slide_model_blocks(
        model.name,
        dims=dims,
        num_outputs=total_outputs(targets),
        hidden=model.hidden,
        layers=model.layers,
        heads=model.heads,
        num_classes=targets[0].num_outputs if model.name == "clam" else None,
    )
