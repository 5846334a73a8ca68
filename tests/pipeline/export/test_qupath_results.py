"""Files for QuPath follow every rule of its reader (`QuPathTypeAdapters`) and match the array."""

import json
import tracemalloc
import uuid

import numpy as np
import pytest
import shapely

from pipeline.annotations.files import read_annotations
from pipeline.annotations.formats.geojson import COLOURS, classification, feature
from pipeline.export.common import cells
from pipeline.export.qupath.collection import read_collection
from pipeline.export.qupath.contours import cells_above, outlines, write_contours
from pipeline.export.qupath.predictions import _NAMESPACE, write_geojson
from pipeline.store.layers.overlays import Predictions
from tests.pipeline.export.predicted import NAMES, float32, made_predictions

SHA256 = "b" * 64


def keeps_the_rules(item):
    """Assert the conventions page, 5.2: the values that QuPath's reader requires, drops or throws on."""
    properties = item["properties"]
    colour = properties["classification"]["color"]
    assert set(item) == {"type", "id", "geometry", "properties"}, "objectType belongs into properties"
    assert item["type"] == "Feature"
    assert str(uuid.UUID(item["id"])) == item["id"]
    assert properties["objectType"] in ("tile", "annotation")
    assert properties["isLocked"] is True
    assert len(colour) == 3, "QuPath throws where there is no colour"
    assert all(isinstance(part, int) and 0 <= part <= 255 for part in colour)
    assert {"name", "names"} & set(properties["classification"])
    assert all(isinstance(value, int | float) for value in properties["measurements"].values())
    assert all(isinstance(value, str) for value in properties["metadata"].values())
    polygon = shapely.from_geojson(json.dumps(item["geometry"]))
    assert polygon.geom_type == "Polygon"
    assert shapely.is_valid(polygon), shapely.is_valid_reason(polygon)
    assert polygon.exterior.is_ccw
    return polygon


@pytest.mark.parametrize("num_cells", [512, 3])
def test_tiles_keep_every_rule_and_the_text_is_json_s_own(tmp_path, monkeypatch, num_cells):
    monkeypatch.setattr(cells, "_VALUES_PER_BLOCK", 1)
    monkeypatch.setattr(cells, "_MIN_CELLS", num_cells)
    made = made_predictions(stride_px0=100.5)
    write_geojson(tmp_path / "p.geojson", made, SHA256, origin_xy0=(40, 60))

    text = (tmp_path / "p.geojson").read_text(encoding="utf-8")
    features = json.loads(text)["features"]
    places = np.argwhere(np.isfinite(made.probabilities_cyx[0]))
    assert len({item["id"] for item in features}) == len(features) == len(places)
    for item, line, (row, column) in zip(features, text.splitlines()[1:-1], places, strict=True):
        polygon, values = keeps_the_rules(item), float32(made)[:, row, column]
        x, y = column * 100.5 - 40, row * 100.5 - 60
        assert polygon.equals(shapely.box(x, y, x + 100.5, y + 100.5))
        assert item == expected_tile(made, row, column, [x, y], values)
        assert line.rstrip(",") == json.dumps(item)


def expected_tile(made, row, column, corner, values):
    (x, y), side, best = corner, made.side_px0, int(values.argmax())
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return feature(
        {"type": "Polygon", "coordinates": [ring]},
        str(uuid.uuid5(_NAMESPACE, f"{SHA256}/{made.model_id}/{row}/{column}")),
        "tile",
        is_locked=True,
        classification=classification(NAMES[best], COLOURS[best]),
        measurements={f"prob_{name}": round(float(value), 4) for name, value in zip(NAMES, values, strict=True)},
        metadata={"slide_sha256": SHA256, "model": made.model_id},
    )


def test_tiles_are_streamed(tmp_path):
    """Twelve thousand tiles are seven megabytes on disk, and never in memory together."""
    made = made_predictions(110, 110)
    tracemalloc.start()
    write_geojson(tmp_path / "p.geojson", made, SHA256)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (tmp_path / "p.geojson").stat().st_size > 6.5e6
    assert peak_bytes < 4e6


def mask_of(*rows):
    return np.array([[letter == "#" for letter in row] for row in rows])


RING_IN_RING = mask_of("#######", "#.....#", "#.###.#", "#.#.#.#", "#.###.#", "#.....#", "#######")
TOUCHING = mask_of("##..", "##..", "..##", "..##")
HOLES_TOUCH = mask_of("#####", "#.###", "##.##", "#####", "####.")
OPEN_RING = mask_of("####", "#..#", "#.#.", "####")
RANDOM = np.random.default_rng(5).random((40, 60)) > 0.45


