"""`config.json` of a model package: WSInfer 1.0's keys and ours, checked before a network is built."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from training.data.facts import DataFacts, SplitFacts
from training.foundation.errors import UnreadableError
from training.foundation.model_files import MAX_CONFIG_BYTES, Runtime
from training.foundation.reading import read_json_file
from training.foundation.tile_read import UNSTATED, TileRead
from training.foundation.words.counts import counted
from training.foundation.words.findings import message_of
from training.foundation.words.names import comparable
from training.models.build import Outputs, outputs_of
from training.recipe.config import MAX_CLASSES, MAX_THREADS, ModelConfig

MAX_TILE_PX = 16_384

ClassName = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(comparable)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(gt=0, le=1)]
Text = Annotated[str, Field(max_length=200)]


class Part(BaseModel):
    """Base of all parts; unknown keys are left to those who wrote them."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, strict=True)


class Statistics(Part):
    """Mean and standard deviation of red, green and blue, as fractions of full intensity."""

    mean: list[Share] = Field(min_length=3, max_length=3)
    std: list[Spread] = Field(min_length=3, max_length=3)


class StainTarget(Part):
    """Stain normalisation of tiles before the network sees them, with the target's numbers."""

    method: Literal["macenko", "reinhard"]
    target: dict[str, list[float] | list[list[float]]] = Field(max_length=8)


Component = Annotated[float, Field(ge=-2, le=2)]


