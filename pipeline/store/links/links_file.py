"""`links.json` of a project: where its linked stores find the slides' files.

Paths name patients more often than not, so no store holds them. The file is its owner's alone (mode 600). An entry
also pins the pointers: a store from someone else cannot point at a slide's label with it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.files import SHORT_WRITE_S, explain_unwritable, lock_temporary, replace_file
from pipeline.project import Project, slide_id_of
from pipeline.store.format.metadata import first_finding
from training.foundation.errors import UnreadableError
from training.foundation.reading import MAX_JSON_BYTES, read_regular
from training.foundation.words.names import NAME_PATTERN

_OTHERS = 0o077
LINK_AGAIN = "Ingest the slide again, with or without `--link`."
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LinkId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Number = Annotated[int, Field(ge=0, lt=2**64)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class SourceFile(_Strict):
    """A file of a slide, and how to tell that it is still the same."""

    path: str = Field(max_length=4096)
    bytes: Number
    mtime_ns: int
    inode: Number

    @field_validator("path")
    @classmethod
    def is_absolute(cls, path: str) -> str:
        if not os.path.isabs(path) or "\0" in path:
            raise ValueError("not an absolute path")
        return path

    @classmethod
    def of(cls, path: Path) -> SourceFile:
        """A file as it is now. Raises OSError, and UnreadableError: its name is not Unicode."""
        absolute = os.path.abspath(path)
        try:
            absolute.encode()
        except UnicodeEncodeError as error:
            raise UnreadableError(
                f"{path.name!a}: its path is not Unicode, and cannot be linked. Rename it."
            ) from error
        status = os.stat(absolute)
        return cls(path=absolute, bytes=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)

    def is_as(self, status: os.stat_result) -> bool:
        return (status.st_size, status.st_mtime_ns, status.st_ino) == (self.bytes, self.mtime_ns, self.inode)


class LinkEntry(_Strict):
    """What one linked store points at."""

    slide_id: str = Field(pattern=NAME_PATTERN)
    opened_as: str = Field(max_length=4096)
    """Path by which the slide was opened: a file, or a folder of files."""
    series: str | None = Field(None, max_length=200)
    """The slide in it, as it was requested."""
    mpp_manifest: float | None = None
    mpp_option: float | None = None
    """Microns per level-0 pixel, as the manifest and the command line gave them."""
    files: tuple[SourceFile, ...] = Field(min_length=1, max_length=2**14, strict=False)
    pointers_sha256: Sha256
    """Of the store's list of its shards' hashes, so that no other pointers are followed than those written here."""


class _LinksFile(_Strict):
    version: Literal[1] = 1
    links: dict[LinkId, LinkEntry] = {}


def project_of(store: Path) -> Project:
    """The project that a store lies in: the folder above `slides/`."""
    return Project(Path(os.path.abspath(store)).parents[1])


def read_link(store: Path, link_id: str) -> LinkEntry:
    """What a linked store points at.

    Raises:
        UnreadableError: its project has no such entry, or its `links.json` is damaged or not its owner's alone.
    """
    path = project_of(store).links_path
    try:
        entry = _read(path).links.get(link_id)
    except FileNotFoundError:
        entry = None
    if entry is None or entry.slide_id != slide_id_of(store):
        raise UnreadableError(
            f"{store}: is linked to a slide's file, and {path} does not say to which: the store was copied from "
            f"another project, or that file was lost. {LINK_AGAIN}"
        )
    return entry


def add_link(store: Path, link_id: str, entry: LinkEntry) -> None:
    """Write an entry, before its store appears. Raises LockedError, DiskFullError, UnreadableError."""
    _update(store, lambda links: {**links, link_id: entry})


def keep_only(store: Path, link_id: str | None) -> None:
    """Drop all other entries of a store's slide; None: all. Raises as `add_link`."""
    slide_id = slide_id_of(store)

    def others_dropped(links: Mapping[str, LinkEntry]) -> dict[str, LinkEntry]:
        return {one: entry for one, entry in links.items() if one == link_id or entry.slide_id != slide_id}

    if project_of(store).links_path.exists():
        _update(store, others_dropped)


def _update(store: Path, change: Callable[[Mapping[str, LinkEntry]], dict[str, LinkEntry]]) -> None:
    path = project_of(store).links_path
    with explain_unwritable(path), _locked(path):
        try:
            links: Mapping[str, LinkEntry] = _read(path).links
        except FileNotFoundError:
            links = {}
        changed = change(links)
        if changed != links:
            replace_file(path, _LinksFile(links=changed).model_dump_json().encode(), mode=0o600)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One writer at a time."""
    lock = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = lock_temporary(lock, path, lambda: os.open(lock, flags, 0o600), wait_s=SHORT_WRITE_S)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(lock)
        os.close(descriptor)


def _read(path: Path) -> _LinksFile:
    """Raises FileNotFoundError, UnreadableError."""
    status = os.stat(path)
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OTHERS:
        raise UnreadableError(
            f"{path}: has mode {mode:o}, so others can read or change where slides are. Review it, then run: "
            f"chmod 600 {path}"
        )
    return _parsed(path, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _parsed(path: Path, *_identity: int) -> _LinksFile:
    try:
        return _LinksFile.model_validate_json(read_regular(path, max_bytes=MAX_JSON_BYTES))
    except FileNotFoundError:
        raise
    except ValidationError as error:
        raise UnreadableError(f"{path}: is damaged ({first_finding(error)}). {LINK_AGAIN}") from error
    except OSError as error:
        raise UnreadableError(
            f"{path}: cannot be read ({error.strerror}). It belongs to the user who linked the slides."
        ) from error
