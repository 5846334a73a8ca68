"""Files of a slide-level model's prediction, in each slide's folder of results; read without loading torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.project import Project
from training.foundation.reading import read_json_file

RECORD, ATTENDED = "slide_prediction.json", "attention.geojson"
MAX_RECORD_BYTES = 16 * 2**20


def read_record(result_dir: Path) -> dict[str, Any] | None:
    """The record of a unit's prediction; None if there is none, or a damaged one."""
    try:
        record = read_json_file(result_dir / RECORD, max_bytes=MAX_RECORD_BYTES)
    except (OSError, ValueError):
        return None
    wanted = {"unit", "slides", "targets", "tiles", "made_from", "model_id"}
    if not isinstance(record, dict) or not wanted <= record.keys():
        return None
    return record if isinstance(record["slides"], list) and isinstance(record["targets"], dict) else None


def find_records(project: Project, slide_id: str) -> Iterator[tuple[str, str]]:
    """Records of predictions that rest on a slide: the model's id, and the slide whose folder of results has it."""
    for path in sorted(project.results_dir.glob(f"*/*/{RECORD}")):
        record = None if path.parent.parent.is_symlink() else read_record(path.parent)
        if record is not None and slide_id in record["slides"]:
            yield path.parent.parent.name, path.parent.name
