"""Recipes: everything that decides a training run, read from TOML. A misspelt key is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from training.engine.plan import spell_out
from training.engine.recompute import Recompute
from training.engine.schedule import check_request
from training.errors import BadRecipeError
from training.foundation.class_names import check_class_name
from training.foundation.names import NAME_PATTERN
from training.foundation.settings import Section, load_section

MAX_RANKS, MAX_TILES = 1024, 4096
"""Of one dimension of a run, and of a micro-batch: schedules are played step by step before anything starts."""
MAX_THREADS = 1024
RECIPES_DIR = Path(__file__).parent / "recipes"
MAX_DEPTH, MAX_CLASSES = 2000, 1000
"""Of a network. The deepest that is shipped has 1001 layers; a number without bound would take all memory."""


class DataConfig(Section):
    """`[data]`"""

    tile_set: str = Field(pattern=NAME_PATTERN)
    source: str = "tiles"
    """Name of a dataset in the entry-point group `gemslide.datasets`."""
    classes: tuple[Annotated[str, AfterValidator(check_class_name)], ...] = ()
    """Class order; empty takes the tile set's."""
    balance: bool = False
    """Draw every class equally often."""
    stain: Literal["none", "macenko", "reinhard"] = "none"
    """Read tiles as if every slide were stained like the reference; the dataset does it, and the model asks for it."""


class ModelConfig(Section):
    """`[model]`"""

    name: Literal["resnet_v2"] = "resnet_v2"
    depth: int = Field(ge=11, le=MAX_DEPTH)
    """9n + 2."""
    variant: Literal["standard", "gems-public"] = "standard"
    """`gems-public` is the network that the authors of GEMS published, for comparison."""
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


class RecomputeConfig(Section):
    """`[parallel] recompute = {every = 2}` or `{every = 6, prefix = [23, 0]}`."""

    every: int = Field(1, ge=1, le=10_000)
    """Blocks of which only the first input is kept; they run again in backward."""
    prefix: tuple[int, ...] | None = None
    """How many blocks of each stage, from its start; all if left out."""
    rest: Literal["keep", "norm", "offload"] = "keep"
    """What becomes of the activations of the other blocks."""


def _word_or_table(value: object) -> str | None:
    """Which of its two forms a value of `recompute` has."""
    if isinstance(value, str):
        return "as a word" if value in ("none", "norm", "offload") else None
    return "as a table" if isinstance(value, dict | RecomputeConfig) else None


class ParallelConfig(Section):
    """`[parallel]`: how one model is spread over ranks. World size = data_parallel · num_stages."""

    strategy: Literal[
        "single", "mp-basic", "master", "gpipe", "1f1b", "chimera", "mast", "hybrid", "ddp"
    ] = "single"  # fmt: skip
    """`mast` is `master` with two micro-batches, `hybrid` is `master` and `ddp` is `single` with several groups."""
    num_stages: int = Field(1, ge=1, le=MAX_RANKS)
    """S: ranks that together hold one model."""
    num_microbatches: int = Field(1, ge=1, le=MAX_TILES)
    """N (the paper's η): slices of a group's share of a batch."""
    microbatch_size: int = Field(1, ge=1, le=MAX_TILES)
    """Tiles per micro-batch."""
    data_parallel: int = Field(1, ge=1, le=MAX_RANKS)
    """D: groups of num_stages ranks, each with a share of the batch."""
    recompute: Annotated[
        Annotated[Literal["none", "norm", "offload"], Tag("as a word")] | Annotated[RecomputeConfig, Tag("as a table")],
        Discriminator(
            _word_or_table,
            custom_error_type="word_or_table",
            custom_error_message='use "none", "norm", "offload", or a table such as {every = 2}',
        ),
    ] = "none"
    """"norm": outputs of normalisation and ReLU are computed again, which halves the activations for little time;
    "offload": activations wait in host memory; a table: whole blocks are computed again."""
    balance: Literal["flops", "bytes"] = "flops"
    """What the cut into stages evens out: time, or activation memory."""
    timeout_s: float = Field(600.0, gt=0, le=1e6)
    """A rank silent for longer counts as lost."""

    @model_validator(mode="after")
    def numbers_fit_the_strategy(self) -> Self:
        check_request(
            self.resolved_strategy,
            num_stages=self.num_stages,
            num_microbatches=self.num_microbatches,
            data_parallel=self.data_parallel,
        )
        prefix = self.recompute_rule.prefix
        if prefix is not None and len(prefix) != self.num_stages:
            raise ValueError(f"recompute prefix {list(prefix)} needs one entry for each of {self.num_stages} stages")
        return self

    @property
    def resolved_strategy(self) -> str:
        """The strategy behind an alias."""
        return spell_out(self.strategy, num_microbatches=self.num_microbatches, data_parallel=self.data_parallel)

    @property
    def recompute_rule(self) -> Recompute:
        if isinstance(self.recompute, str):
            return Recompute(rest="keep" if self.recompute == "none" else self.recompute)
        return Recompute(self.recompute.every, self.recompute.prefix, self.recompute.rest)

    @property
    def world_size(self) -> int:
        return self.data_parallel * self.num_stages

    @property
    def batch_size(self) -> int:
        """Tiles per optimizer step."""
        return self.data_parallel * self.num_microbatches * self.microbatch_size


