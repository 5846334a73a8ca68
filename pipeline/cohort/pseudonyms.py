"""Pseudonyms of a cohort: random names for slides, patients, blocks and sites, and the map back to the real ones.

A pseudonym is drawn at random, not computed from a name, since a hash can be reversed by hashing all possible names.
The map is the only way back, so it is kept apart from shared files: never inside a project folder.
"""

from __future__ import annotations

import csv
import fcntl
import itertools
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from io import StringIO
from pathlib import Path
from typing import Literal

from pipeline.cohort.look_alikes import look_alikes
from pipeline.cohort.manifest import COLUMNS, MAX_MANIFEST_BYTES, Cohort, SlideEntry, load_cohort
from pipeline.errors import BadManifestError
from pipeline.files import explain_unwritable, replace_file
from pipeline.project import Project
from pipeline.spreadsheets import read_rows, with_header
from training.foundation.errors import LockedError
from training.foundation.words.names import comparable

KINDS = ("slide", "patient", "block", "site")
Keepable = Literal["block", "site"]


@dataclass(frozen=True)
class MapRow:
    """One line of a map: an original name, its pseudonym, and (for slides) the file's path."""

    kind: str
    original: str
    pseudonym: str
    path: str = ""


MAP_COLUMNS = tuple(field.name for field in fields(MapRow))


@dataclass(frozen=True)
class Pseudonymized:
    """Outcome of `pseudonymize_cohort`."""

    num_slides: int
    num_patients: int
    num_new: int
    """Pseudonyms added to the map."""
    look_alikes: tuple[tuple[str, ...], ...]
    """Groups of patients of the map that look like one, but have different pseudonyms, which look like nothing."""


class PseudonymMap:
    """Originals and their pseudonyms, in order of first occurrence."""

    def __init__(self, path: Path, rows: list[MapRow]) -> None:
        self.path = path
        self.rows = rows
        self._by_original = {(row.kind, comparable(row.original)): row for row in rows}
        self._pseudonyms = {row.pseudonym for row in rows}
        if not len(rows) == len(self._by_original) == len(self._pseudonyms):
            raise BadManifestError(
                f"{path}: an original or a pseudonym is on more than one line. Repair the map by hand from a backup; "
                "pseudonyms that were given out cannot be recreated."
            )

    def pseudonym(self, kind: str, original: str, *, path: str = "") -> str:
        """The pseudonym of `original`, drawn now if it has none yet.

        Raises:
            BadManifestError: the name is already a pseudonym, or the slide's file is not the same as before.
        """
        original = comparable(original)
        if original in self._pseudonyms:
            raise BadManifestError(
                f"{kind} {original} is already a pseudonym of the map {self.path}. Use the manifest with real names."
            )
        known = self._by_original.get((kind, original))
        if known is None:
            return self._draw(kind, original, path).pseudonym
        if comparable(known.path) != comparable(path):
            raise BadManifestError(
                f"slide {original}: its file is {known.path} in the map {self.path}, but {path} in the manifest. "
                "If the file was moved, correct its path in the map; if it is another slide, give it another slide_id."
            )
        return known.pseudonym

    def _draw(self, kind: str, original: str, path: str) -> MapRow:
        candidates = (f"{kind}-{secrets.token_hex(5)}" for _ in itertools.count())
        row = MapRow(kind, original, next(name for name in candidates if name not in self._pseudonyms), path)
        self.rows.append(row)
        self._by_original[kind, original] = row
        self._pseudonyms.add(row.pseudonym)
        return row

    def is_pseudonym(self, name: str) -> bool:
        return name in self._pseudonyms


