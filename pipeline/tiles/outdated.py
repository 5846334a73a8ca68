"""Tile sets whose tiles were chosen with tissue masks that have since been replaced."""

from __future__ import annotations

from pipeline.project import Project
from pipeline.store.layers.labels import mask_fingerprint
from pipeline.tiles.table import TileTable, read_table
from training.foundation.errors import GemslideError

MOST_NAMED = 5


def outdated_slides(table: TileTable, project: Project) -> list[str]:
    """Slides of a tile set whose tissue mask has since been replaced; unreadable ones are skipped."""
    outdated = []
    for slide_id, mask in table.metadata.get("masks", {}).items():
        try:
            is_same = mask_fingerprint(project.stored_at(slide_id)) == mask
        except GemslideError:
            continue
        if not is_same:
            outdated.append(slide_id)
    return outdated


def outdated_sets(project: Project, slide_id: str) -> list[str]:
    """Tile sets of the project with tiles of a slide that were chosen with a tissue mask since replaced."""
    outdated = []
    for path in sorted(project.tiles_dir.glob("[!.]*.parquet")):
        try:
            masks = read_table(path).metadata.get("masks", {})
            if masks.get(slide_id) not in (None, mask_fingerprint(project.stored_at(slide_id))):
                outdated.append(path.stem)
        except GemslideError:
            continue
    return outdated


def outdated_warning(table: TileTable, project: Project) -> str | None:
    """A clause saying that a tile set is outdated; None: it is not."""
    slides = outdated_slides(table, project)
    if not slides:
        return None
    named = ", ".join(slides[:MOST_NAMED]) + (" …" if len(slides) > MOST_NAMED else "")
    return (
        f"it is outdated: the tissue mask of {len(slides)} of its slides has since been replaced ({named}). Run "
        "`gemslide tile` again"
    )
