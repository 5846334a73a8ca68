"""An encoder's row, `encoders/NAME.toml`: its keys, what they allow, and the encoder's id."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from training.foundation.errors import BadRecipeError
from training.foundation.settings import Section, load_section
from training.foundation.tile_read import TileRead
from training.foundation.words.class_names import check_printable
from training.foundation.words.names import ALLOWED, is_name

Kind = Literal["package", "timm", "hf-folder", "onnx", "entry-point"]
Pool = Literal["cls", "mean", "cls+mean", "none"]
ROWS_DIR = Path(__file__).parent / "rows"
"""Folder of the shipped rows."""
SUFFIX = ".toml"
MAX_NAME = 55
"""With nine characters of hash this gives an encoder id of at most 64."""
MAX_DIMS = 65_536

Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(gt=0, le=1)]
Text = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(check_printable)]

_WITH_WEIGHTS: tuple[Kind, ...] = ("timm", "entry-point")
"""Kinds whose `source` is code, so that `weights` names the file."""
_SOURCE_IS_FILE: tuple[Kind, ...] = ("hf-folder", "onnx")
"""Kinds whose `source` is a path, which says nothing about the features."""
_SAY_NOTHING = {"sha256", "weights", "licence", "citation"}
"""Keys that do not change features, besides the hash of the weights, which is part of every id anyway."""


class EncoderRow(Section):
    """Description of a tile encoder. Paths are absolute, or start in the folder that holds the row."""

    kind: Kind
    source: Text
    """An installed package with weights, a timm architecture, a folder as Hugging Face's, an ONNX file, or the name of
    an entry point in the group `gemslide.encoders`."""
    weights: Text | None = None
    """File with the weights, for kinds whose source is code; in a folder, model.safetensors unless stated."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """SHA-256 of the file with the weights; another file is refused."""
    tile_px: int = Field(ge=8, le=16_384)
    """Side of a tile."""
    mpp: float = Field(ge=0.05, le=50)
    """Microns per pixel of tiles."""
    mean: list[Share] = Field(min_length=3, max_length=3)
    """Of red, green and blue, as fractions of full intensity; subtracted from tiles."""
    std: list[Spread] = Field(min_length=3, max_length=3)
    """Of red, green and blue; tiles are divided by it."""
    pool: Pool
    """How outputs become one row per tile: the class token, the mean of the patch tokens (or of a feature map), both in
    this order, or as they are, for networks that return (tiles, dims)."""
    dims: int = Field(ge=1, le=MAX_DIMS)
    """Numbers per tile."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Number format that it runs in."""
    read: TileRead = "level"
    """Level of a slide's pyramid that tiles are read from."""
    untrained: bool = False
    """Random weights in place of those in the file, the same each time: for comparison."""
    licence: Text
    citation: Text

    @field_validator("sha256", mode="before")
    @classmethod
    def either_case(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value

    @model_validator(mode="after")
    def fits_its_kind(self) -> Self:
        if self.kind in _WITH_WEIGHTS and self.weights is None:
            raise ValueError(f'`weights` is missing: kind "{self.kind}" names code in `source`, and no file')
        if self.kind in ("package", "onnx") and self.weights is not None:
            raise ValueError(f'`weights` has no use: the source of kind "{self.kind}" contains the weights')
        if self.kind == "hf-folder" and self.pool == "none":
            raise ValueError('a folder\'s network returns tokens: `pool` is "cls", "mean" or "cls+mean"')
        if self.kind == "onnx" and (self.pool != "none" or self.precision != "fp32"):
            raise ValueError('an ONNX file runs as it is: `pool` is "none" and `precision` "fp32"')
        return self


@dataclass(frozen=True)
class EncoderFile:
    """A row with its name, and the folder in which its relative paths start."""

    name: str
    row: EncoderRow
    folder: Path
    path: Path
    """The row's file, for messages."""

    def resolve(self, path: str) -> Path:
        """A path in the row."""
        return self.folder / path


def read_encoder_file(path: Path, *, name: str | None = None, folder: Path | None = None) -> EncoderFile:
    """Read a row.

    Args:
        name: of the encoder; None: the file's own.
        folder: where its relative paths start; None: the file's own.

    Raises:
        BadRecipeError: it cannot be read, has an unknown key, or values that do not fit.
    """
    name = path.stem if name is None else name
    if not is_name(name) or len(name) > MAX_NAME:
        raise BadRecipeError(f"{name!r:.100}: an encoder's name is {ALLOWED}, here at most {MAX_NAME} characters.")
    return EncoderFile(name, load_section(EncoderRow, path), path.parent if folder is None else folder, path)


def encoder_id(file: EncoderFile, config_sha256: str | None = None) -> str:
    """Name and 8 digits of a SHA-256 over all that decides the features of a tile.

    That is the SHA-256 of the weights, and every key of the row except licence, citation and those that only say where
    files are: `weights`, and the `source` of a folder or an ONNX file.

    Args:
        config_sha256: SHA-256 of the folder's config.json, which also decides, for kind "hf-folder".
    """
    decisive = file.row.model_dump(mode="json", exclude=_SAY_NOTHING)
    if not file.row.untrained:
        del decisive["untrained"]
    if file.row.kind in _SOURCE_IS_FILE:
        del decisive["source"]
    if config_sha256 is not None:
        decisive["config_sha256"] = config_sha256
    canonical = json.dumps(decisive, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(f"{file.row.sha256}\n{canonical}".encode()).hexdigest()
    return f"{file.name}-{digest[:8]}"
