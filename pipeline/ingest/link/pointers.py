"""Shards of pointers into the slide's files, in place of copies of its tiles."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from pipeline.codecs.types import Stream
from pipeline.files import write_text_atomic
from pipeline.project import Project
from pipeline.slides.common.slide import Slide
from pipeline.slides.common.tile_places import Position, TilePlaces
from pipeline.store.format.layout import POINTERS
from pipeline.store.format.link_shard import OWN_FILE, RECORD, write_link_shard
from pipeline.store.format.metadata import Link
from pipeline.store.format.shard import FileChecksum
from pipeline.store.links.links_file import SourceFile
from pipeline.store.links.source import LinkedSource, OpenLink

_FLUSHED_AT_ONCE = 8


@dataclass(frozen=True)
class Pointing:
    """One linked store under construction.

    Args:
        is_verified: whether every tile is read and summed, as it is when the store is compared with its slide.
    """

    source: LinkedSource
    is_verified: bool
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    shards: dict[str, str] = field(default_factory=dict)
    """SHA-256 of the records of each shard written, by its path below the image."""
    _written: list[Path] = field(default_factory=list)

    @classmethod
    def at(cls, slide: Slide, project: Project, slide_id: str, *, is_verified: bool) -> Pointing:
        files = tuple(SourceFile.of(path) for path in slide.files)
        return cls(LinkedSource(slide_id, project.root, files), is_verified)

    @property
    def open_link(self) -> OpenLink:
        return OpenLink(self.source, self.shards)

    def write_list(self, store: Path) -> None:
        """Write the list of the shards' hashes, once all shards are written, and make sure that these are on disk.

        Flushed together, hundreds of small files take less time than one by one. Those of a store
        that is to be viewed at once are not: one that a power cut damages is refused by its hash, and `gemslide verify`
        writes it anew.
        """
        if self.is_verified:
            with ThreadPoolExecutor(_FLUSHED_AT_ONCE) as pool:
                list(pool.map(_flush, self._written))
        write_text_atomic(store / POINTERS, json.dumps(dict(sorted(self.shards.items())), indent=1))

    def about(self, levels: Mapping[int, TilePlaces]) -> Link:
        """The root's attribute `link`.

        Args:
            levels: those that are pointed at.
        """
        num_bytes = sum(int(places.counts.sum()) for places in levels.values())
        return Link(
            id=self.id, state="verified" if self.is_verified else "linked", bytes=num_bytes, levels=tuple(levels)
        )

    def write_shard(
        self, path: Path, key: str, part: tuple[range, range], places: TilePlaces, side: int, chunks: Iterable[Stream]
    ) -> FileChecksum | None:
        """Write where the chunks of one shard are; None if all are white.

        Args:
            key: its path below the image.
            part: rows and columns of the level's tiles that it covers.
            side: chunks along its side.
            chunks: all of them, in C order; consumed only if every tile is read.

        Raises:
            CorruptTileError: a tile cannot become a chunk (only if every tile is read).
        """
        (rows, columns), own = part, list[bytes]()
        records = np.zeros((side, side), RECORD)
        _point(records[: len(rows), : len(columns)], places, rows, columns)
        if self.is_verified:
            replaced = {(row - rows.start, column - columns.start) for row, column in places.replaced}
            _sum(records, own, replaced, chunks)
        if not records["count"].any():
            return None
        written, self.shards[key] = write_link_shard(path, records, own)
        self._written.append(path)
        return written


def _sum(records: Any, own: list[bytes], replaced: Collection[Position], chunks: Iterable[Stream]) -> None:
    """Add each chunk's CRC-32C; and tiles that are not the source's, as chunks of the shard's own.

    Args:
        replaced: rows and columns of the latter in the shard.
    """
    for index, stream in enumerate(chunks):
        chunk = b"".join(stream)
        position = divmod(index, len(records))
        record = records[position]
        if not chunk:
            record["offset"], record["count"] = 0, 0
            continue
        if position in replaced:
            record["offset"], record["count"], record["file"] = sum(map(len, own)), len(chunk), OWN_FILE
            own.append(chunk)
        record["crc32c"], record["has_crc32c"] = google_crc32c.value(chunk), 1


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _point(inside: Any, places: TilePlaces, rows: range, columns: range) -> None:
    part = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    is_there = places.counts[part] > 0
    inside["count"] = places.counts[part]
    inside["offset"], inside["file"] = (np.where(is_there, of[part], 0) for of in (places.offsets, places.files))
