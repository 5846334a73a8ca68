"""Cohort manifests: a CSV that says which slides belong together and what is known about them."""

from __future__ import annotations

import csv
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pipeline.cohort.other_lists import OtherList, find_slide_file, list_of
from pipeline.errors import BadManifestError
from pipeline.files import write_text_atomic
from pipeline.project import check_slide_id
from training.foundation.class_names import check_class_name, check_printable
from training.foundation.names import NAME_PATTERN
from training.foundation.reading import read_regular
from training.foundation.settings import did_you_mean

Split = Literal["train", "val", "test"]

SLIDE_SUFFIXES = frozenset(
    {".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".vms", ".vmu"}
    | {".svslide", ".czi", ".zvi", ".dcm", ".qptiff"}
)
ANNOTATION_SUFFIXES = (".geojson", ".json", ".xml")
"""Looked for beside each slide, in this order."""
MAX_MANIFEST_BYTES = 64 * 2**20
"""About half a million slides."""
MAX_SHOWN = 10
"""Names in a message."""


def _without_nul(path: str) -> str:
    if "\0" in path:
        raise ValueError("holds the character U+0000, which no path has")
    return path


Line = Annotated[str, AfterValidator(check_printable)]
FilePath = Annotated[str, AfterValidator(_without_nul)]


class SlideEntry(BaseModel):
    """One row of a manifest. Only `path` is required to ingest; `patient_id` to split."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: FilePath = Field(min_length=1)
    """Slide file, relative to the manifest."""
    slide_id: str = Field(pattern=NAME_PATTERN)
    """Default: the file's stem."""
    patient_id: Line | None = None
    site: Line | None = None
    scanner: Line | None = None
    mpp: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Microns per level-0 pixel; overrides the file."""
    annotations: FilePath | None = None
    """Annotation file, relative to the manifest."""
    label: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Label of the whole slide."""
    split: Split | None = None
    exclude: str | None = None
    """Reason to leave the slide out."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the slide's file; `gemslide cohort check` compares."""


COLUMNS = tuple(SlideEntry.model_fields)


class Cohort(BaseModel):
    """A manifest that was read and holds together."""

    model_config = ConfigDict(frozen=True)

    path: Path
    entries: tuple[SlideEntry, ...]

    @property
    def included(self) -> tuple[SlideEntry, ...]:
        """Slides without a reason to exclude them."""
        return tuple(entry for entry in self.entries if not entry.exclude)

    def slide_path(self, entry: SlideEntry) -> Path:
        return self.path.parent / entry.path

    def annotations_path(self, entry: SlideEntry) -> Path | None:
        return self.path.parent / entry.annotations if entry.annotations else None


def load_cohort(path: Path) -> Cohort:
    """Read and check a manifest; a slide list of another program is read as one (`other_lists.py`).

    Raises:
        BadManifestError: not there, too large, not CSV, an unknown column, a bad value, or a slide_id twice.
    """
    try:
        text = read_regular(path, max_bytes=MAX_MANIFEST_BYTES).decode("utf-8-sig")
        rows = csv.DictReader(io.StringIO(text, newline=""))
        other = list_of(list(rows.fieldnames or []))
        if other is None:
            _check_columns(path, list(rows.fieldnames or []))
        numbered = ((number, row) for number, row in enumerate(rows, start=2) if any(_cells(row)))
        entries = tuple(_entry(path, number, row, other) for number, row in numbered)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadManifestError(f"{path}: cannot be read as a UTF-8 CSV file: {error}.") from error
    if not entries:
        raise BadManifestError(f"{path}: has no slides. Make one with `gemslide cohort init FOLDER`.")
    twice = [slide_id for slide_id, count in Counter(e.slide_id for e in entries).items() if count > 1]
    if twice:
        more = f" and {len(twice) - MAX_SHOWN} more" if len(twice) > MAX_SHOWN else ""
        named = ", ".join(twice[:MAX_SHOWN])
        raise BadManifestError(f"{path}: slide_id {named}{more} stands on more than one row. Make them differ.")
    return Cohort(path=path, entries=entries)


def _cells(row: dict[str | Any, str | Any]) -> Iterator[str]:
    """What stands in a row, blanks stripped; spreadsheets leave rows of commas at the end."""
    return (cell.strip() for cell in row.values() if isinstance(cell, str))


def _check_columns(path: Path, names: list[str]) -> None:
    if "path" not in names:
        raise BadManifestError(f"{path}: no column `path`; found {', '.join(names)[:200] or 'an empty file'}.")
    for name in names:
        if names.count(name) > 1:
            raise BadManifestError(f"{path}: the column `{name}` stands there {names.count(name)} times. Keep one.")
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS, what="columns")
            raise BadManifestError(f"{path}: unknown column `{name:.200}`: {hint}.")