@pytest.mark.parametrize("mask", [RING_IN_RING, TOUCHING, HOLES_TOUCH, OPEN_RING, RANDOM, np.zeros((3, 4), bool)])
def test_outlines_are_valid_and_cover_exactly_their_cells(mask):
    polygons = outlines(mask)
    rows, columns = np.indices(mask.shape)

    assert all(shapely.is_valid(polygons))
    assert sum(polygon.area for polygon in polygons) == mask.sum()
    covered = np.zeros(mask.shape, int)
    for polygon in polygons:
        covered += shapely.contains_xy(polygon, columns + 0.5, rows + 0.5)
    assert np.array_equal(covered, mask)


def test_outlines_have_holes_and_only_the_corners_that_they_need():
    outer, inner = sorted(outlines(RING_IN_RING), key=lambda polygon: -polygon.area)

    assert [len(ring.coords) for ring in (outer.exterior, *outer.interiors)] == [5, 5]
    assert [len(ring.coords) for ring in (inner.exterior, *inner.interiors)] == [5, 5]
    assert len(outlines(TOUCHING)) == 2


def test_contours_keep_every_rule_and_measure_their_cells(tmp_path):
    made = made_predictions(30, 41, stride_px0=64.0)
    write_contours(tmp_path / "c.geojson", made, SHA256, NAMES[1:], mpp0=0.5, threshold=0.4, origin_xy0=(32, 16))

    features = list(read_collection(tmp_path / "c.geojson"))
    assert json.loads((tmp_path / "c.geojson").read_text(encoding="utf-8"))["features"] == features
    assert len({item["id"] for item in features}) == len(features) > 20
    for k, name in ((1, ["tumour", '"A", 50 %']), (2, None)):
        mask, values = cells_above(made, NAMES[k], 0.4), float32(made)[k]
        own = [f for f in features if f["properties"]["classification"].get("names") == name]
        centres = (np.argwhere(mask)[:, ::-1] + 0.5) * 64.0 - (32, 16)
        for item in own:
            polygon, measured = keeps_the_rules(item), item["properties"]["measurements"]
            inside = shapely.contains_xy(polygon, centres[:, 0], centres[:, 1])
            cells_inside = values[mask][inside]
            assert measured["max probability"] == round(float(cells_inside.max()), 4)
            assert measured["mean probability"] == pytest.approx(float(cells_inside.mean()), abs=6e-5)
            assert measured["area µm^2"] == inside.sum() * 32.0**2 == pytest.approx(polygon.area * 0.25)
        assert sum(f["properties"]["measurements"]["area µm^2"] for f in own) == mask.sum() * 32.0**2


def test_contours_are_read_as_annotations_of_their_classes(tmp_path):
    values = np.zeros((2, 6, 8), np.float16)
    values[1, 2:5, 3:7], values[1, 3, 5] = 0.75, 0.25
    made = Predictions("m", ("cold", "warm"), np.stack([1 - values[1], values[1]]), 10.0, 10.0, {})
    write_contours(tmp_path / "c.geojson", made, SHA256, ["warm"], mpp0=1.0, threshold=0.5)

    (drawn,) = read_annotations(tmp_path / "c.geojson").objects

    assert drawn.object_type == "annotation"


def test_a_collection_without_features_is_one(tmp_path):
    empty = Predictions("m", ("a", "b"), np.full((2, 3, 4), np.nan, np.float16), 10.0, 10.0, {})
    write_geojson(tmp_path / "p.geojson", empty, SHA256)
    write_contours(tmp_path / "c.geojson", empty, SHA256, ["b"], mpp0=1.0, threshold=0.5)

    for path in tmp_path.iterdir():
        assert json.loads(path.read_text()) == {"type": "FeatureCollection", "features": []}
        assert list(read_collection(path)) == []


@pytest.mark.parametrize(
    "change",
    [lambda t: t[:-40], lambda t: t.replace(b"[\n", b"[ \n", 1), lambda t: t[:-3] + b"}]}\n", lambda t: b""],
)
def test_a_collection_that_was_cut_or_changed_is_not_read_silently(tmp_path, change):
    path = tmp_path / "p.geojson"
    write_geojson(path, made_predictions(), SHA256)
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(ValueError, match=r"as written|cut short|JSON|Expecting|Unterminated"):
        list(read_collection(path))
