"""The slide's files that a linked store points at: opened once, compared with what they were, read by position."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pipeline.errors import ChangedSourceError, OutsideFoldersError, SourceGoneError
from pipeline.places.byte_source import FileBytes
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import slide_id_of
from pipeline.settings.site import SLIDES_VARIABLE, is_confined, is_within, link_folders, slide_folders
from pipeline.store.format.inside import check_inside
from pipeline.store.format.layout import POINTERS
from pipeline.store.links.links_file import LINK_AGAIN, SourceFile, project_of, read_link
from training.foundation.errors import UnreadableError
from training.foundation.reading import MAX_JSON_BYTES, parse_json, read_regular

MAX_OPEN_FILES = 64
"""In the whole process."""


@dataclass(frozen=True)
class LinkedSource:
    """A slide's files. Safe in threads, forked workers, and pickled. Its errors name the slide, never a file."""

    slide_id: str
    root: Path
    """The project's folder."""
    files: tuple[SourceFile, ...]

    def check(self) -> None:
        """Compare every file with what it was.

        Raises:
            SourceGoneError, ChangedSourceError, UnreadableError: it is not there, another one, or cannot be read.
            OutsideFoldersError: in the web app, it is in no folder that the installation allows.
        """
        for file in self.files:
            try:
                self._compare(file, os.stat(file.path))
            except OSError as error:
                raise self._explained(error) from error
        if is_confined():
            allowed = (str(self.root), *slide_folders(), *link_folders(self.root))
            if not all(is_within(file.path, allowed) for file in self.files):
                raise OutsideFoldersError(
                    f"slide {self.slide_id}: its store is linked to a file outside the folders that this installation "
                    f"allows. If you linked it yourself, name the file's folder in {SLIDES_VARIABLE} or in the site "
                    "file (docs/how_to/operating.md)."
                )

    def read(self, file: int, offset: int, count: int) -> bytes:
        """Bytes of one of the files; fewer at its end.

        Raises:
            SourceGoneError, ChangedSourceError, UnreadableError: it was changed since, or cannot be read.
        """
        try:
            opened = _opened(self.files[file])  # held until it is read: two threads can open one, and one is not cached
            self._compare(self.files[file], opened.status())
            return opened.read(offset, count)
        except OSError as error:
            raise self._explained(error) from error

    def _compare(self, file: SourceFile, status: os.stat_result) -> None:
        if not file.is_as(status):
            raise ChangedSourceError(
                f"slide {self.slide_id}: the file that its store points at is not what it was (its length, time or "
                "inode changed). If it was copied or restored, run `gemslide verify` with `--source FILE`; if it is "
                "another scan, give it another slide_id."
            )

    def _explained(self, error: OSError) -> UnreadableError | SourceGoneError:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return SourceGoneError(
                f"slide {self.slide_id}: the file that its store points at is not where it was. Mount its disk, or "
                f"name its new place: gemslide verify {self.slide_id} --source FILE."
            )
        return UnreadableError(
            f"slide {self.slide_id}: the file that its store points at cannot be read ({error.strerror}). Check its "
            "disk and its permissions."
        )


@lru_cache(maxsize=MAX_OPEN_FILES)
def _opened(file: SourceFile) -> FileBytes:
    return FileBytes(file.path)


@dataclass(frozen=True)
class OpenLink:
    """What the arrays of a linked store need besides their own files."""

    source: LinkedSource
    shards: Mapping[str, str]
    """SHA-256 of each shard's records, by its path below the image. One that is not named here is white."""


def open_link(store: StorePath, link_id: str) -> OpenLink:
    """Find and compare the files that a store points at.

    Raises:
        UnreadableError: as `read_link`; and as `LinkedSource.check`; or the store is in a bucket.
    """
    if isinstance(store, ObjectPath):
        raise UnreadableError(
            f"{store}: is linked to a slide's file, and holds no tiles. Copy a full store into the bucket: ingest the "
            "slide without `--link`."
        )
    entry = read_link(store, link_id)
    shards = _shards(store, entry.pointers_sha256)
    source = LinkedSource(slide_id_of(store), project_of(store).root, entry.files)
    source.check()
    return OpenLink(source, shards)


def _shards(store: Path, sha256: str) -> dict[str, str]:
    """The hashes of a store's shards. Raises UnreadableError: they are not those that were written."""
    path = store / POINTERS
    check_inside(path, os.path.realpath(store))
    try:
        content = read_regular(path, max_bytes=MAX_JSON_BYTES)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read ({error.strerror}). {LINK_AGAIN}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UnreadableError(f"{path}: is not the list that was written when the slide was linked. {LINK_AGAIN}")
    return dict(parse_json(content))
