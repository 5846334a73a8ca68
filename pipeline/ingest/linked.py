"""Linked stores: a slide can be viewed before it is copied, and worked on once it was compared with its file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import (
    ChangedSourceError,
    CorruptTileError,
    NotBrightfieldRgbError,
    UnverifiedLinkError,
)
from pipeline.files import new_folder, remove, sha256_of, sha256_of_files
from pipeline.ingest.ingest import (
    IngestReport,
    IngestRequest,
    check_same_files,
    ingest_slide,
    is_unverified,
    opened,
    report_of,
)
from pipeline.ingest.link.pointers import Pointing
from pipeline.ingest.writing import write_compared, write_first_appearance
from pipeline.project import Project, check_slide_id
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.level_content import few_places
from pipeline.slides.registry import open_slide
from pipeline.store.format.layout import POINTERS
from pipeline.store.format.metadata import SlideAttributes, first_finding
from pipeline.store.format.root import read_root
from pipeline.store.links.links_file import (
    LINK_AGAIN,
    LinkEntry,
    SourceFile,
    add_link,
    keep_only,
    project_of,
    read_link,
)
from pipeline.store.links.source import open_link
from training.foundation.errors import BadRecipeError, DecompressionBombError, LockedError, UnreadableError
from training.foundation.progress import Advance, no_bar

_NOT_TO_BE_SHOWN = (
    CorruptTileError,
    ChangedSourceError,
    NotBrightfieldRgbError,
    DecompressionBombError,
    BadRecipeError,
)
"""Errors of the slide itself: what its first appearance shows cannot be trusted."""


def appear(request: IngestRequest, project: Project, config: IngestConfig, *, advance: Advance = no_bar) -> bool:
    """Make a store that points at a slide's tiles, to be viewed at once. Returns False if there is a store already.

    Raises:
        MissingMppError, UnreadableError, CorruptTileError, NotBrightfieldRgbError, DecompressionBombError: the slide.
        BadRecipeError: its tiles cannot be pointed at. LockedError, DiskFullError: the target.
    """
    slide_id = check_slide_id(request.slide_id, where=request.path.name)
    store = project.store_path(slide_id)
    if store.exists():
        return False
    with few_places(), opened(request, config, slide_id) as (slide, mpp):
        pointing = Pointing.at(slide, project, slide_id, is_verified=False)
        with new_folder(store) as folder:
            if store.exists():
                raise LockedError(f"{store.name}: another process has just finished it. Run again to check it.")
            write_first_appearance(folder, slide, slide_id, config, mpp, advance, pointing)
            add_link(store, pointing.id, _entry(request, pointing, folder))
    keep_only(store, pointing.id)
    return True


def ingest_linked(
    request: IngestRequest, project: Project, config: IngestConfig, *, advance: Advance = no_bar
) -> IngestReport:
    """Link a slide and compare it with its file; a finished store of the same bytes, linked or full, is kept.

    Raises:
        As `appear`, `verify_link` and `ingest_slide`.
    """
    store = project.store_path(check_slide_id(request.slide_id, where=request.path.name))
    appear(request, project, config, advance=advance)
    attributes = read_root(store)
    link = attributes.link
    if link is None or not attributes.is_unverified:
        keep_only(store, link.id if link else None)  # a run that was killed leaves entries of stores that it replaced
        return ingest_slide(request, project, config, fill=False, advance=advance)
    entry = read_link(store, link.id)
    if (entry.opened_as, entry.series) != (os.path.abspath(request.path), request.series):
        with open_slide(request.path, request.series) as slide:
            check_same_files(store, slide.files)
    return verify_link(store, advance=advance)


def verify_link(store: Path, *, advance: Advance = no_bar) -> IngestReport:
    """Compare an unverified store with its slide as ingest does, and complete it: mask, checksums, SHA-256.

    If the slide turns out not to be what its first appearance showed, the store is withdrawn.

    Raises:
        SourceGoneError, ChangedSourceError, CorruptTileError, UnreadableError: the slide's file.
        LockedError, DiskFullError: the target.
    """
    start = time.perf_counter()
    attributes = read_root(store)
    assert attributes.link is not None  # callers have checked that it is unverified
    slide_id, entry = attributes.slide_id, read_link(store, attributes.link.id)
    open_link(store, attributes.link.id)  # compares the files with what they were
    config, request = _settings(store, attributes), _request(attributes, entry)
    with _withdrawing(store), opened(request, config, slide_id) as (slide, mpp):
        check_same_files(store, slide.files)
        pointing = Pointing.at(slide, project_of(store), slide_id, is_verified=True)
        with new_folder(store, before_swap=lambda: _check_unverified(store)) as folder:
            written = write_compared(folder, slide, slide_id, config, mpp, advance, pointing)
            add_link(store, pointing.id, _entry(request, pointing, folder))
    keep_only(store, pointing.id)
    return report_of(slide_id, store, written, start)


def _entry(request: IngestRequest, pointing: Pointing, folder: Path) -> LinkEntry:
    """What `links.json` says of a store that is complete in `folder`."""
    return LinkEntry(
        slide_id=request.slide_id,
        opened_as=os.path.abspath(request.path),
        series=request.series,
        mpp_manifest=request.mpp_manifest,
        mpp_option=request.mpp_option,
        files=pointing.source.files,
        pointers_sha256=sha256_of(folder / POINTERS),
    )


def _check_unverified(store: Path) -> None:
    if not store.exists() or not is_unverified(store):
        raise LockedError(f"{store.name}: another process has just verified, replaced or withdrawn it.")


@contextmanager
def _withdrawing(store: Path) -> Iterator[None]:
    """Remove a store whose slide is not what it showed."""
    try:
        yield
    except _NOT_TO_BE_SHOWN as error:
        hidden = store.with_name(f".{store.name}.withdrawn.partial")
        remove(hidden)
        store.rename(hidden)
        remove(hidden)
        keep_only(store, None)
        raise type(error)(f"{error} The linked store was withdrawn.") from error


def _settings(store: Path, attributes: SlideAttributes) -> IngestConfig:
    try:
        return IngestConfig.model_validate(attributes.ingest.get("settings"))
    except ValidationError as error:
        raise UnreadableError(f"{store}: its settings are damaged ({first_finding(error)}). {LINK_AGAIN}") from error


def _request(attributes: SlideAttributes, entry: LinkEntry) -> IngestRequest:
    """The request that the store was linked by."""
    return IngestRequest(
        Path(entry.opened_as), attributes.slide_id, entry.mpp_manifest, entry.mpp_option, series=entry.series
    )


def relink(store: Path, source: Path, series: str | None) -> None:
    """Point a verified store at another copy of its slide's file.

    Raises:
        UnverifiedLinkError: nothing is known of the file that it was linked to.
        ChangedSourceError: another file. UnreadableError: it cannot be opened.
    """
    attributes = read_root(store)
    assert attributes.link is not None  # callers have checked
    if attributes.source.sha256 is None:
        raise UnverifiedLinkError(
            f"slide {attributes.slide_id}: is linked and was never verified, so whether {source.name} is the same file "
            "cannot be told. Delete the store and ingest the slide again."
        )
    entry = read_link(store, attributes.link.id)
    with open_slide(source, series or entry.series) as slide:
        sha256 = sha256_of_files(slide.files)
        if sha256 != attributes.source.sha256:
            raise ChangedSourceError(
                f"{store}: is linked to SHA-256 {attributes.source.sha256[:12]}…, but {source.name} has "
                f"{sha256[:12]}…. Name a copy of the same file."
            )
        files = tuple(SourceFile.of(path) for path in slide.files)
    moved = entry.model_copy(update={"files": files, "opened_as": os.path.abspath(source)})
    add_link(store, attributes.link.id, moved)


def verify_linked(
    store: Path, source: Path | None, series: str | None, check: Callable[[Path, str | None], str]
) -> str:
    """Verify a linked store, with its slide. Returns a description of what was checked.

    Args:
        source: another copy of the slide, at which the store shall point from now on.
        check: compares a finished store with a slide (its path and series).

    Raises:
        As `relink`, `verify_link` and `check`.
    """
    if source is not None:
        relink(store, source, series)
    attributes = read_root(store)
    assert attributes.link is not None  # callers have checked
    if attributes.is_unverified:
        report = verify_link(store)
        return f"compared with the scanner's file for the first time; tissue {report.tissue_fraction:.1%}"
    entry = read_link(store, attributes.link.id)
    return check(Path(entry.opened_as), entry.series) + ", where it is linked to"
