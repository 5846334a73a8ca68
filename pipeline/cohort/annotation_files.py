"""Annotation files beside slides, found by their names in any capitals and Unicode form."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pipeline.errors import BadManifestError
from pipeline.slides.suffixes import slide_id_from
from training.foundation.words.names import comparable

ANNOTATION_SUFFIXES = (".geojson", ".json", ".xml", ".annotations", ".ndpa")
"""Suffixes looked for beside each slide, in this order, in place of its suffix or after it."""


class AnnotationFiles:
    """Annotation files below a folder; each folder is listed once."""

    def __init__(self) -> None:
        self._listed: dict[Path, dict[str, list[Path]]] = {}

    def beside(self, slide: Path) -> Path | None:
        """The annotation file of a slide; None if it has none.

        Raises:
            BadManifestError: the names of two files differ only in capitals or Unicode form.
        """
        files = self._files_in(slide.parent)
        stems = (slide_id_from(slide), slide.stem, slide.name)
        names = (_folded(f"{stem}{suffix}") for suffix in ANNOTATION_SUFFIXES for stem in stems)
        found = next((files[name] for name in names if name in files), [])
        if len(found) > 1:
            raise BadManifestError(
                f"{slide}: has several annotation files, whose names differ only in capitals or Unicode form: "
                f"{', '.join(f'{path.name!a}' for path in found)}. Keep one, or rename the others."
            )
        return found[0] if found else None

    def _files_in(self, folder: Path) -> dict[str, list[Path]]:
        if folder not in self._listed:
            files = self._listed[folder] = defaultdict(list)
            for path in sorted(folder.iterdir()):
                name = _folded(path.name)
                if name.endswith(ANNOTATION_SUFFIXES) and path.is_file():
                    files[name].append(path)
        return self._listed[folder]


def _folded(name: str) -> str:
    return comparable(comparable(name).casefold())
