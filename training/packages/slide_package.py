"""Packages of slide-level models: weights, what features they take, and what they predict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from safetensors.torch import save
from torch import Tensor, nn

from training.foundation.errors import UnreadableError
from training.foundation.model_files import MAX_CONFIG_BYTES, WEIGHTS_FILES
from training.foundation.publish import SHORT_WRITE_S, new_folder, write_bytes_atomic
from training.foundation.reading import read_json_file
from training.models.heads.targets import Target
from training.packages.config import ClassName, Part, Sha256, Text, explained
from training.packages.metrics import Metrics
from training.packages.network import put_weights, read_weights
from training.packages.slide_card import SlideCard, slide_card
from training.recipe.slides import SlideModelConfig, blocks_of_slides

MAX_DIMS = 65_536
UnitDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class PackagedTarget(Part):
    """Something that the model predicts."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    columns: list[Text] = Field(min_length=1, max_length=2)
    """Of the table that it was trained with."""
    kind: Literal["class", "ordinal", "number", "cox", "discrete"]
    num_outputs: int = Field(ge=1, le=1000)
    classes: list[ClassName] = Field(default=[], max_length=1000)
    bounds: list[Finite] = Field(default=[], max_length=1000)
    """Upper ends of the intervals of time."""
    mean: Finite = 0.0
    std: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    median_risk: Finite | None = None
    """Median risk of the training units, which divides others into two groups."""

    @model_validator(mode="after")
    def numbers_agree(self) -> Self:
        wanted = {"class": len(self.classes), "ordinal": len(self.classes) - 1, "discrete": len(self.bounds)}
        if self.num_outputs != wanted.get(self.kind, 1):
            raise ValueError(f"target {self.name!r}: {self.num_outputs} outputs do not fit a {self.kind}")
        return self

    def target(self) -> Target:
        """The target as losses and predictions take it."""
        return Target(self.name, self.kind, self.num_outputs, bounds=tuple(self.bounds), mean=self.mean, std=self.std)


class PackagedEncoder(Part):
    """The features that the model takes."""

    encoder_id: Annotated[str, Field(min_length=1, max_length=80)]
    weights_sha256: Annotated[str, Field(max_length=64)]
    row: dict[str, Any]
    side_um: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    min_tissue: Annotated[float, Field(ge=0, le=1)] | None = None
    overlap: Annotated[float, Field(ge=0, lt=1)] | None = None


class SlideModelPart(Part):
    """`gemslide` in `config.json`."""

    runtime: Literal["torch"]
    level: Literal["slide", "patient"]
    model: SlideModelConfig
    dims: int = Field(ge=1, le=MAX_DIMS)
    targets: list[PackagedTarget] = Field(min_length=1, max_length=100)
    encoder: PackagedEncoder
    run_id: Text
    recipe: Text
    weights_sha256: Sha256
    bags_sha256: Sha256
    parallel: dict[str, Any]
    which: Literal["best", "last"]
    epoch: int = Field(ge=0)
    threads: int = Field(ge=1)
    isa: Text | None
    units: dict[str, int]
    """Units with a target, by split."""
    test_units: list[UnitDigest]
    """Units that neither trained nor chose it, as `unit_digest` names them."""
    trained_units: list[UnitDigest]
    """Units that trained or chose it."""

    def blocks(self) -> list[nn.Module]:
        """The network, with fresh weights."""
        return blocks_of_slides(self.model, self.dims, [target.target() for target in self.targets])


@dataclass(frozen=True)
class SlidePackageContent:
    """Everything in a package besides its weights."""

    config: Mapping[str, Any]
    """As `SlideModelPart`, without the hash of the weights."""
    recipe_name: str
    metrics: Mapping[str, float]
    card: SlideCard
    plan: dict[str, Any]


def write_slide_packages(
    models_dir: Path, packages: Sequence[tuple[Mapping[str, Tensor], SlidePackageContent]]
) -> list[str]:
    """Write `models/<recipe>-<8 hex>/` for each; all appear together, complete, or none does.

    Returns:
        the model ids, in the order given; the same weights have the same id.

    Raises:
        DiskFullError: no space, or not writable. LockedError: another run keeps writing the same id.
    """
    ids: list[str] = []
    with ExitStack() as published:
        for state, content in packages:
            weights = save({name: tensor.contiguous() for name, tensor in sorted(state.items())})
            sha256 = hashlib.sha256(weights).hexdigest()
            model_id = f"{content.recipe_name}-{sha256[:8]}"
            ids.append(model_id)
            if model_id in ids[:-1]:
                continue
            config = {"gemslide": {**content.config, "weights_sha256": sha256}}
            folder = published.enter_context(new_folder(models_dir / model_id, wait_s=SHORT_WRITE_S))
            write_bytes_atomic(folder / WEIGHTS_FILES["torch"], weights)
            write_bytes_atomic(folder / "config.json", json.dumps(config, indent=1).encode())
            write_bytes_atomic(folder / "metrics.json", Metrics(content.metrics, None).as_json())
            write_bytes_atomic(folder / "card.md", slide_card(replace(content.card, model_id=model_id)).encode())
    return ids


def read_slide_config(package: Path) -> SlideModelPart:
    """Read and check a package's `config.json`.

    Raises:
        UnreadableError: missing, not JSON, or not of a slide-level model.
    """
    path = package / "config.json"
    try:
        raw = read_json_file(path, max_bytes=64 * MAX_CONFIG_BYTES)
        if not isinstance(raw, dict) or "gemslide" not in raw:
            raise ValueError("it has no part `gemslide`")
        return SlideModelPart.model_validate(raw["gemslide"], strict=False)
    except ValidationError as error:
        raise UnreadableError(
            f"{path}: not a slide-level model of gemslide: {explained(error)}. Name a folder below models/, made by "
            "`gemslide train`, or copy the package again."
        ) from error
    except (OSError, ValueError) as error:
        raise UnreadableError(
            f"{path}: not a slide-level model of gemslide ({error}). Copy the package again."
        ) from error


def load_slide_network(package: Path, config: SlideModelPart) -> tuple[list[nn.Module], str]:
    """The network's blocks with the package's weights, and their SHA-256.

    Raises:
        UnreadableError: files are missing, damaged, or not the weights that the id names.
    """
    path = package / WEIGHTS_FILES["torch"]
    weights = read_weights(path, config.weights_sha256)
    try:
        with torch.device("meta"):
            needed = sum(tensor.nbytes for tensor in nn.Sequential(*config.blocks()).state_dict().values())
    except ValueError as error:
        raise UnreadableError(f"{package}/config.json: describes no known network ({error}).") from error
    if needed > len(weights):
        raise UnreadableError(
            f"{path}: its network has {needed} bytes of weights, the file {len(weights)}. Copy the package again."
        )
    network = nn.Sequential(*config.blocks())
    put_weights(network, weights, str(path))
    return list(network.eval()), config.weights_sha256
