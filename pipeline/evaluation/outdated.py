"""Notes on outdated data: tiles and predictions made before a slide's tissue mask was replaced."""

from __future__ import annotations

from pipeline.project import Project
from pipeline.store.layers.tissue_origin import outdated_models
from pipeline.tiles.outdated import MOST_NAMED, outdated_warning
from pipeline.tiles.table import TileTable
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted


def outdated_notes(project: Project, table: TileTable, model_id: str) -> list[str]:
    """Sentences about data made before a tissue mask was replaced; none if all are current."""
    tiles = outdated_warning(table, project)
    notes = [f"The tile set: {tiles}."] if tiles else []
    slides = [slide_id for slide_id in table.metadata["sources"] if _is_outdated(project, slide_id, model_id)]
    if slides:
        named = ", ".join(slides[:MOST_NAMED]) + (" …" if len(slides) > MOST_NAMED else "")
        notes.append(
            f"Predictions of {counted(len(slides), 'slide')} are outdated: the tissue mask has since been replaced "
            f"({named}). Run `gemslide infer` again."
        )
    return notes


def _is_outdated(project: Project, slide_id: str, model_id: str) -> bool:
    try:
        return model_id in outdated_models(project.stored_at(slide_id))
    except GemslideError:  # its readers report the fault
        return False
