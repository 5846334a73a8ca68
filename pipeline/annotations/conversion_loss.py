"""What the XML formats cannot hold, explained: both use the same sentences."""

from __future__ import annotations

from pipeline.annotations.objects import AnnotationFile


def lost_values(file: AnnotationFile, program: str, *, keeps_metadata: bool) -> list[str]:
    """One sentence for each kind of value that some object has and the program's files do not hold."""
    objects = file.objects
    counts = {
        "are no annotations but cells, detections or tiles, and became annotations": sum(
            obj.object_type != "annotation" for obj in objects
        ),
        "lose their nucleus": sum(obj.nucleus is not None for obj in objects),
        "lose their measurements": sum(bool(obj.measurements) for obj in objects),
        "lose their metadata": 0 if keeps_metadata else sum(bool(obj.metadata) for obj in objects),
        "are no longer locked": sum(obj.is_locked for obj in objects),
        "lose their id": sum(obj.object_id is not None for obj in objects),
        "lose their plane": sum(obj.plane is not None for obj in objects),
    }
    return [f"{count} objects {what}; {program} has no place for it" for what, count in counts.items() if count]
