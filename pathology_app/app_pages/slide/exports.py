"""Exports that a slide's page offers (frontend/src/types.ts, Exports)."""

from __future__ import annotations

import os
import shlex
from typing import Any

from pathology_app.people.person import Action, Person
from pipeline.project import Project

_FILES = (
    ("predictions.csv", "Probabilities by tile (CSV)", False),
    ("predictions.geojson", "Tiles for QuPath (GeoJSON)", False),
    ("contours.geojson", "Outlines for QuPath (GeoJSON)", True),
    ("hotspots.json", "Hotspots (JSON)", True),
)
"""Name, label, and whether the file exists only if inference wrote it."""


def exports_of(
    project: Project, slide_id: str, model_id: str | None, person: Person, *, is_here: bool
) -> dict[str, Any]:
    """Files of the model shown, and the command for napari.

    Args:
        is_here: whether the browser runs on this computer; others do not learn where the project is.
    """
    may_export = person.may(Action.EXPORT)
    folder = shlex.quote(str(project.root)) if is_here else "PROJECT"
    return {
        "may_export": may_export,
        "files": _files(project, slide_id, model_id) if model_id and may_export else [],
        "command": f"gemslide view {slide_id} --project {folder}",
    }


def _files(project: Project, slide_id: str, model_id: str) -> list[dict[str, str]]:
    folder = project.result_dir(slide_id, model_id)
    return [
        {"label": label, "url": f"/exports/{slide_id}/{model_id}/{name}"}
        for name, label, is_optional in _FILES
        if not is_optional or os.path.lexists(folder / name)
    ]
