"""Files of a slide-level model's prediction, in each slide's folder of results; read without loading torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    return record if isinstance(record, dict) and wanted <= record.keys() else None
