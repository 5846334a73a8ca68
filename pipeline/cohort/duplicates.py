"""Slides of a cohort that are the same by content, whatever they are called, and files that are not what they were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pipeline.cohort.manifest import Cohort
from pipeline.errors import BadManifestError, ChangedSourceError, GemslideError
from pipeline.files import sha256_of_files


def find_changes(cohort: Cohort) -> dict[str, GemslideError]:
    """By slide id: another file than the manifest's `sha256` says, or the same as an earlier slide of the cohort.

    Only files of equal size are read, and those whose hash the manifest has. What cannot be read is left out: opening
    the slide says so.
    """
    found: dict[str, GemslideError] = {}
    first: dict[str, str] = {}
    for slide_id, sha256, expected in _hashes(cohort):
        if expected not in (None, sha256):
            found[slide_id] = ChangedSourceError(
                f"slide {slide_id}: its file has the SHA-256 {sha256[:12]}…, and the manifest says {expected:.12}…. It "
                "is another file, or was damaged; copy it again, or correct the manifest."
            )
        elif sha256 in first:
            found[slide_id] = BadManifestError(
                f"slide {slide_id}: is the same file as slide {first[sha256]}, byte for byte. Give one of them a "
                "reason in the column `exclude`."
            )
        first.setdefault(sha256, slide_id)
    return found


def _hashes(cohort: Cohort) -> Iterator[tuple[str, str, str | None]]:
    """Slide, SHA-256, and what the manifest has for it, in the manifest's order."""
    files = {entry.slide_id: _files_of(cohort.slide_path(entry)) for entry in cohort.included}
    same_size: dict[int, int] = defaultdict(int)
    for own in files.values():
        same_size[_size_of(own)] += 1
    for entry in cohort.included:
        own = files[entry.slide_id]
        if own and (entry.sha256 or same_size[_size_of(own)] > 1):
            try:
                yield entry.slide_id, sha256_of_files(own), entry.sha256
            except OSError:
                continue


def _files_of(path: Path) -> list[Path]:
    """A slide's file, or all files of a folder that is a slide."""
    if path.is_dir():
        return sorted(each for each in path.rglob("*") if each.is_file())
    return [path] if path.is_file() else []


def _size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)
