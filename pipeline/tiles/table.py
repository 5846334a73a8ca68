"""The tile table: one row per tile, Parquet, ordered by slide_id, y, x."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import BadManifestError, LeakageError
from pipeline.files import write_bytes_atomic
from pipeline.naming.models import check_tile_set
from pipeline.tiles.schema import ARROW_SCHEMA, differing_columns
from pipeline.tiles.table_checks import check_table, content_sha256, in_comparable_form
from training.foundation.errors import EmptyTableError
from training.foundation.reading import parse_json, read_regular
from training.foundation.tile_read import UNSTATED, TileRead

METADATA_KEY = b"gemslide"
MAX_BYTES, MAX_ROWS = 4 * 2**30, 10**8


@dataclass(frozen=True)
class TileTable:
    """Rows and the Parquet metadata."""

    frame: pd.DataFrame
    metadata: dict[str, Any]
    """class_order, stride_px0 (per slide), settings, manifest_sha256, sources and masks (SHA-256), annotations,
    quality, scanners, left_out, outlined, planes_um (of stacks)."""

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.metadata["class_order"])

    def plane_um(self, slide_id: str) -> float | None:
        """Height of the focal plane that a slide's tiles are read from; None if it has a single one."""
        height: float | None = self.metadata.get("planes_um", {}).get(slide_id)
        return height

    @property
    def read(self) -> TileRead:
        """Setting of the level that its tiles are read from."""
        read: TileRead = self.metadata["settings"].get("read", UNSTATED)
        return read


def write_table(path: Path, table: TileTable) -> None:
    """Write the table whole or not at all.

    Raises:
        EmptyTableError: there are no tiles.
    """
    if table.frame.empty:
        raise EmptyTableError(
            f"{path.name}: no tiles. No part of the slides counts as tissue at this tile size; "
            "check tile_px, mpp and min_tissue in the [tile] section, and the tissue mask in the viewer."
        )
    ordered = table.frame.sort_values(["slide_id", "y_px0", "x_px0"], kind="stable")
    arrow = pa.Table.from_pandas(ordered, schema=ARROW_SCHEMA, preserve_index=False)
    metadata = json.loads(json.dumps(table.metadata))
    metadata["content_sha256"] = content_sha256(arrow.to_pandas(), metadata)
    arrow = arrow.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    buffer = BytesIO()
    pq.write_table(arrow, buffer, compression="zstd")
    write_bytes_atomic(path, buffer.getvalue())


def read_table(path: Path) -> TileTable:
    """Read a tile table.

    Raises:
        EmptyTableError: no such table, or no rows.
        BadManifestError: not a tile table of this program, or changed since it was written.
        LeakageError: a slide or patient in two splits.
    """
    check_tile_set(path)
    try:
        file = pq.ParquetFile(BytesIO(read_regular(path, max_bytes=MAX_BYTES)))
        if file.metadata.num_rows > MAX_ROWS:
            raise ValueError(f"{file.metadata.num_rows} rows")
        arrow = file.read()
        arrow.validate(full=True)
        metadata = parse_json((arrow.schema.metadata or {})[METADATA_KEY])
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        raise BadManifestError(
            f"{path}: is not a gemslide tile table ({type(error).__name__}: {error!s:.300}). "
            "Make it with `gemslide tile`."
        ) from error
    if differing := differing_columns(arrow.schema):
        raise BadManifestError(
            f"{path}: its columns are not those of a tile table ({differing:.300}). Make it with `gemslide tile`."
        )
    if not arrow.num_rows:
        raise EmptyTableError(f"{path}: has no rows. Make it again with `gemslide tile`.")
    frame = arrow.to_pandas()
    check_table(str(path), frame, metadata)
    return TileTable(*in_comparable_form(frame, metadata))


def check_replaceable(path: Path, *, has_manifest: bool) -> None:
    """Refuse to replace a table with labels, patients and splits by one without.

    Raises:
        BadManifestError: it would be replaced, or the existing table cannot be read, so that nobody can tell.
    """
    if has_manifest or not path.exists():
        return
    try:
        old = read_table(path)
    except EmptyTableError:
        return
    except (BadManifestError, LeakageError) as error:
        raise BadManifestError(f"{error} Or delete it: it is not replaced without a manifest.") from error
    if old.metadata["manifest_sha256"] is not None:
        raise BadManifestError(
            f"{path}: was made with a manifest; its labels, patients and splits would be lost. Give the manifest, or "
            "choose another name with --tile-set."
        )
