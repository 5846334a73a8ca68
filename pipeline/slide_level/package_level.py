"""What a model package says of itself: whether it predicts tiles, slides or patients; without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file

Level = Literal["tile", "slide", "patient"]


def slide_level_part(package: Path) -> dict[str, Any]:
    """`gemslide` of a slide-level model's `config.json`; empty for a model of tiles, and for a damaged package, which
    opening it reports."""
    try:
        config = read_json_file(package / "config.json", max_bytes=64 * MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return {}
    ours = config.get("gemslide") if isinstance(config, dict) else None
    return ours if isinstance(ours, dict) and ours.get("level") in ("slide", "patient") else {}


def level_of(package: Path) -> Level:
    """What a model predicts."""
    level: Level = slide_level_part(package).get("level", "tile")
    return level


def is_slide_model(package: Path) -> bool:
    """Whether a package says that it is a slide-level model."""
    return level_of(package) != "tile"