def _entry(path: Path, number: int, row: dict[str | Any, str | Any], other: OtherList | None) -> SlideEntry:
    if None in row or None in row.values():
        raise BadManifestError(f"{path}, line {number}: the number of fields differs from the header's.")
    values = {key: text.strip() for key, text in row.items() if text and text.strip()}
    if other is not None:
        values = {column: text for key, text in values.items() if (column := other.column(key))}
        if "path" in values and "\0" not in values["path"]:
            values["path"] = find_slide_file(values["path"], path.parent, SLIDE_SUFFIXES)
    if "path" in values and "slide_id" not in values:
        values["slide_id"] = check_slide_id(Path(values["path"]).stem, where=f"{path.name}, line {number}")
    try:
        return SlideEntry.model_validate(values)
    except ValidationError as error:
        findings = "; ".join(
            f"`{'.'.join(map(str, e['loc']))}` = {e['input'] if e['type'] != 'missing' else 'empty'!r:.200}: {e['msg']}"
            for e in error.errors()
        )
        raise BadManifestError(f"{path}, line {number}: {findings}.") from error


def init_cohort(folder: Path, target: Path) -> Cohort:
    """Write a manifest of every slide file below a folder; annotation files beside slides join them.

    Raises:
        BadManifestError: no slide files there, or the manifest exists.
    """
    if target.exists():
        raise BadManifestError(f"{target}: exists already; it may hold your edits. Delete it or choose another name.")
    if not folder.is_dir():
        raise BadManifestError(f"{folder}: is not a folder.")
    slides = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SLIDE_SUFFIXES and p.is_file())
    if not slides:
        raise BadManifestError(f"{folder}: no slide files in it (looked for {', '.join(sorted(SLIDE_SUFFIXES))}).")
    rows = [",".join(COLUMNS)]
    taken: set[str] = set()
    for slide in slides:
        beside = (slide.with_suffix(suffix) for suffix in ANNOTATION_SUFFIXES)
        annotations = next((path for path in beside if path.is_file()), None)
        cells = dict.fromkeys(COLUMNS, "")
        cells["path"] = _relative(slide, target)
        cells["slide_id"] = _free_id(slide.stem, taken)
        cells["annotations"] = _relative(annotations, target) if annotations else ""
        rows.append(",".join(_quoted(cells[column]) for column in COLUMNS))
    write_text_atomic(target, "\n".join(rows) + "\n")
    return load_cohort(target)


def _free_id(stem: str, taken: set[str]) -> str:
    """A legal slide_id near a file's stem that no other slide has; it joins `taken`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip(".-")[:56] or "slide"
    numbers = (f"{base}-{number}" for number in itertools.count(2))
    slide_id = next(name for name in itertools.chain([base], numbers) if name not in taken)
    taken.add(slide_id)
    return slide_id


def _relative(path: Path, manifest: Path) -> str:
    return os.path.relpath(path.resolve(), manifest.resolve().parent)


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\r\n') else cell