class OptimConfig(Section):
    """`[optim]`"""

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(0.1, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0)
    warmup_steps: int = Field(0, ge=0, le=10**9)
    schedule: Literal["constant", "cosine"] = "cosine"
    clip_norm: float | None = Field(None, gt=0)
    """Largest norm of all gradients together; larger ones are scaled down to it."""


class TrainConfig(Section):
    """`[train]`: exactly one of epochs and steps."""

    epochs: int | None = Field(None, ge=1, le=10**9)
    steps: int | None = Field(None, ge=1, le=10**9)
    """Optimizer steps in all; validation then happens once, at the end."""
    seed: int = Field(0, ge=0)
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """"fp16" is for GPUs without bf16; its loss scale is a power of two that follows the gradients."""
    compiled: bool = False
    """Each block of the network through torch.compile: faster on GPUs, but with other last bits, and without
    recomputation."""
    channels_last: bool = True
    threads: int = Field(1, ge=1, le=MAX_THREADS)
    """Of each rank, within an operation. Never the number of cores: the same recipe gives the same bits everywhere."""

    @model_validator(mode="after")
    def one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("give exactly one of `epochs` and `steps`")
        return self


class AugmentConfig(Section):
    """`[augment]`: chances for a tile to look different, the same on every rank for the same seed."""

    flips: bool = True
    """The eight turns and mirrorings of a square: tissue has no up."""
    brightness: float = Field(0.0, ge=0, lt=1)
    contrast: float = Field(0.0, ge=0, lt=1)
    stain: float = Field(0.0, ge=0, lt=1)
    """Haematoxylin, eosin and DAB, told apart in optical density, each times 1 ± this and plus or minus this: 0.05 is
    light, 0.2 is strong (Tellez et al., Medical Image Analysis 58, 2019)."""


class Recipe(Section):
    """A whole recipe."""

    data: DataConfig
    model: ModelConfig
    parallel: ParallelConfig = ParallelConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def classes_fit_the_model(self) -> Self:
        if self.data.classes and len(self.data.classes) != self.model.num_classes:
            raise ValueError(
                f"[data] names {len(self.data.classes)} classes ({', '.join(self.data.classes)}), "
                f"[model] num_classes = {self.model.num_classes}"
            )
        return self


def find_recipe(name: Path) -> Path:
    """The recipe file a person means: the path itself, or one of the shipped ones by its bare name.

    Raises:
        BadRecipeError: neither exists.
    """
    if name.is_file():
        return name
    if name.name == str(name) and (RECIPES_DIR / name).is_file():
        return RECIPES_DIR / name
    names = ", ".join(sorted(path.name for path in RECIPES_DIR.glob("*.toml")))
    raise BadRecipeError(f"{name}: no such recipe. Looked in {name.absolute().parent} and among the shipped: {names}.")


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        BadRecipeError: cannot be read, not TOML, an unknown key, or values that do not fit.
    """
    return load_section(Recipe, path)
