"""Slides of a cohort that are the same by content, whatever they are called, and files that are not what they were."""

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
    """By slide id: another file than the manifest's `sha256` says, or the same as an earlier slide of the cohort.

    Only files of equal size are read, and those whose hash the manifest has. A slide whose file is not there any more
    is known by its store in the project. What cannot be read is left out: opening the slide says so.
    """
    found: dict[str, GemslideError] = {}
    earlier: dict[str, list[SlideEntry]] = defaultdict(list)
    entries = {entry.slide_id: entry for entry in cohort.included}
    for slide_id, sha256, expected in _hashes(cohort, project):
        entry = entries[slide_id]
        twin = next((other for other in earlier[sha256] if _may_be_same_series(entry.series, other.series)), None)
        if expected not in (None, sha256):
            found[slide_id] = ChangedSourceError(
                f"slide {slide_id}: its file has the SHA-256 {sha256[:12]}…, and the manifest says {expected:.12}…. It "
                "is another file, or was damaged; copy it again, or correct the manifest."
            )
        elif twin:
            found[slide_id] = BadManifestError(
                f"slide {slide_id}: is the same file as slide {twin.slide_id}, byte for byte. Give one of them a "
                "reason in the column `exclude`; or, if the file holds several slides, each its `series`."
            )
        earlier[sha256].append(entry)
    return found


def _may_be_same_series(one: str | None, other: str | None) -> bool:
    """Whether two rows of one file can mean the same image: of a DICOM UID the end is enough."""
    if one is None or other is None or one == other:
        return True
    is_uid = "." in one + other
    return is_uid and (one.endswith(other) or other.endswith(one))


def refuse_changes(cohort: Cohort, project: Project) -> None:
    """For a study: a slide that is there twice would count twice, and one that was exchanged is another slide.

    Raises:
        BadManifestError, ChangedSourceError: what `find_changes` finds.
    """
    found = list(find_changes(cohort, project).values())
    if found:
        more = f" And {counted(len(found) - MAX_SHOWN, 'slide')} more." if len(found) > MAX_SHOWN else ""
        raise type(found[0])(" ".join(str(error) for error in found[:MAX_SHOWN]) + more)


@dataclass(frozen=True)
class _Source:
    """A slide's bytes: the files, or what its store kept of them."""

    size: int
    files: list[Path]
    stored_sha256: str | None = None

    def sha256(self) -> str:
        return self.stored_sha256 or sha256_of_files(self.files)


def _hashes(cohort: Cohort, project: Project | None) -> Iterator[tuple[str, str, str | None]]:
    """Slide, SHA-256, and what the manifest has for it, in the manifest's order."""
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
        kept = StoreReader(store).attributes.source
    except GemslideError:
        return None
    return _Source(kept.bytes, [], kept.sha256)


def _files_of(path: Path) -> list[Path]:
    """A slide's file, or all files of a folder that is a slide."""
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file())
    return [path] if path.is_file() else []


def _size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
