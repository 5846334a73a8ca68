"""Cohort manifests: a CSV that lists slides that belong together and the known facts about them."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.cohort.annotation_files import AnnotationFiles
from pipeline.cohort.kept_slides import says_kept
from pipeline.cohort.no_values import is_false, is_missing, why_no_value
from pipeline.cohort.other_lists import find_slide_file, list_of
from pipeline.cohort.slide_files import find_slide_files
from pipeline.cohort.total_rows import total_in
from pipeline.errors import BadManifestError
from pipeline.files import in_form_on_disk, replace_file
from pipeline.project import check_slide_id
from pipeline.settings.source_folders import check_source
from pipeline.slides.suffixes import has_slide_suffix, slide_id_from, slide_suffixes
from pipeline.spreadsheets import is_altered, read_rows, with_header
from training.foundation.settings import did_you_mean
from training.foundation.words.class_names import check_class_name, check_printable
from training.foundation.words.counts import counted
from training.foundation.words.findings import message_of
from training.foundation.words.names import NAME_PATTERN, comparable

Split = Literal["train", "val", "test"]

MAX_MANIFEST_BYTES = 64 * 2**20
"""About half a million slides."""
MAX_SHOWN = 10
"""Names in a message."""


def _without_nul(path: str) -> str:
    if "\0" in path:
        raise ValueError("holds the character U+0000, which paths cannot contain")
    return path


def _number(value: object) -> object:
    """A number with a decimal comma, as some computers write it; anything else as it is."""
    is_one = isinstance(value, str) and re.fullmatch(r"[0-9]*,[0-9]+(?:[eE][+-]?[0-9]+)?", value)
    return str(value).replace(",", ".") if is_one else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _reason(text: str) -> str:
    if is_missing(text) or is_false(text):
        raise ValueError("is not a reason to leave the slide out: empty the cell to keep the slide")
    if says_kept(text):
        raise ValueError(
            "can mean that the slide stays: empty the cell to keep the slide, or write only why it is left out"
        )
    return text


Line = Annotated[str, AfterValidator(check_printable)]
FilePath = Annotated[str, AfterValidator(_without_nul)]


class SlideEntry(BaseModel):
    """One row of a manifest. Ingest requires only `path`; a split also requires `patient_id`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: FilePath = Field(min_length=1)
    """Slide file, relative to the manifest."""
    slide_id: str = Field(pattern=NAME_PATTERN)
    """Default: the file's name without its suffix."""
    patient_id: Line | None = None
    block: Line | None = None
    """Tissue block that the section was cut from."""
    stain: Line | None = None
    site: Line | None = None
    scanner: Line | None = None
    mpp: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)] | None = None
    """Microns per level-0 pixel; overrides the file."""
    series: Line | None = None
    """One of several slides in the file or folder, as `gemslide ingest --series` takes it."""
    annotations: FilePath | None = None
    """Annotation file, relative to the manifest."""
    label: Annotated[str, AfterValidator(check_class_name)] | None = None
    """Label of the whole slide."""
    split: Split | None = None
    exclude: Annotated[str, AfterValidator(_reason)] | None = None
    """Reason to leave the slide out."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), BeforeValidator(_lower)] | None = None
    """Hash of the slide's file; `gemslide cohort check` compares it."""


COLUMNS = tuple(SlideEntry.model_fields)


