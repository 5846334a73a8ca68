"""The tile table's columns are listed once: the checks and the docs follow from the list."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.errors import BadManifestError
from pipeline.tiles.schema import SCHEMA, as_markdown
from pipeline.tiles.table import METADATA_KEY, TileTable, read_table, write_table
from pipeline.tiles.table_checks import content_sha256
from tests.conftest import ROOT

SHA256 = "0" * 64


def small_table() -> TileTable:
    """Two tiles of different slides and splits, with different values wherever possible."""
    rows = [
        ("S-1", "P-1", 0, 64, 64, 64, 0.5, 0, 0.75, "a", 1.0, "train", 0.1, 0.2, 0.3, 0.4),
        ("S-2", None, 128, 0, 64, 64, 0.5, 1, 0.5, None, 0.0, None, None, None, None, None),
    ]
    frame = pd.DataFrame(rows, columns=[column.name for column in SCHEMA])
    of_slides = dict.fromkeys(("S-1", "S-2"))
    sources = {"S-1": SHA256, "S-2": "1" * 64}
    metadata = {"class_order": ["a", "b"], "settings": {}, "manifest_sha256": None, "sources": sources}
    return TileTable(frame, metadata | {"stride_px0": dict.fromkeys(of_slides, 64)})


def rewrite(path: Path, frame: pd.DataFrame, types: dict[str, pa.DataType] | None = None) -> None:
    """Rewrite a table as a careful forger would, with the right SHA-256."""
    arrow = pq.read_table(path)
    metadata = json.loads(arrow.schema.metadata[METADATA_KEY])
    fields = {field.name: field.type for field in arrow.schema} | (types or {})
    schema = pa.schema([(name, fields.get(name, pa.float32())) for name in frame.columns])
    table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
    metadata["content_sha256"] = content_sha256(table.to_pandas(), metadata)
    pq.write_table(table.replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()}), path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_table(tmp_path / "tiles.parquet", small_table())
    return tmp_path / "tiles.parquet"


def test_the_table_in_the_docs_is_made_of_the_list() -> None:
    assert as_markdown() in (ROOT / "docs/store.md").read_text(), "paste `pipeline.tiles.schema.as_markdown()`"


def test_a_table_without_an_optional_column_is_read(path: Path) -> None:
    optional = [column.name for column in SCHEMA if column.is_optional]
    assert len(optional) == 4
    whole = read_table(path).frame
    for left_out in ([optional[0]], optional[1:], optional):
        rewrite(path, whole.drop(columns=left_out))
        assert [name for name in whole.columns if name not in read_table(path).frame.columns] == left_out
        rewrite(path, whole)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="tissue"), "missing: tissue"),
        (lambda frame: frame.assign(more=1.0), "unknown: more"),
        (lambda frame: frame[[*frame.columns[1:], frame.columns[0]]], "in another order"),
    ],
)
def test_a_table_with_other_columns_is_refused_and_they_are_named(path: Path, change, words: str) -> None:
    rewrite(path, change(read_table(path).frame))

    with pytest.raises(BadManifestError, match=words):
        read_table(path)


def test_a_column_of_another_type_is_refused(path: Path) -> None:
    frame = read_table(path).frame
    rewrite(path, frame.assign(tissue=frame["tissue"].astype("float64")), {"tissue": pa.float64()})

    with pytest.raises(BadManifestError, match="of another type: tissue as double"):
        read_table(path)


OUTSIDE = [
    (column.name, value)
    for column in SCHEMA
    if column.low is not None and column.high is not None
    for value in (column.low - 1, column.high + 1)
    if not (column.name == "level" and value > 127)
]


@pytest.mark.parametrize(("name", "value"), [*OUTSIDE, ("split", "holdout"), ("label", "c"), ("slide_id", "S-3")])
def test_a_value_outside_its_column_s_range_is_refused(path: Path, name: str, value: object) -> None:
    frame = read_table(path).frame
    frame.loc[0, name] = value
    rewrite(path, frame)

    with pytest.raises(BadManifestError, match=f"an invalid {name} in [12] of 2 rows"):
        read_table(path)
