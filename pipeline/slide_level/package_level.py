"""Whether a model package predicts tiles, or slides and patients; without loading torch."""

from __future__ import annotations

from pathlib import Path

from training.foundation.model_files import MAX_CONFIG_BYTES
from training.foundation.reading import read_json_file


def is_slide_model(package: Path) -> bool:
    """Whether a package says that it is a slide-level model; False for a damaged one, which opening it reports."""
    try:
        config = read_json_file(package / "config.json", max_bytes=64 * MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return False
    ours = config.get("gemslide") if isinstance(config, dict) else None
    return isinstance(ours, dict) and ours.get("level") in ("slide", "patient")
