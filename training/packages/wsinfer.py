"""`config.json` of a model for WSInfer (wsinfer-zoo, model-config.schema.json, spec 1.0), as written by others.

Its patches are `patch_size_pixels` at `spacing_um_px`, then resized. A tile that covers the same tissue and has the
resized side is the same image, so that is what gemslide reads: side 224 at 0.39 µm/px for a patch of 350 at 0.25
that is resized to 224.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from training.foundation.errors import UnreadableError
from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file
from training.foundation.words.counts import counted
from training.packages.config import MAX_TILE_PX, ClassName, Part, Statistics, explained
from training.recipe.config import MAX_CLASSES

Size = Annotated[int, Field(ge=1, le=MAX_TILE_PX)]
ORDER = ("Resize", "ToTensor", "Normalize")


class _Step(Part):
    name: Literal["Resize", "ToTensor", "Normalize"]
    arguments: dict[str, Any] | None = None


class _Resize(Part):
    size: Size | Annotated[list[Size], Field(min_length=1, max_length=2)]


class _WsinferConfig(Part):
    spec_version: Literal["1.0"] = "1.0"
    """This and `architecture` may be missing in a file for WSInfer's `--config`."""
    architecture: Annotated[str, Field(max_length=200)] = ""
    num_classes: int = Field(ge=1, le=MAX_CLASSES)
    patch_size_pixels: Size
    spacing_um_px: float = Field(gt=0, le=50)
    class_names: list[ClassName] = Field(min_length=1, max_length=MAX_CLASSES)
    transform: list[_Step] = Field(max_length=8)
    gemslide: dict[str, Any] | None = None


@dataclass(frozen=True)
class Described:
    """Content of a config, in gemslide's terms."""

    architecture: str
    class_names: tuple[str, ...]
    tile_px: int
    mpp: float
    mean: list[float]
    std: list[float]
    gemslide: dict[str, Any]
    """Our own part, if gemslide wrote the file; not checked yet."""


def read_wsinfer_config(path: Path) -> Described:
    """Read and check a config.

    Raises:
        UnreadableError: missing, not WSInfer's, or with steps that gemslide does not support.
    """
    try:
        config = _WsinferConfig.model_validate(read_json_file(path, max_bytes=MAX_CONFIG_BYTES))
    except ValidationError as error:
        raise UnreadableError(f"{path}: not the config of a WSInfer model: {explained(error)}.") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"{path}: cannot be read ({error}). A model needs WSInfer's config.json (docs/how_to/models.md) beside "
            "it; or name one with `--config`."
        ) from error
    if config.num_classes < 2:
        raise UnreadableError(
            f"{path}: num_classes = {config.num_classes}. gemslide runs models that return a number for each of two "
            "or more classes."
        )
    if len(config.class_names) != config.num_classes:
        names = counted(len(config.class_names), "class name")
        raise UnreadableError(f"{path}: {names}, but num_classes = {config.num_classes}.")
    side_px, statistics = _transform(config, path)
    return Described(
        architecture=config.architecture,
        class_names=tuple(config.class_names),
        tile_px=side_px,
        mpp=round(config.spacing_um_px * config.patch_size_pixels / side_px, 9),
        mean=statistics.mean,
        std=statistics.std,
        gemslide=config.gemslide or {},
    )


def _transform(config: _WsinferConfig, path: Path) -> tuple[int, Statistics]:
    """Side of the network's input image, and the mean and deviation by which it is normalised."""
    names = [step.name for step in config.transform]
    if names != [name for name in ORDER if name in names] or "ToTensor" not in names:
        raise UnreadableError(
            f"{path}: transform has the steps {', '.join(names) or 'none'}; gemslide supports Resize, ToTensor "
            "and Normalize, each at most once, in this order. A model that needs others would give different results "
            "without them, so it is refused."
        )
    side_px = config.patch_size_pixels
    statistics = Statistics(mean=[0.0, 0.0, 0.0], std=[1.0, 1.0, 1.0])
    for step in config.transform:
        try:
            if step.name == "Resize":
                side_px = _side(_Resize.model_validate(step.arguments or {}), path)
            elif step.name == "Normalize":
                statistics = Statistics.model_validate(step.arguments or {})
        except ValidationError as error:
            raise UnreadableError(f"{path}: transform, step {step.name}: {explained(error)}.") from error
    return side_px, statistics


def _side(resize: _Resize, path: Path) -> int:
    sides = resize.size if isinstance(resize.size, list) else [resize.size]
    if len(set(sides)) != 1:
        raise UnreadableError(f"{path}: transform resizes to {sides}; tiles are square.")
    return sides[0]
