"""Fast reads of a slide store: a slide's levels, squares at a wanted size, and what the root says."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from pipeline.errors import UnreadableError
from pipeline.store.array_reader import ArrayReader, Pixels
from pipeline.store.layout import CONTRACT_VERSION, IMAGE
from pipeline.store.metadata import read_json


@dataclass(frozen=True)
class LevelArray:
    """One level of the image, finest is 0."""

    level: int
    array: ArrayReader
    downsample: float

    @property
    def width_px(self) -> int:
        return self.array.spec.width_px

    @property
    def height_px(self) -> int:
        return self.array.spec.height_px

    @property
    def chunk_px(self) -> int:
        return self.array.spec.chunk_px

    @property
    def rows(self) -> int:
        return self.array.spec.rows

    @property
    def columns(self) -> int:
        return self.array.spec.columns

    @property
    def codec(self) -> str:
        return self.array.spec.codec


class StoreReader:
    """Reads one slide store. Cheap to open, safe in threads; a pickled copy opens the store anew.

    Raises:
        UnreadableError: no store there, or its metadata do not hold together.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.attributes = _read_attributes(self.path)
        try:
            self.slide_id = str(self.attributes["slide_id"])
            self.mpp0 = float(self.attributes["mpp0"])
            icc = self.attributes.get("icc")
            self.icc: bytes | None = base64.b64decode(icc) if icc else None
            entries = [(str(entry["path"]), float(entry["downsample"])) for entry in self.attributes["levels"]]
            self.source_sha256 = str(self.attributes["source"]["sha256"])
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableError(
                f"{self.path}: its attributes are damaged ({type(error).__name__}: {error}). "
                "Delete the store and ingest the slide again."
            ) from error
        self.levels = tuple(
            LevelArray(i, ArrayReader.open(self.path / IMAGE / path), downsample)
            for i, (path, downsample) in enumerate(entries)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (StoreReader, (self.path,))

    @property
    def size_wh_px0(self) -> tuple[int, int]:
        return self.levels[0].width_px, self.levels[0].height_px

    def chunk(self, level: int, row: int, column: int) -> bytes | None:
        """A chunk's bytes as stored; see `ArrayReader.chunk`."""
        return self.levels[level].array.chunk(row, column)

    def read_region(self, level: int, x_px: int, y_px: int, width_px: int, height_px: int) -> Pixels:
        """Pixels of a level in its own frame, uint8 (height_px, width_px, 3); white outside the slide."""
        return self.levels[level].array.read_region(x_px, y_px, width_px, height_px)

    def read_square(self, level: int, x_px0: int, y_px0: int, side_px0: int, out_px: int) -> Pixels:
        """A square of the slide at a wanted size, read from `level` and area-averaged.

        Args:
            x_px0, y_px0, side_px0: the square in level-0 pixels.
            out_px: side of the result; where level pixels and result agree, pixels are the stored ones.
        """
        downsample = self.levels[level].downsample
        x_px, y_px = round(x_px0 / downsample), round(y_px0 / downsample)
        side_px = max(1, round(side_px0 / downsample))
        region = self.read_region(level, x_px, y_px, side_px, side_px)
        if side_px == out_px:
            return region
        kind = cv2.INTER_AREA if side_px > out_px else cv2.INTER_LINEAR
        return np.asarray(cv2.resize(region, (out_px, out_px), interpolation=kind), np.uint8)

    def level_for_downsample(self, downsample: float) -> int:
        """The coarsest level that is not coarser than wanted (1 % of rounding allowed)."""
        fine_enough = [array.level for array in self.levels if array.downsample <= downsample * 1.01]
        return fine_enough[-1] if fine_enough else 0


def _read_attributes(path: Path) -> dict[str, Any]:
    try:
        attributes = read_json(path / "zarr.json")["attributes"]["gemslide"]
        version = attributes["contract_version"]
    except FileNotFoundError as error:
        raise UnreadableError(f"{path}: no slide store there. Make one with `gemslide ingest`.") from error
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableError(f"{path}: not a gemslide store ({type(error).__name__}: {error}).") from error
    if version != CONTRACT_VERSION:
        raise UnreadableError(
            f"{path}: contract version {version}; this gemslide reads version {CONTRACT_VERSION}. Ingest again."
        )
    assert isinstance(attributes, dict)
    return attributes
