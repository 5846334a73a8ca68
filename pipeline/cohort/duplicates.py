"""Duplicate slides of a cohort, compared by content whatever their names, and files that have changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.files import sha256_of_files
from pipeline.project import Project
from pipeline.slides.common.reading import is_dicom
from pipeline.slides.registry import OME_ZARR, open_slide
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted

MAX_SHOWN = 5
"""Findings in a message."""


def find_changes(cohort: Cohort, project: Project | None = None) -> dict[str, GemslideError]:
    """Errors by slide id: a file that does not match the manifest's `sha256`, or equals an earlier slide of the cohort.

    Compared are the files that a slide's reader opens, so that a slide is found again under another path or with other
    files beside it; all files of one DICOM series are one slide. Only files of equal size are read, and those whose
    hash the manifest has. For a slide whose file is gone, the hash in its store in the project is used. Unreadable
    files are left out: opening the slide reports them.
    """
    changes: dict[str, GemslideError] = {}
    earlier: dict[str, list[SlideEntry]] = defaultdict(list)
    sources = {entry.slide_id: _source_of(cohort, entry, project) for entry in cohort.included}
    hashes = dict(_hashes(cohort, sources))
    for entry in cohort.included:
        source, sha256 = sources[entry.slide_id], hashes.get(entry.slide_id)
        series_uid = source.series_uid if source else None
        same_file = [other for other in earlier[sha256 or ""] if _may_be_same_series(entry.series, other.series)]
        if sha256 and entry.sha256 not in (None, sha256):
            changes[entry.slide_id] = _changed(entry, sha256)
        elif same_file:
            changes[entry.slide_id] = _duplicate(entry, same_file[0])
        elif series_uid and earlier[series_uid]:
            changes[entry.slide_id] = _same_series(entry, earlier[series_uid][0], series_uid)
        for key in filter(None, (sha256, series_uid)):
            earlier[key].append(entry)
    return changes


def _changed(entry: SlideEntry, sha256: str) -> ChangedSourceError:
    return ChangedSourceError(
        f"slide {entry.slide_id}: its file has the SHA-256 {sha256[:12]}…, but the manifest says {entry.sha256:.12}…. "
        "It is another file, or was damaged; copy it again, or correct the manifest."
    )


def _duplicate(entry: SlideEntry, other: SlideEntry) -> BadManifestError:
    return BadManifestError(
        f"slide {entry.slide_id}: is the same file as slide {other.slide_id}, byte for byte. Give one of them a "
        "reason in the column `exclude`; or, if the file holds several slides, give each its `series`."
    )


def _same_series(entry: SlideEntry, other: SlideEntry, series_uid: str) -> BadManifestError:
    return BadManifestError(
        f"slide {entry.slide_id}: is the same slide as slide {other.slide_id}: their files are of one DICOM series, "
        f"{series_uid}. Name the series' folder once, and give the other row a reason in the column `exclude`."
    )


def _may_be_same_series(one: str | None, other: str | None) -> bool:
    """Whether two rows of one file can mean the same image; the end of a DICOM UID suffices."""
    if one is None or other is None or one == other:
        return True
    is_uid = "." in one + other
    return is_uid and (one.endswith(other) or other.endswith(one))


def refuse_changes(cohort: Cohort, project: Project) -> None:
    """Refuse duplicate or replaced slides in a study, where a duplicate would count twice.

    Raises:
        BadManifestError, ChangedSourceError: as found by `find_changes`.
    """
    errors = list(find_changes(cohort, project).values())
    if errors:
        more = f" And {counted(len(errors) - MAX_SHOWN, 'slide')} more." if len(errors) > MAX_SHOWN else ""
        raise type(errors[0])(" ".join(str(error) for error in errors[:MAX_SHOWN]) + more)


@dataclass(frozen=True)
class _Source:
    """A slide's bytes: its files, or the hash kept in its store."""

    size: int
    files: Sequence[Path]
    stored_sha256: str | None = None
    series_uid: str | None = None
    """DICOM's."""

    def sha256(self) -> str:
        return self.stored_sha256 or sha256_of_files(self.files)


def _hashes(cohort: Cohort, sources: Mapping[str, _Source | None]) -> Iterator[tuple[str, str]]:
    """Slide ids and SHA-256 of the slides whose files must be read."""
    same_size = Counter(source.size for source in sources.values() if source)
    for entry in cohort.included:
        source = sources[entry.slide_id]
        if source and (entry.sha256 or same_size[source.size] > 1):
            try:
                yield entry.slide_id, source.sha256()
            except OSError:
                continue


def _source_of(cohort: Cohort, entry: SlideEntry, project: Project | None) -> _Source | None:
    try:
        files, series_uid = _files_of(cohort.slide_path(entry), entry.series)
    except OSError:
        return None
    if files:
        return _Source(_size_of(files), files, series_uid=series_uid)
    store = project.stored_at(entry.slide_id) if project else None
    if store is None or not store.exists():
        return None
    try:
        source = StoreReader(store).attributes.source
    except GemslideError:
        return None
    return _Source(source.bytes, [], source.sha256) if source.sha256 else None


def _files_of(path: Path, series: str | None) -> tuple[Sequence[Path], str | None]:
    """The files that a slide's reader opens, and their DICOM series; all files of a folder that cannot be opened."""
    if not path.exists():
        return [], None
    try:
        if path.is_file() and not is_dicom(path):
            return [path], None
        if OME_ZARR.accepts(path, None):
            with open_slide(path, series) as slide:
                return slide.files, None
        return _dicom_files(path, series)
    except GemslideError:
        return sorted(file for file in [path, *path.rglob("*")] if file.is_file()), None


def _dicom_files(path: Path, series: str | None) -> tuple[Sequence[Path], str | None]:
    from pipeline.slides.dicom.headers.header import read_brief  # its libraries are slow to import
    from pipeline.slides.dicom.series import files_of_slide

    files = files_of_slide(path, series)
    return files, read_brief(files[0]).series_uid or None


def _size_of(paths: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
