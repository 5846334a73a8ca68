"""Duplicate slides of a cohort, compared by content whatever their names, and files that have changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.manifest import Cohort, SlideEntry
from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.files import sha256_of_files
from pipeline.project import Project
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted

MAX_SHOWN = 5
"""Findings in a message."""


def find_changes(cohort: Cohort, project: Project | None = None) -> dict[str, GemslideError]:
    """Errors by slide id: a file that does not match the manifest's `sha256`, or equals an earlier slide of the cohort.

    Only files of equal size are read, and those whose hash the manifest has. For a slide whose file is gone, the hash
    in its store in the project is used. Unreadable files are left out: opening the slide reports them.
    """
    changes: dict[str, GemslideError] = {}
    earlier: dict[str, list[SlideEntry]] = defaultdict(list)
    entries = {entry.slide_id: entry for entry in cohort.included}
    for slide_id, sha256, expected in _hashes(cohort, project):
        entry = entries[slide_id]
        twin = next((other for other in earlier[sha256] if _may_be_same_series(entry.series, other.series)), None)
        if expected not in (None, sha256):
            changes[slide_id] = ChangedSourceError(
                f"slide {slide_id}: its file has the SHA-256 {sha256[:12]}…, but the manifest says {expected:.12}…. It "
                "is another file, or was damaged; copy it again, or correct the manifest."
            )
        elif twin:
            changes[slide_id] = BadManifestError(
                f"slide {slide_id}: is the same file as slide {twin.slide_id}, byte for byte. Give one of them a "
                "reason in the column `exclude`; or, if the file holds several slides, give each its `series`."
            )
        earlier[sha256].append(entry)
    return changes


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
    files: list[Path]
    stored_sha256: str | None = None

    def sha256(self) -> str:
        return self.stored_sha256 or sha256_of_files(self.files)


def _hashes(cohort: Cohort, project: Project | None) -> Iterator[tuple[str, str, str | None]]:
    """Slide id, SHA-256 and the manifest's SHA-256, in the manifest's order."""
    sources = {entry.slide_id: _source_of(cohort, entry, project) for entry in cohort.included}
    same_size = Counter(source.size for source in sources.values() if source)
    for entry in cohort.included:
        source = sources[entry.slide_id]
        if source and (entry.sha256 or same_size[source.size] > 1):
            try:
                yield entry.slide_id, source.sha256(), entry.sha256
            except OSError:
                continue


def _source_of(cohort: Cohort, entry: SlideEntry, project: Project | None) -> _Source | None:
    files = _files_of(cohort.slide_path(entry))
    if files:
        return _Source(_size_of(files), files)
    store = project.store_path(entry.slide_id) if project else None
    if store is None or not store.exists():
        return None
    try:
        source = StoreReader(store).attributes.source
    except GemslideError:
        return None
    return _Source(source.bytes, [], source.sha256)


def _files_of(path: Path) -> list[Path]:
    """A slide's file, or all files of a folder that is a slide."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_file())
    return [path] if path.is_file() else []


def _size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
