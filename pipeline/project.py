"""The project folder of a user: where each stage writes and where the next one reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import BadManifestError

SLIDE_ID_PATTERN = r"[A-Za-z0-9._-]{1,64}"
STORE_SUFFIX = ".ome.zarr"


def check_slide_id(slide_id: str, *, where: str) -> str:
    """Return `slide_id` if it can name a folder; else say what is allowed."""
    if re.fullmatch(SLIDE_ID_PATTERN, slide_id) and not slide_id.startswith("."):
        return slide_id
    raise BadManifestError(
        f"slide_id {slide_id!r} ({where}): allowed are 1 to 64 letters, digits, dots, underscores and hyphens, "
        "not starting with a dot. Give the slide a `slide_id` in the cohort manifest."
    )


def slide_id_of(store: Path) -> str:
    """The slide that a store's folder is named after."""
    return store.name.removesuffix(STORE_SUFFIX)


@dataclass(frozen=True)
class Project:
    """Paths inside one project folder. Nothing is created until something is written."""

    root: Path

    @property
    def slides_dir(self) -> Path:
        return self.root / "slides"

    @property
    def tiles_dir(self) -> Path:
        return self.root / "tiles"

    @property
    def models_dir(self) -> Path:
        return self.root / "models"

    @property
    def results_dir(self) -> Path:
        return self.root / "results"

    @property
    def runs_dir(self) -> Path:
        return self.root / "runs"

    @property
    def settings_path(self) -> Path:
        return self.root / "gemslide.toml"

    def store_path(self, slide_id: str) -> Path:
        return self.slides_dir / f"{slide_id}{STORE_SUFFIX}"

    def tile_table_path(self, tile_set: str) -> Path:
        return self.tiles_dir / f"{tile_set}.parquet"

    def result_dir(self, slide_id: str, model_id: str) -> Path:
        """Folder of one model's files (CSV, GeoJSON, hotspots, PNG) for one slide."""
        return self.results_dir / model_id / slide_id

    def slide_ids(self) -> list[str]:
        """Slides whose store is complete, in name order. Partial stores start with a dot."""
        if not self.slides_dir.is_dir():
            return []
        names = (path.name for path in self.slides_dir.iterdir() if path.is_dir())
        return sorted(
            name.removesuffix(STORE_SUFFIX) for name in names if name.endswith(STORE_SUFFIX) and name[0] != "."
        )