class Hues(Part):
    """Hues of the training tiles: `training.data.colour_statistics.HueStatistics`."""

    median: tuple[Component, Component]
    spread: tuple[Component, Component]
    tiles: int = Field(ge=1)

    @field_validator("median", "spread", mode="before")
    @classmethod
    def pairs_are_lists_in_json(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class Focus(Part):
    """Sharpness of the training tiles: `training.data.focus_statistics.FocusStatistics`."""

    median: float = Field(ge=-100, le=100)
    spread: float = Field(ge=0, le=100)
    tiles: int = Field(ge=1)


Count = Annotated[int, Field(ge=0)]


class SplitCounts(Part):
    """`training.data.facts.SplitFacts`."""

    tiles: Count
    by_class: dict[Text, Count] = Field(max_length=MAX_CLASSES)
    slides: Count | None
    patients: Count | None


class Data(Part):
    """Training data: `training.data.facts.DataFacts`."""

    tile_set: Text
    by_split: dict[Literal["train", "val", "test"], SplitCounts]
    scanners: dict[Annotated[str, Field(max_length=1000)], Count] = Field(max_length=10_000)

    def facts(self) -> DataFacts:
        """The data as the card needs them."""
        by_split: dict[str, SplitFacts] = {
            name: SplitFacts(**split.model_dump()) for name, split in self.by_split.items()
        }
        return DataFacts(self.tile_set, by_split, self.scanners)


class EntryPoint(Part):
    """Installed code that builds the network: what was registered as `name` when the package was made."""

    name: Text
    value: Text
    """`module:function`; a different one is a different network."""
    distribution: Text | None = None
    version: Text | None = None


class Trust(Part):
    """A file that runs code when it is loaded, identified by its hash; the user who imported it vouched for it."""

    sha256: Sha256
    utc: Text


class GemslidePart(Part):
    """Settings for which WSInfer has no key."""

    runtime: Runtime = "torch"
    """Runtime of the network."""
    outputs: Outputs | None = None
    """Kind of output of the network; None for that of its `model`."""
    model: ModelConfig | None = None
    """The network that gemslide builds; None if the network comes from elsewhere."""
    entry_point: EntryPoint | None = None
    trust: Trust | None = None
    files: dict[Text, Sha256] = Field(default_factory=dict, max_length=8)
    """SHA-256 of further files that hold the same network."""
    statistics: Statistics
    stain: StainTarget | None = None
    read: TileRead | None = UNSTATED
    """Slide level that the training tiles were read from; None if unknown."""
    split_sha256: str = Field(max_length=64)
    weights_sha256: Sha256
    """SHA-256 of the file with the weights."""
    threads: int | None = Field(None, ge=1, le=MAX_THREADS)
    """Threads of each rank that trained it; None if unknown."""
    isa: str | None = Field(None, max_length=64)
    """CPU instructions that it was trained with; None if unknown."""
    hues: Hues | None = None
    """None if unknown."""
    focus: Focus | None = None
    """None if unknown."""
    data: Data | None = None
    """None in packages of version 0.1."""

    @field_validator("model", mode="before")
    @classmethod
    def not_strict_inside(cls, value: object) -> object:
        """Accept 11.0 for 11 in a package's copy of the recipe, as recipes do."""
        return None if value is None else ModelConfig.model_validate(value)

    @model_validator(mode="after")
    def says_what_runs_it(self) -> Self:
        if self.runtime == "torch" and self.model is None:
            raise ValueError("`model` is missing: there is no network to build")
        if self.runtime == "entry-point" and self.entry_point is None:
            raise ValueError("`entry_point` is missing: there is no code to build the network")
        if self.runtime != "torch" and self.outputs is None:
            raise ValueError(
                f'`outputs` is missing: the network of runtime "{self.runtime}" returns logits or probabilities'
            )
        return self

    @property
    def gives(self) -> Outputs:
        """Kind of output of the network."""
        if self.outputs is None:
            assert self.model is not None
            return outputs_of(self.model.variant)
        return self.outputs


class PackageConfig(Part):
    """The whole file."""

    spec_version: Literal["1.0"]
    num_classes: int = Field(ge=2, le=MAX_CLASSES)
    patch_size_pixels: int = Field(ge=8, le=MAX_TILE_PX)
    spacing_um_px: float = Field(ge=0.05, le=50)
    class_names: list[ClassName] = Field(min_length=2, max_length=MAX_CLASSES)
    gemslide: GemslidePart

    @field_validator("class_names")
    @classmethod
    def names_can_be_read(cls, names: list[str]) -> list[str]:
        if len(set(names)) != len(names):
            raise ValueError("a class name appears twice")
        for name in names:
            if not name.strip() or any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
                raise ValueError(f"{name!r} is not a class name")
        return names

    @model_validator(mode="after")
    def numbers_agree(self) -> Self:
        model = self.gemslide.model
        network_classes = model.num_classes if model else self.num_classes
        if not len(self.class_names) == self.num_classes == network_classes:
            raise ValueError(
                f"{counted(len(self.class_names), 'class name')}, num_classes = {self.num_classes}, and a network for "
                f"{network_classes}"
            )
        return self


def _refuse_slide_level(raw: Any, path: Path) -> None:
    ours = raw.get("gemslide") if isinstance(raw, dict) else None
    if isinstance(ours, dict) and ours.get("level") in ("slide", "patient"):
        raise UnreadableError(
            f"{path}: is a model of whole {ours['level']}s, which takes features and not tiles. Use it with `gemslide "
            "infer` and `gemslide evaluate`."
        )


def read_package_config(package: Path) -> PackageConfig:
    """Read and check a package's `config.json`.

    Raises:
        UnreadableError: missing, not JSON, or values that no package of gemslide has.
    """
    path = package / "config.json"
    try:
        raw: Any = read_json_file(path, max_bytes=MAX_CONFIG_BYTES)
        _refuse_slide_level(raw, path)
        return PackageConfig.model_validate(raw)
    except ValidationError as error:
        raise UnreadableError(
            f"{path}: not a model package of gemslide: {explained(error)}. Name a folder below models/, made by "
            "`gemslide train`, or copy the package again."
        ) from error
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"{path}: not a model package of gemslide ({error}). Name a folder below models/, made by `gemslide train`."
        ) from error


def explained(error: ValidationError) -> str:
    """Explain the first problems of a file to people."""
    return "; ".join(_explained(dict(detail)) for detail in error.errors()[:5])


def _explained(detail: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in detail["loc"]) or "the file"
    if detail["type"] == "missing":
        return f"`{where}` is missing"
    if detail["type"] == "value_error":
        return f"`{where}`: {message_of(detail):.200}"
    return f"`{where}` = {detail['input']!r:.60}: {message_of(detail)}"
