"""Keeping sources' names out of what is stored and passed on: file names can name patients.

Every message that goes into the ledger, a record, a `--json` line, a report, a page or a job's log passes through
`SourceNames.cleaned`, whatever wrote it: our own errors, the system, or a library.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.cohort.annotation_files import ANNOTATION_SUFFIXES
from pipeline.cohort.manifest import COLUMNS, MAX_MANIFEST_BYTES
from pipeline.files import in_form_on_disk
from pipeline.naming.matching import HIDDEN as HIDDEN
from pipeline.naming.matching import Names
from pipeline.project import STORE_SUFFIX, Project
from pipeline.slides.suffixes import is_slide_or_refused
from pipeline.spreadsheets import TABLE_SUFFIXES, WORKBOOK_SUFFIXES, cells_of_any
from training.foundation.reading import read_regular
from training.foundation.words.names import is_name

TOO_MANY = "left out, because it may name files of the source, a folder of more files than are checked"
MAX_ENTRIES = 20_000
"""Names checked in all folders that are sources."""
MAX_LINKS = 40
_FILE_SUFFIXES = {*ANNOTATION_SUFFIXES, *TABLE_SUFFIXES, *WORKBOOK_SUFFIXES}


class SourceNames:
    """The names of a run's sources, in all forms in which a message may have them.

    A name is the path as it was given, absolute and resolved; the names of the file, of the folders it is in and of
    the entries of a folder that is a source; each with and without its suffix. Not counted are slide ids, folders that
    hold the project as well, and names that identify nobody (`slides`, `12`).
    """

    def __init__(self, *sources: Path, project: Project | None = None) -> None:
        self._root = project.root.resolve() if project else None
        self._given_root = os.path.abspath(project.root) if project else ""
        self._sources: dict[Path, None] = {}
        self._file_names: set[str] = set()
        """Of the sources that have a suffix: not slide ids, though they look like them."""
        self._cells: set[str] = set()
        self._slide_ids: set[str] = set()
        self._found: Names | None = None
        self._saw_every_entry = True
        self.add(*sources)

    def add(self, *paths: Path) -> None:
        """Add sources: slides, annotation files, manifests with all that they name; copies, named by people."""
        self._sources.update(dict.fromkeys(paths))
        self._file_names.update(path.name for path in paths if path.suffix)
        self._found = None
        for path in (path for path in paths if path.suffix.lower() in TABLE_SUFFIXES):
            self._add_named_in(path)

    def add_typed(self, names: Iterable[str], project: Project) -> None:
        """Add names typed in place of a slide id or a store: a slide's file, given by mistake, is a source."""
        for name in names:
            is_stored = is_name(name) and project.stored_at(name).exists()
            if is_stored or name.endswith(STORE_SUFFIX):
                continue
            if _is_file(name) or os.path.lexists(name):  # a folder of DICOM files has no suffix
                self.add(Path(name))

    def _add_named_in(self, manifest: Path) -> None:
        """Add every file that a manifest names, even if the manifest is inconsistent."""
        header: list[str] = []
        files: list[Path] = []
        with suppress(OSError, csv.Error):  # reading it again, as a manifest, reports what is wrong
            for cells in cells_of_any(read_regular(manifest, max_bytes=MAX_MANIFEST_BYTES)):
                header = header or cells
                for name, cell in itertools.zip_longest(header, cells, fillvalue=""):
                    if cell not in COLUMNS and (cells is header or name in ("path", "annotations") or _is_file(cell)):
                        self._cells.add(cell)
                        files += [] if "\0" in cell else [in_form_on_disk(manifest.parent, cell)]
        self.add(*(path for path in files if path.suffix.lower() not in TABLE_SUFFIXES))

    def keep(self, slide_id: str) -> None:
        """Keep this name: it is the id of a slide, and lines may hold it."""
        if not (slide_id in self._slide_ids or slide_id in self._file_names):
            self._slide_ids.add(slide_id)
            if self._found is not None:
                self._found.keep(slide_id)

    def cleaned(self, message: str) -> str:
        """A message that may be kept and shown: without names of sources, with files of the project relative to its
        folder, and without the home folder."""
        text: str = self.removed_from(message)
        for folder, inside, itself in self._folders():
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}/", inside, text)
            text = re.sub(rf"(?<![\w./-]){re.escape(folder)}(?![\w/-])", itself, text)
        return text

    def _folders(self) -> Iterator[tuple[str, str, str]]:
        """Folders of this computer that messages name, and their replacements: before a path, and alone."""
        for folder in dict.fromkeys((self._given_root, str(self._root)) if self._root else ()):
            yield folder, "", "the project"
        home = os.path.expanduser("~")
        if home not in ("/", "~"):
            yield home, "~/", "~"

    def removed_from(self, value: Any) -> Any:
        """A JSON value in whose strings none of the names is left; keys stay as they are."""
        if isinstance(value, dict):
            return {key: self.removed_from(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.removed_from(item) for item in value]
        if not isinstance(value, str) or not self._sources:
            return value
        if self._found is None:
            self._found = Names(self._every_name(), self._slide_ids)
        return self._found.removed_from(value) if self._saw_every_entry else TOO_MANY

    def _every_name(self) -> Iterator[str]:
        yield from self._cells
        folders: set[Path] = set()
        for path in self._sources:
            forms = {path, Path(os.path.normpath(path)), path.absolute(), Path(os.path.realpath(path)), *_links(path)}
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
        """Names in folders that are sources; and beside DICOM files, where the rest of their series is."""
        searched = {path for path in self._sources if os.path.isdir(path)}
        instances = {path for path in self._sources if path.suffix.lower() in ("", ".dcm", ".dicom")} - searched
        for folder in searched | {path.parent for path in instances if os.path.exists(path)}:
            for _, folders, files in os.walk(folder):
                yield from (*folders, *files)


def _links(path: Path) -> Iterator[Path]:
    """Yield the targets of a link, link by link."""
    for _ in range(MAX_LINKS):
        try:
            target = os.readlink(path)
        except OSError:
            return
        path = Path(os.path.normpath(path.absolute().parent / target))
        yield path


def _with_and_without_suffix(name: str) -> Iterator[str]:
    while name:
        yield name
        shorter = Path(name).stem
        name = shorter if shorter != name else ""


def _is_file(text: str) -> bool:
    is_path = "/" in text or "\\" in text
    return is_path or Path(text).suffix.lower() in _FILE_SUFFIXES or is_slide_or_refused(text)
