"""Sentences, shared by the formats, that say what is lost in conversion."""

from __future__ import annotations

from pipeline.annotations.shapes.objects import AnnotationFile
from training.foundation.words.counts import counted


def lost_mpp(file: AnnotationFile, program: str) -> list[str]:
    """One sentence if the file states a pixel size, for a program whose files cannot."""
    if file.mpp is None:
        return []
    return [
        f"the file's pixel size ({file.mpp:g} µm/px) is left out; {program} has no place for it, so whether the new "
        "file is used on a slide of another pixel size can no longer be checked: check this one on its slide first"
    ]


def lost_values(file: AnnotationFile, program: str, *, keeps_metadata: bool) -> list[str]:
    """One sentence for each kind of value that some object has and the program's files cannot hold."""
    objects = file.objects
    counts = {
        (
            "object was a cell, detection or tile and became an annotation",
            "objects were cells, detections or tiles and became annotations",
        ): sum(obj.object_type != "annotation" for obj in objects),
        ("object loses its nucleus", "objects lose their nucleus"): sum(obj.nucleus is not None for obj in objects),
        ("object loses its measurements", "objects lose their measurements"): sum(
            bool(obj.measurements) for obj in objects
        ),
        ("object loses its metadata", "objects lose their metadata"): sum(
            bool(obj.metadata) and not keeps_metadata for obj in objects
        ),
        ("object is no longer locked", "objects are no longer locked"): sum(obj.is_locked for obj in objects),
        ("object loses its id", "objects lose their id"): sum(obj.object_id is not None for obj in objects),
        ("object loses its plane", "objects lose their plane"): sum(obj.plane is not None for obj in objects),
    }
    return [f"{counted(count, *what)}; {program} has no place for it" for what, count in counts.items() if count]
