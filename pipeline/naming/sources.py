"""Keeping sources' names out of `--json` lines: file names can name patients, and lines are kept and passed on."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.cohort.manifest import ANNOTATION_SUFFIXES, COLUMNS, MAX_MANIFEST_BYTES, SLIDE_SUFFIXES
from pipeline.project import STORE_SUFFIX, Project
from training.foundation.names import is_name
from training.foundation.reading import read_regular

HIDDEN = "(name left out)"
TOO_MANY = "left out, because it may name files of the source, a folder of more files than are looked through"
MAX_ENTRIES = 20_000
"""Names looked at in all folders that are sources."""
_FILE_SUFFIXES = SLIDE_SUFFIXES | {*ANNOTATION_SUFFIXES, ".csv", ".mrxs"}
# Names of files and folders that name nobody, and stand in our own messages.
_PLAIN = frozenset({
    "annotation", "annotations", "asap", "cohort", "data", "dicom", "done", "failed", "file", "files", "folder",
    "geojson", "home", "image", "images", "imagescope", "label", "labels", "level", "levels", "manifest", "project",
    "qupath", "refused", "scan", "scans", "series", "skipped", "slide", "slides", "source", "sources", "study", "tile",
    "tiles", "user",
})  # fmt: skip


class SourceNames:
    """The names of a run's sources, in all forms a message may have them.

    A name is the path as it was given, absolute and resolved; the names of the file, of the folders it lies in and of
    the entries of a folder that is a source; each with its suffix and without. No such names are slide ids, folders
    that hold the project as well, and what names nobody (`slides`, `12`).
    """

    def __init__(self, *sources: Path, project: Project | None = None) -> None:
        self._root = project.root.resolve() if project else None
        self._sources: dict[Path, None] = {}
        self._file_names: set[str] = set()
        """Of the sources that have a suffix: no slide's id, though they look like one."""
        self._cells: set[str] = set()
        self._slide_ids: set[str] = set()
        self._found: _Names | None = None
        self._saw_every_entry = True
        self.add(*sources)

    def add(self, *paths: Path) -> None:
        """These are sources: slides, annotation files, manifests with all that they name; copies, named by people."""
        self._sources.update(dict.fromkeys(paths))
        self._file_names.update(path.name for path in paths if path.suffix)
        self._found = None
        for path in (path for path in paths if path.suffix.lower() == ".csv"):
            self._add_named_in(path)

    def add_typed(self, names: Iterable[str], project: Project) -> None:
        """What was typed where a slide id or a store should stand: a slide's file, by mistake, is a source."""
        for name in names:
            is_stored = is_name(name) and project.store_path(name).exists()
            if is_stored or name.endswith(STORE_SUFFIX):
                continue
            if _is_file(name) or os.path.lexists(name):  # a folder of DICOM files has no suffix
                self.add(Path(name))

    def _add_named_in(self, manifest: Path) -> None:
        """Every file that a manifest names, even where it does not hold together."""
        header: list[str] = []
        files: list[Path] = []
        with suppress(OSError, csv.Error):  # reading it again, as a manifest, says what is wrong
            text = read_regular(manifest, max_bytes=MAX_MANIFEST_BYTES).decode("utf-8-sig", errors="surrogateescape")
            for row in csv.reader(io.StringIO(text, newline="")):
                cells = [cell.strip() for cell in row]
                header = header or cells
                for name, cell in itertools.zip_longest(header, cells, fillvalue=""):
                    if cell not in COLUMNS and (cells is header or name in ("path", "annotations") or _is_file(cell)):
                        self._cells.add(cell)
                        files += [] if "\0" in cell else [manifest.parent / cell]
        self.add(*(path for path in files if path.suffix.lower() != ".csv"))

    def keep(self, slide_id: str) -> None:
        """This name is the id of a slide, and lines may hold it."""
        if not (slide_id in self._slide_ids or slide_id in self._file_names):
            self._slide_ids.add(slide_id)
            if self._found is not None:
                self._found.keep(slide_id)

    def removed_from(self, value: Any) -> Any:
        """A JSON value in whose strings none of the names is left; keys stay as they are."""
        if isinstance(value, dict):
            return {key: self.removed_from(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.removed_from(each) for each in value]
        if not isinstance(value, str) or not self._sources:
            return value
        if self._found is None:
            self._found = _Names(self._every_name(), self._slide_ids)
        return self._found.removed_from(value) if self._saw_every_entry else TOO_MANY

    def _every_name(self) -> Iterator[str]:
        yield from self._cells
        folders: set[Path] = set()
        for path in self._sources:
            forms = {path, Path(os.path.normpath(path)), path.absolute(), Path(os.path.realpath(path))}
            folders |= {form.parent for form in forms}
            for form in forms:
                yield from (str(form), *_with_and_without_suffix(form.name))
        for folder in {above for each in folders for above in (each, *each.parents)}:
            if self._root is None or not self._root.is_relative_to(folder):
                yield from (str(folder), *_with_and_without_suffix(folder.name))
        entries = self._entries()
        for name in itertools.islice(entries, MAX_ENTRIES):
            yield from _with_and_without_suffix(name)
        self._saw_every_entry = next(entries, None) is None

    def _entries(self) -> Iterator[str]:
        """Names in folders that are sources; and beside DICOM files, where the others of their series lie."""
        looked_in = {path for path in self._sources if os.path.isdir(path)}
        instances = {path for path in self._sources if path.suffix.lower() in ("", ".dcm", ".dicom")} - looked_in
        for folder in looked_in | {path.parent for path in instances if os.path.exists(path)}:
            for _, folders, files in os.walk(folder):
                yield from (*folders, *files)


class _Names:
    """Many names, found in a text in one pass over it."""

    LONGEST_KEY = 6
    """Names at least as long are found inside of words, too; shorter ones where they stand alone."""
    SHORTEST = 3

    def __init__(self, names: Iterable[str], kept: Iterable[str]) -> None:
        telling = {name for name in names if _is_telling(name)}
        # A message that quotes a name may have escaped some of its characters.
        self._hidden = telling | {repr(name)[1:-1] for name in telling}
        self._kept: set[str] = set()
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)
        for name in self._hidden:
            self._lengths[name[: self.LONGEST_KEY]].add(len(name))
        for name in kept:
            self.keep(name)

    def keep(self, name: str) -> None:
        """This stays, even where a name is a part of it."""
        self._kept.add(name)
        self._lengths[name[: self.LONGEST_KEY]].add(len(name))

    def removed_from(self, text: str) -> str:
        """The text with each name, the longest first, replaced."""
        pieces, start, at = [], 0, 0
        while at < len(text):
            end = self._end_of_name_at(text, at)
            if end is None:
                at += 1
                continue
            if text[at:end] not in self._kept:
                pieces += [text[start:at], HIDDEN]
                start = end
            at = end
        return "".join([*pieces, text[start:]])

    def _end_of_name_at(self, text: str, at: int) -> int | None:
        for key_length in range(self.LONGEST_KEY, 0, -1):
            for length in sorted(self._lengths.get(text[at : at + key_length], ()), reverse=True):
                end = at + length
                if self._is_name(text, at, end):
                    return end
        return None

    def _is_name(self, text: str, start: int, end: int) -> bool:
        name = text[start:end]
        is_long = end - start >= self.LONGEST_KEY and name not in self._kept
        return (name in self._hidden or name in self._kept) and (is_long or _stands_alone(text, start, end))


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum())


def _is_telling(name: str) -> bool:
    return (
        len(name) >= _Names.SHORTEST and name.lower() not in _PLAIN and not re.fullmatch(r"[\W_]*(\d[\W_]*){0,3}", name)
    )


def _with_and_without_suffix(name: str) -> Iterator[str]:
    while name:
        yield name
        shorter = Path(name).stem
        name = shorter if shorter != name else ""


def _is_file(text: str) -> bool:
    return "/" in text or "\\" in text or Path(text).suffix.lower() in _FILE_SUFFIXES
