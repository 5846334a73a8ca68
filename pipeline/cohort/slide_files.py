"""Slides in a folder, as rows of a manifest: files by their suffixes, OME-Zarr folders, and series of DICOM files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.slides.dicom.suffixes import DICOM_SUFFIXES
from pipeline.slides.suffixes import slides_below
from pipeline.store.reading.reader import is_store
from training.foundation.errors import GemslideError


@dataclass(frozen=True)
class SlideFile:
    """A file or folder, and the series in it if it holds several slides."""

    path: Path
    series: str | None = None


def find_slide_files(folder: Path) -> list[SlideFile]:
    """Slides below a folder, sorted, without gemslide's own stores.

    The files of one DICOM series are one slide: its levels, label and overview.

    Raises:
        OSError: a folder cannot be read.
    """
    paths = [path for path in slides_below(folder) if not is_store(path)]
    instances: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        if path.suffix.lower() in DICOM_SUFFIXES:
            instances[path.parent].append(path)
    slides = [SlideFile(path) for path in paths if path.parent not in instances]
    slides += [SlideFile(path) for path in paths if path.parent in instances and path not in instances[path.parent]]
    for parent, files in instances.items():
        slides += _dicom_slides(parent, files)
    return sorted(slides, key=lambda slide: (slide.path, slide.series or ""))


def _dicom_slides(parent: Path, files: list[Path]) -> Iterator[SlideFile]:
    """The folder for a series of several files; the file itself if it is alone in its series or unreadable."""
    from pipeline.slides.dicom.series import slide_series  # its libraries are slow to import

    series: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        series[_series_of(path)].append(path)
    for uid, own in series.items():
        if not uid or len(own) == 1:
            yield from map(SlideFile, own)
        else:
            yield SlideFile(parent, uid if len(slide_series(parent)) > 1 else None)


def _series_of(path: Path) -> str:
    from pipeline.slides.dicom.headers.header import read_brief

    try:
        return read_brief(path).series_uid
    except GemslideError:  # checking the manifest reports the fault
        return ""