class Cohort(BaseModel):
    """A manifest that was read and checked."""

    model_config = ConfigDict(frozen=True)

    path: Path
    entries: tuple[SlideEntry, ...]
    ignored_columns: tuple[str, ...] = ()
    """Columns of another program's list that have no equivalent in a manifest."""

    @property
    def notes(self) -> list[str]:
        """What was left unread or will be left out, in sentences: excluded slides, ignored columns."""
        notes = []
        excluded = len(self.entries) - len(self.included)
        if excluded:
            slides = counted(len(self.entries), "slide")
            are = counted(excluded, f"of {slides} is", f"of {slides} are")
            notes.append(f"{are} excluded by the column `exclude` of {self.path}.")
        if self.ignored_columns:
            named = ", ".join(f"{name!r:.80}" for name in self.ignored_columns[:MAX_SHOWN])
            more = f" and {len(self.ignored_columns) - MAX_SHOWN} more" if self.ignored_columns[MAX_SHOWN:] else ""
            notes.append(f"{self.path}: these columns mean nothing in a manifest and were ignored: {named}{more}.")
        return notes

    @property
    def included(self) -> tuple[SlideEntry, ...]:
        """Slides without a reason to exclude them."""
        return tuple(entry for entry in self.entries if not entry.exclude)

    def slide_path(self, entry: SlideEntry) -> Path:
        """Raises OutsideFoldersError: as `check_source`."""
        path = in_form_on_disk(self.path.parent, entry.path)
        check_source(path)
        return path

    def annotations_path(self, entry: SlideEntry) -> Path | None:
        """Raises OutsideFoldersError: as `check_source`."""
        path = in_form_on_disk(self.path.parent, entry.annotations) if entry.annotations else None
        if path is not None:
            check_source(path)
        return path


def load_cohort(path: Path) -> Cohort:
    """Read and check a manifest; a slide list of another program is read as one (`other_lists.py`).

    Raises:
        BadManifestError: missing, too large, not a text table (`spreadsheets.py`), an unknown column, two columns of
            one meaning, a bad value, or a duplicate slide_id.
        OutsideFoldersError: as `check_source`.
    """
    check_source(path)
    header, rows = with_header(path, read_rows(path, max_bytes=MAX_MANIFEST_BYTES))
    columns = _columns(path, header)
    is_ours = "path" in header
    entries = tuple(_entry(path, number, row, columns, is_ours) for number, row in rows)
    if not entries:
        raise BadManifestError(f"{path}: has no slides. Make a manifest with `gemslide cohort init FOLDER`.")
    twice = [slide_id for slide_id, count in Counter(e.slide_id for e in entries).items() if count > 1]
    if twice:
        more = f" and {len(twice) - MAX_SHOWN} more" if len(twice) > MAX_SHOWN else ""
        named = ", ".join(twice[:MAX_SHOWN])
        raise BadManifestError(f"{path}: slide_id {named}{more} is on more than one row. Make each one unique.")
    ignored = tuple(name for name in header if name and name not in columns)
    return Cohort(path=path, entries=entries, ignored_columns=ignored)


def _columns(path: Path, header: list[str]) -> dict[str, str]:
    """Our column for each of a table's; without those of another program's list that a manifest does not have."""
    other = list_of(header)
    if other is None:
        _check_columns(path, header)
        return {name: name for name in header if name}
    columns = {name: column for name in header if (column := other.column(name, COLUMNS))}
    for column, count in Counter(columns.values()).items():
        if count > 1:
            both = " and ".join(f"`{name:.200}`" for name in columns if columns[name] == column)
            raise BadManifestError(f"{path}: {both} of this {other.of} list both mean `{column}`. Keep one.")
    return columns


def _check_columns(path: Path, names: list[str]) -> None:
    if "path" not in names:
        raise BadManifestError(f"{path}: no column `path`; found {', '.join(names)[:200] or 'an empty file'}.")
    for name in filter(None, names):
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS, what="columns")
            raise BadManifestError(f"{path}: unknown column `{name:.200}`: {hint}.")


def _entry(path: Path, number: int, row: Mapping[str, str], columns: Mapping[str, str], is_ours: bool) -> SlideEntry:
    values = {columns[name]: text for name, text in row.items() if text and name in columns}
    wrong = [(name, text, why) for name, text in values.items() if (why := why_no_value(name, text))]
    if wrong:
        findings = "; ".join(f"`{name}` = {text!r:.200}: {why}" for name, text, why in wrong)
        raise BadManifestError(f"{path}, line {number}: {findings}.")
    if not is_ours and "\0" not in values.get("path", "\0"):
        values["path"] = find_slide_file(values["path"], path.parent)
    _refuse_totals(path, number, values)
    if "path" in values and "slide_id" not in values:
        values["slide_id"] = check_slide_id(slide_id_from(Path(values["path"])), where=f"{path.name}, line {number}")
    try:
        return SlideEntry.model_validate(values)
    except ValidationError as error:
        findings = "; ".join(_finding(detail) for detail in error.errors())
        raise BadManifestError(f"{path}, line {number}: {findings}.") from error


