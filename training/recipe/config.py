"""Recipes: everything that decides a training run, read from TOML. A misspelt key is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from training.foundation.settings import Section, load_section
from training.foundation.words.class_names import check_class_name
from training.foundation.words.counts import counted
from training.foundation.words.names import NAME_PATTERN
from training.recipe.parallel import ParallelConfig

MAX_THREADS = 1024
MAX_DEPTH, MAX_CLASSES = 2000, 1000
"""Limits of a network. The deepest shipped one has 1001 layers; an unbounded number could exhaust the memory."""


class DataConfig(Section):
    """`[data]`"""

    tile_set: str = Field(pattern=NAME_PATTERN)
    source: str = "tiles"
    """Name of a dataset in the entry-point group `gemslide.datasets`."""
    classes: tuple[Annotated[str, AfterValidator(check_class_name)], ...] = ()
    """Class order; if empty, the tile set's."""
    balance: bool = False
    """Draw every class equally often."""
    stain: Literal["none", "macenko", "reinhard"] = "none"
    """Read tiles as if every slide were stained like the reference; the dataset does so, and the model requires it."""


class ModelConfig(Section):
    """`[model]`"""

    name: Literal["resnet_v2"] = "resnet_v2"
    depth: int = Field(ge=11, le=MAX_DEPTH)
    """9n + 2."""
    variant: Literal["standard", "gems-public"] = "standard"
    """`gems-public` is the network published by the authors of GEMS, for comparison."""
    norm: Literal["batch", "group"] = "batch"
    num_classes: int = Field(ge=2, le=MAX_CLASSES)

    @model_validator(mode="after")
    def fits_together(self) -> Self:
        if (self.depth - 2) % 9:
            below = (self.depth - 2) // 9 * 9 + 2
            raise ValueError(f"depth must be 9n + 2, got {self.depth}; nearest are {below} and {below + 9}")
        if self.variant == "gems-public" and self.norm != "batch":
            raise ValueError(f'variant gems-public has norm = "batch" only, got {self.norm!r}')
        return self


class OptimConfig(Section):
    """`[optim]`"""

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(0.1, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    """Nesterov momentum of `sgd`."""
    weight_decay: float = Field(1e-4, ge=0)
    decay_all: bool = False
    """Apply weight decay to norms and biases, too; their size has no meaning, so by default they do not decay."""
    warmup_steps: int = Field(0, ge=0, le=10**9)
    """Steps over which the learning rate rises linearly from zero."""
    schedule: Literal["constant", "cosine", "step"] = "cosine"
    drop_at: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field((0.5, 0.75), max_length=100)
    """For `step`: fractions of the run after which the learning rate is multiplied by `drop_factor`."""
    drop_factor: float = Field(0.1, gt=0, lt=1)
    clip_norm: float | None = Field(None, gt=0)
    """Largest norm of all gradients together; larger ones are scaled down to it."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Fraction of each label that is spread evenly over all classes."""
    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Average the weights over steps, w̄ ← d w̄ + (1 − d) w, and validate and package the average."""

    @model_validator(mode="after")
    def drops_rise(self) -> Self:
        if list(self.drop_at) != sorted(set(self.drop_at)):
            raise ValueError(f"drop_at must rise from drop to drop, got {list(self.drop_at)}")
        return self


class TrainConfig(Section):
    """`[train]`: exactly one of epochs and steps."""

    epochs: int | None = Field(None, ge=1, le=10**9)
    steps: int | None = Field(None, ge=1, le=10**9)
    """Optimizer steps in all; validation then happens once, at the end."""
    patience: int | None = Field(None, ge=1, le=10**9)
    """Stop early after this many epochs without a lower validation loss; None for never."""
    non_finite: Literal["stop", "skip"] = "stop"
    """Effect of a loss or gradient that is not finite: end the run, or skip the step."""
    seed: int = Field(0, ge=0)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """"fp16" is for GPUs without bf16; its loss scale is a power of two that follows the gradients."""
    compiled: bool = False
    """Run each block of the network through torch.compile: faster on GPUs, but with different last bits, and without
    recomputation."""
    deterministic: bool = True
    """On GPUs, use only kernels that give the same bits every time. If off, a run is faster but not repeatable."""
    channels_last: bool = True
    threads: int = Field(1, ge=1, le=MAX_THREADS)
    """Threads of each rank within an operation. Never the number of cores: a recipe gives the same bits everywhere."""

    @model_validator(mode="after")
    def one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of `epochs` and `steps`")
        if self.patience is not None and self.epochs is None:
            raise ValueError("`patience` counts epochs, and a run of `steps` is validated once; give `epochs`")
        return self


class CheckpointConfig(Section):
    """`[checkpoint]`: states from which a run that died resumes, after each epoch and every few steps."""

    every_steps: int = Field(500, ge=1, le=10**9)
    keep: int = Field(2, ge=1, le=1000)
    """Number of latest checkpoints to keep; a run that succeeds keeps none."""


class FinetuneConfig(Section):
    """`[finetune]`: start from pretrained weights."""

    weights: str | None = Field(None, min_length=1, max_length=4096)
    """A model of the project by its id, or a safetensors file (relative to the project)."""
    freeze_blocks: int = Field(0, ge=0, le=10_000)
    """Number of the network's first blocks that do not learn."""

    @model_validator(mode="after")
    def freezes_what_was_trained(self) -> Self:
        if self.freeze_blocks and self.weights is None:
            raise ValueError("freeze_blocks = 0 or `weights`: blocks that never learned anything cannot be frozen")
        return self


class AugmentConfig(Section):
    """`[augment]`: random changes of a tile, the same on every rank for the same seed."""

    flips: bool = True
    """The eight rotations and reflections of a square: tissue has no up."""
    brightness: float = Field(0.0, ge=0, lt=1)
    contrast: float = Field(0.0, ge=0, lt=1)
    saturation: float = Field(0.0, ge=0, lt=1)
    """Saturation is multiplied by 1 ± this."""
    hue: float = Field(0.0, ge=0, le=0.5)
    """Hues are rotated by up to this fraction of the colour circle, either way."""
    stain: float = Field(0.0, ge=0, lt=1)
    """Haematoxylin, eosin and DAB, separated in optical density, are each multiplied by 1 ± this and shifted by ± this:
    0.05 is light, 0.2 is strong (Tellez et al., Medical Image Analysis 58, 2019)."""


class RunRecipe(Section):
    """Sections of every recipe, whatever is trained."""

    parallel: ParallelConfig = ParallelConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig
    checkpoint: CheckpointConfig = CheckpointConfig()


class Recipe(RunRecipe):
    """A whole recipe for tiles."""

    data: DataConfig
    model: ModelConfig
    finetune: FinetuneConfig = FinetuneConfig()
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def classes_fit_the_model(self) -> Self:
        if self.data.classes and len(self.data.classes) != self.model.num_classes:
            raise ValueError(
                f"[data] names {counted(len(self.data.classes), 'class', 'classes')} ({', '.join(self.data.classes)}), "
                f"[model] num_classes = {self.model.num_classes}"
            )
        return self


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key, or values that do not fit.
    """
    return load_section(Recipe, path)
