"""Shards of pointers into the slide's files, in place of copies of its tiles."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

from pipeline.ingest.routes import LevelPlan
from pipeline.project import Project
from pipeline.slides.common.slide import EncodedLevel, NotCopied, Slide
from pipeline.slides.common.tile_places import TilePlaces
from pipeline.store.format.layout import MAX_TABLES_BYTES, LinkSpec
from pipeline.store.format.link_shard import OWN_FILE, RECORD, write_link_shard
from pipeline.store.format.metadata import Link
from pipeline.store.format.shard import FileChecksum
from pipeline.store.links.links_file import SourceFile
from pipeline.store.links.source import LinkedSource, OpenLink
from training.foundation.errors import BadRecipeError

ROUTE = "linked"


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

    @classmethod
    def at(cls, slide: Slide, project: Project, slide_id: str, *, is_verified: bool) -> Pointing:
        files = tuple(SourceFile.of(path) for path in slide.files)
        return cls(LinkedSource(slide_id, project.root, files), is_verified)

    @property
    def open_link(self) -> OpenLink:
        return OpenLink(self.source, self.shards)

    def about(self, plans: list[LevelPlan]) -> Link:
        """The root's attribute `link`."""
        linked = {index: plan.places for index, plan in enumerate(plans) if plan.places is not None}
        num_bytes = sum(int(places.counts.sum()) for places in linked.values())
        return Link(
            id=self.id, state="verified" if self.is_verified else "linked", bytes=num_bytes, levels=tuple(linked)
        )

    def write_shard(self, path: Path, key: str, rows: range, columns: range, plan: LevelPlan) -> FileChecksum | None:
        """Write where the chunks of one shard are; None if all are white.

        Args:
            key: its path below the image.
            rows, columns: of the level's tiles that it covers.

        Raises:
            CorruptTileError: a tile cannot become a chunk (only if every tile is read).
        """
        assert plan.encoded is not None  # or it has no pointers
        assert plan.places is not None
        n = plan.spec.shard_chunks
        records, own = np.zeros((n, n), RECORD), list[bytes]()
        inside = records[: len(rows), : len(columns)]
        _point(inside, plan.places, rows, columns)
        self._sum(inside, own, plan.encoded, plan.places, rows, columns)
        if not records["count"].any():
            return None
        written, self.shards[key] = write_link_shard(path, records, own)
        return written

    def _sum(
        self, inside: Any, own: list[bytes], encoded: EncodedLevel, places: TilePlaces, rows: range, columns: range
    ) -> None:
        """Add each chunk's CRC-32C; and tiles that are not the source's, as chunks of the shard's own."""
        for row in rows if self.is_verified else ():
            for column, stream in zip(columns, encoded.streams(row, columns), strict=True):
                chunk = b"".join(stream)
                record = inside[row - rows.start, column - columns.start]
                if not chunk:
                    record["offset"], record["count"] = 0, 0
                    continue
                if (row, column) in places.replaced:
                    record["offset"], record["count"], record["file"] = sum(map(len, own)), len(chunk), OWN_FILE
                    own.append(chunk)
                record["crc32c"], record["has_crc32c"] = google_crc32c.value(chunk), 1


def _point(inside: Any, places: TilePlaces, rows: range, columns: range) -> None:
    part = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    is_there = places.counts[part] > 0
    inside["count"] = places.counts[part]
    inside["offset"], inside["file"] = (np.where(is_there, of[part], 0) for of in (places.offsets, places.files))


def as_links(plans: list[LevelPlan], slide_id: str) -> list[LevelPlan]:
    """The plans, with encoded tiles pointed at. Reduced levels whose tiles cannot be are stored as usual.

    Raises:
        BadRecipeError: the tiles of the finest level cannot be pointed at.
        CorruptTileError: a tile is said to be outside its file.
    """
    linked = [_as_link(plan) for plan in plans]
    first = linked[0]
    if isinstance(first, NotCopied):
        raise BadRecipeError(f"slide {slide_id}: cannot be linked: {first.reason}. Ingest it without `--link`.")
    return [plan if isinstance(link, NotCopied) else link for plan, link in zip(plans, linked, strict=True)]


def _as_link(plan: LevelPlan) -> LevelPlan | NotCopied:
    if plan.encoded is None:
        return NotCopied((plan.about.gate and plan.about.gate.reason) or "its tiles are not stored as they are")
    places = plan.encoded.places()
    if isinstance(places, NotCopied):
        return places
    if len(places.rule.tables or b"") > MAX_TABLES_BYTES:
        return NotCopied("its tiles share too many JPEG tables")
    spec = replace(plan.spec, link=LinkSpec(places.rule.tables, places.rule.says_rgb, places.in_items))
    return replace(plan, about=plan.about.model_copy(update={"route": ROUTE}), spec=spec, places=places)