def _refuse_totals(path: Path, number: int, values: Mapping[str, str]) -> None:
    name = values.get("path", "")
    total = None if has_slide_suffix(name) or "\0" in name else total_in(values.values())
    is_slide = os.path.basename(name) == name != "" and os.path.lexists(in_form_on_disk(path.parent, name))
    if total is not None and not is_slide:
        raise BadManifestError(
            f"{path}, line {number}: {total!r:.200} looks like a row of totals, not like a slide. Delete the row; if "
            "it is a slide, write the whole name of its file under `path`."
        )


def _finding(detail: Mapping[str, Any]) -> str:
    value = "empty" if detail["type"] == "missing" else detail["input"]
    return f"`{'.'.join(map(str, detail['loc']))}` = {value!r:.200}: {message_of(detail)}"


def init_cohort(folder: Path, target: Path) -> Cohort:
    """Write a manifest of every slide file below a folder, with annotation files found beside the slides.

    Raises:
        BadManifestError: no slide files found, the manifest exists, or as `AnnotationFiles.beside`.
    """
    if os.path.lexists(target):
        raise BadManifestError(f"{target}: already exists; it may hold your edits. Delete it or choose another name.")
    if not folder.is_dir():
        raise BadManifestError(f"{folder}: is not a folder.")
    try:
        slides = find_slide_files(folder)
    except OSError as error:
        raise BadManifestError(
            f"{error.filename}: cannot be read ({error.strerror}). Check its permissions."
        ) from error
    if not slides:
        raise BadManifestError(f"{folder}: contains no slide files (looked for {', '.join(sorted(slide_suffixes()))}).")
    rows = [",".join(COLUMNS)]
    taken: set[str] = set()
    annotation_files = AnnotationFiles()
    for slide in slides:
        annotations = annotation_files.beside(slide.path)
        cells = dict.fromkeys(COLUMNS, "")
        cells["path"], cells["series"] = _as_cell(_relative(slide.path, target)), slide.series or ""
        cells["slide_id"] = _free_id(slide_id_from(slide.path), taken)
        cells["annotations"] = _as_cell(_relative(annotations, target)) if annotations else ""
        rows.append(",".join(_quoted(cells[column]) for column in COLUMNS))
    # File names can identify people: like a map of pseudonyms, only its owner may read the manifest.
    replace_file(target, ("\n".join(rows) + "\n").encode(), mode=0o600)
    return load_cohort(target)


def _free_id(stem: str, taken: set[str]) -> str:
    """A legal, unique slide_id close to a file's stem; it is added to `taken`."""
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", comparable(stem)).strip(".-")[:56] or "slide"
    base = f"slide-{base}" if is_missing(base) else base
    numbers = (f"{base}-{number}" for number in itertools.count(2))
    slide_id = next(name for name in itertools.chain([base], numbers) if name not in taken)
    taken.add(slide_id)
    return slide_id


def _relative(path: Path, manifest: Path) -> str:
    """Path from the manifest's folder, without resolving links, since a link's target may name a person."""
    typed = os.path.relpath(path.absolute(), manifest.parent.absolute())
    if os.path.exists(manifest.parent / typed) and os.path.samefile(manifest.parent / typed, path):
        return typed
    # `..` after a linked folder leads elsewhere: in this case only the file's own name is kept.
    return os.path.relpath(os.path.join(os.path.realpath(path.parent), path.name), os.path.realpath(manifest.parent))


def _as_cell(path: str) -> str:
    """A relative path in a form that is not taken for a formula, an error or a missing value ("=a.svs")."""
    return os.path.join(os.curdir, path) if is_altered(path) or why_no_value("path", path) else path


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',"\r\n') else cell