def pseudonymize_cohort(
    manifest: Path, map_path: Path, out: Path, *, project: Path | None = None, keep: Collection[Keepable] = ()
) -> Pseudonymized:
    """Write a copy of a manifest with pseudonyms in place of names; the map is created or extended.

    Stains, splits, labels, annotations, mpp and exclusions are kept. Paths are too, relative to `out`: the new manifest
    is for `gemslide ingest` and `gemslide tile`, and must be outside the project like the map.

    Args:
        manifest: the cohort with real names.
        map_path: CSV of kind, original, pseudonym, path; readable only by its owner. The same map gives the same
            pseudonyms again.
        out: the manifest to write; one made earlier with this map is replaced.
        project: a folder that must not hold the map or `out`, even if it is still empty.
        keep: columns to leave unchanged. A block's label may contain an accession number.

    Raises:
        BadManifestError: the manifest or the map is inconsistent, or a file would be in a project.
        LockedError: another process is extending the same map.
        DiskFullError: not writable.
    """
    cohort = load_cohort(manifest)
    _check_places(manifest, map_path, out, project)
    with explain_unwritable(map_path), _locked(map_path):
        names = read_map(map_path)
        known = len(names.rows)
        entries = [_renamed(entry, cohort, out, names, keep) for entry in cohort.entries]
        _check_replaceable(out, names)
        _write_private(map_path, _csv(MAP_COLUMNS, map(astuple, names.rows)))
        _write_private(out, _csv(COLUMNS, (tuple(e.model_dump(mode="json").values()) for e in entries)))
    patients = {entry.patient_id for entry in entries if entry.patient_id}
    alike = look_alikes(row.original for row in names.rows if row.kind == "patient")
    return Pseudonymized(len(entries), len(patients), len(names.rows) - known, tuple(alike))


def read_map(path: Path) -> PseudonymMap:
    """Read a map; a missing one is empty.

    Raises:
        BadManifestError: not a map, or damaged.
    """
    if not path.exists():
        return PseudonymMap(path, [])
    header, rows = with_header(path, read_rows(path, max_bytes=MAX_MANIFEST_BYTES))
    if not header:
        raise BadManifestError(f"{path}: cannot be read as a map of pseudonyms: it is empty. Restore it from a backup.")
    if tuple(header) != MAP_COLUMNS:
        raise BadManifestError(
            f"{path}: is not a map of pseudonyms: its columns are {', '.join(header)}, not {', '.join(MAP_COLUMNS)}."
        )
    entries = []
    for number, row in rows:
        if row["kind"] not in KINDS or not row["original"] or not row["pseudonym"]:
            raise BadManifestError(
                f"{path}, line {number}: not a line of a map of pseudonyms. Restore it from a backup."
            )
        entries.append(MapRow(**row))
    return PseudonymMap(path, entries)


def _renamed(
    entry: SlideEntry, cohort: Cohort, out: Path, names: PseudonymMap, keep: Collection[Keepable]
) -> SlideEntry:
    base = out.resolve().parent
    slide = cohort.slide_path(entry).resolve()
    annotations = cohort.annotations_path(entry)
    changes: dict[str, str] = {
        "path": os.path.relpath(slide, base),
        "slide_id": names.pseudonym("slide", entry.slide_id, path=str(slide)),
    }
    if annotations:
        changes["annotations"] = os.path.relpath(annotations.resolve(), base)
    if entry.patient_id:
        changes["patient_id"] = names.pseudonym("patient", entry.patient_id)
    if entry.block and "block" not in keep:
        changes["block"] = names.pseudonym("block", entry.block)
    if entry.site and "site" not in keep:
        changes["site"] = names.pseudonym("site", entry.site)
    return entry.model_copy(update=changes)


def project_around(path: Path) -> Path | None:
    """The project folder that contains or would contain a file, recognised by the contents of its parent folders."""
    return next((folder for folder in path.resolve().parents if Project(folder).is_project), None)


def _check_places(manifest: Path, map_path: Path, out: Path, project: Path | None) -> None:
    if len({path.resolve() for path in (manifest, map_path, out)}) < 3:
        raise BadManifestError(
            f"the manifest ({manifest}), the map ({map_path}) and the new manifest ({out}) must be three files."
        )
    for what, path in (("map", map_path), ("new manifest", out)):
        around = project_around(path)
        if project and project.resolve() in path.resolve().parents:
            around = project
        if around:
            raise BadManifestError(
                f"{path}: the {what} must not be inside the project folder {around}: it names files and people, and "
                "a project is meant to be shared. Choose a folder beside it that only you can read."
            )


def _check_replaceable(out: Path, names: PseudonymMap) -> None:
    """Allow only a manifest made with this map to be replaced; anything else may be somebody's work."""
    if not out.exists():
        return
    if not all(names.is_pseudonym(entry.slide_id) for entry in load_cohort(out).entries):
        raise BadManifestError(
            f"{out}: already exists and was not made with the map {names.path}. Delete it or choose another name."
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let only one process at a time extend a map; the lock ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"{path}: another process is extending it. Wait for it to end, or stop it.") from error
        yield
    finally:
        os.close(descriptor)


def _csv(columns: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    return text.getvalue()


def _write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable only by its owner from the first byte."""
    replace_file(path, text.encode(), mode=0o600)
