"""CSV and Parquet hold every predicted tile at its position, to the precision stated on the page on results."""

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline.export.common import cells
from pipeline.export.csv.parquet import write_parquet
from pipeline.export.csv.predictions import write_csv
from pipeline.store.layers.overlays import Predictions
from tests.pipeline.export.predicted import NAMES, float32, made_predictions

COLUMNS = ["slide_id", "minx", "miny", "width", "height", *(f"prob_{name}" for name in NAMES)]


@pytest.fixture(params=[512, 2], ids=["one block", "blocks of two cells"])
def in_blocks(request, monkeypatch):
    monkeypatch.setattr(cells, "_VALUES_PER_BLOCK", 1)
    monkeypatch.setattr(cells, "_MIN_CELLS", request.param)


def test_the_csv_has_a_row_per_predicted_tile_with_four_decimals(tmp_path, in_blocks):
    made = made_predictions(stride_px0=100.6)
    write_csv(tmp_path / "p.csv", "S-1", made)

    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as stream:
        header, *rows = list(csv.reader(stream))
    places = np.argwhere(np.isfinite(made.probabilities_cyx[0]))
    assert header == COLUMNS
    assert [row[:5] for row in rows] == [
        ["S-1", str(round(column * 100.6)), str(round(row * 100.6)), "101", "101"] for row, column in places
    ]
    assert [row[5:] for row in rows] == [
        [f"{value:.4f}" for value in float32(made)[:, row, column]] for row, column in places
    ]


def test_the_parquet_has_the_array_s_own_numbers_and_says_whose_they_are(tmp_path, in_blocks):
    made = made_predictions()
    write_parquet(tmp_path / "p.parquet", "S-1", "a" * 64, made)

    table = pq.read_table(tmp_path / "p.parquet")
    attributes = json.loads(table.schema.metadata[b"gemslide"])
    rows, columns = np.nonzero(np.isfinite(made.probabilities_cyx[0]))
    assert table.column_names == COLUMNS
    assert set(table["slide_id"].to_pylist()) == {"S-1"}
    assert np.array_equal(table["minx"].to_numpy(), columns * 128)
    assert np.array_equal(table["miny"].to_numpy(), rows * 128)
    for k, name in enumerate(NAMES):
        assert np.array_equal(table[f"prob_{name}"].to_numpy(), float32(made)[k, rows, columns])
    assert (attributes["model"], attributes["source_sha256"]) == (made.model_id, "a" * 64)
    assert (attributes["coords_convention"], attributes["class_names"]) == ("level0_xy", list(NAMES))
    assert attributes["research_use"] == "Research use only. Not for diagnosis."


def test_a_slide_without_a_predicted_tile_gives_tables_without_rows(tmp_path):
    empty = Predictions("m", ("a", "b"), np.full((2, 3, 4), np.nan, np.float16), 10.0, 10.0, {})
    write_csv(tmp_path / "p.csv", "S-1", empty)
    write_parquet(tmp_path / "p.parquet", "S-1", "a" * 64, empty)

    assert (tmp_path / "p.csv").read_text() == "slide_id,minx,miny,width,height,prob_a,prob_b\n"
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 0


def test_a_fingerprint_changes_with_every_value_and_not_with_the_kind_of_nan():
    made = made_predictions()
    bits = made.probabilities_cyx.copy().view(np.uint16)
    bits[:, 0] = 0xFE01  # another NaN
    other_nan = Predictions(made.model_id, made.class_names, bits.view(np.float16), 128.0, 128.0, {})
    bits = made.probabilities_cyx.copy().view(np.uint16)
    bits[2, 6, 9] ^= 1
    other_value = Predictions(made.model_id, made.class_names, bits.view(np.float16), 128.0, 128.0, {})

    assert cells.fingerprint(made) == cells.fingerprint(other_nan) != cells.fingerprint(other_value)
