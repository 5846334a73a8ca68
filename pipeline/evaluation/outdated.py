"""Whether what is evaluated belongs together: tiles and predictions of the tissue masks that slides have now."""

from __future__ import annotations

from pipeline.project import Project
from pipeline.store.layers.tissue_origin import outdated_models
from pipeline.tiles.outdated import MOST_NAMED, outdated_warning
from pipeline.tiles.table import TileTable
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted


def outdated_notes(project: Project, table: TileTable, model_id: str) -> list[str]:
    """Sentences about what was made before a tissue mask was replaced; none where all is as it should be."""
    tiles = outdated_warning(table, project)
    found = [f"The tile set: {tiles}."] if tiles else []
    slides = [slide_id for slide_id in table.metadata["sources"] if _is_outdated(project, slide_id, model_id)]
    if slides:
        named = ", ".join(slides[:MOST_NAMED]) + (" …" if len(slides) > MOST_NAMED else "")
        found.append(
            f"Predictions of {counted(len(slides), 'slide')} are outdated: their tissue mask was replaced since "
            f"({named}). Run `gemslide infer` again."
        )
    return found


def _is_outdated(project: Project, slide_id: str, model_id: str) -> bool:
    try:
        return model_id in outdated_models(project.store_path(slide_id))
    except GemslideError:  # its readers say what is wrong
        return False
