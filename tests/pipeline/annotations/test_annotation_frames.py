"""A known drawing over a known image: tile labels equal the painted pixels, by both rules and from every format."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import shapely
from scipy.ndimage import gaussian_filter
from shapely.geometry import box

from pipeline.annotations.files import write_annotations
from pipeline.annotations.shapes.objects import AnnotationFile, AnnotationObject
from pipeline.box import Box
from pipeline.cohort.manifest import load_cohort
from pipeline.files import sha256_of
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.make import MPP0, ingest, write_pyramid

WIDTH_PX0, HEIGHT_PX0 = 690, 470
TILE_PX = 21  # odd, so that a tile's centre is inside a pixel
CLASSES = ("cold", "warm")
COLORS = np.array([[245, 245, 245], [90, 90, 200], [200, 80, 60]], np.uint8)


def painted():
    """(y, x) of 0 glass, 1 cold, 2 warm: blots with holes and islands, every tile different."""
    field = gaussian_filter(np.random.default_rng(5).standard_normal((2, HEIGHT_PX0, WIDTH_PX0)), (0, 14, 14))
    field /= field.std()
    return np.where(field[0] > 0.3, 1, np.where(field[1] > 0.4, 2, 0))


def outline(mask):
    """Exact outline of the pixels of a mask, in level-0 pixels."""
    padded = np.pad(mask, ((0, 0), (1, 1))).astype(int)
    runs = []
    for y, row in enumerate(np.diff(padded, axis=1)):
        for start, end in zip(np.flatnonzero(row == 1), np.flatnonzero(row == -1), strict=True):
            runs.append(box(start, y, end, y + 1))
    return shapely.union_all(runs)


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    """(project, mask): a slide painted with the mask."""
    folder, mask = tmp_path_factory.mktemp("frames"), painted()
    path = write_pyramid(folder / "slide.tiff", [COLORS[mask]], compression="deflate")
    ingest(path, folder / "p")
    return Project(folder / "p"), mask


def tile_table(project, annotations, label_by, **more):
    manifest = annotations.with_suffix(".csv")
    manifest.write_text(f"path,slide_id,annotations\nslide.tiff,S-1,{annotations.name}\n")
    config = TileConfig(
        tile_px=TILE_PX,
        mpp=MPP0,
        min_tissue=0,
        classes=CLASSES,
        label_by=label_by,
        split={"train": 0, "val": 0},
        **more,
    )
    return make_tile_table(project, f"{annotations.stem}-{label_by}", config, cohort=load_cohort(manifest))


def squares(mask, frame):
    return [mask[y : y + TILE_PX, x : x + TILE_PX] for x, y in zip(frame.x_px0, frame.y_px0, strict=True)]


@pytest.mark.parametrize("to", ["qupath", "asap", "imagescope"])
def test_tile_labels_equal_the_painted_pixels_by_area_and_by_centre(slide, tmp_path, to):
    project, mask = slide
    shapes = tuple(AnnotationObject(outline(mask == number), "", name) for number, name in enumerate(CLASSES, start=1))
    assert any(part.interiors for shape in shapes for part in shape.geometry.geoms)
    annotations = tmp_path / f"drawing-{to}.xml"
    write_annotations(annotations, AnnotationFile("qupath", shapes), to)

    by_area = tile_table(project, annotations, "area").frame
    by_centre = tile_table(project, annotations, "centre").frame

    tiles = squares(mask, by_area)
    assert len(tiles) == (WIDTH_PX0 // TILE_PX) * (HEIGHT_PX0 // TILE_PX)
    shares = np.array([[(tile == 1).mean(), (tile == 2).mean()] for tile in tiles])
    best = shares.argmax(1)
    expected = [CLASSES[b] if share[b] >= 0.5 else "none" for b, share in zip(best, shares, strict=True)]
    assert by_area["label"].fillna("none").tolist() == expected
    assert set(expected) == {"none", *CLASSES}
    assert by_area["label_fraction"].to_numpy() == pytest.approx(shares.max(1), abs=1e-6)

    centres = [tile[TILE_PX // 2, TILE_PX // 2] for tile in tiles]
    assert by_centre["label"].fillna("none").tolist() == [CLASSES[c - 1] if c else "none" for c in centres]


def test_the_painted_pixels_stand_in_the_store_where_the_tiles_are(slide):
    project, mask = slide
    reader = StoreReader(project.store_path("S-1"))

    for x, y in ((0, 0), (5 * TILE_PX, 3 * TILE_PX), (30 * TILE_PX, 20 * TILE_PX)):
        pixels = reader.read_region(0, Box(x, y, TILE_PX, TILE_PX))
        assert (pixels == COLORS[mask[y : y + TILE_PX, x : x + TILE_PX]]).all()


def test_the_tile_table_says_what_was_repaired_and_names_no_file(slide, tmp_path):
    project, _ = slide
    bow = shapely.Polygon([(0, 0), (200, 200), (200, 0), (0, 200)])
    line = shapely.Polygon([(0, 0), (200, 200), (100, 100)])
    drawn = tuple(AnnotationObject(shape, "", "warm") for shape in (bow, line, box(300, 100, 400, 300)))
    annotations = tmp_path / "JANE-DOE.xml"
    write_annotations(annotations, AnnotationFile("imagescope", drawn), "imagescope")

    table = tile_table(project, annotations, "area")

    assert table.metadata["annotations"] == {
        "S-1": {
            "format": "imagescope", "moved_xy0": (0, 0), "sha256": sha256_of(annotations), "regions": 2, "repaired": 1,
            "dropped": 1, "unused": 0, "area_px0": 40_000.0, "added_px0": 20_000.0, "removed_px0": 0,
        }
    }  # fmt: skip
    stored = pq.read_table(project.tile_table_path("JANE-DOE-area")).schema.metadata[b"gemslide"]
    assert b"JANE" not in stored


@pytest.mark.parametrize(
    ("to", "counts_from", "origin_xy0"),
    [("qupath", "scanned", (42, 63)), ("qupath", "slide", (0, 0)), ("asap", "scanned", (0, 0))],
)
def test_qupath_counts_from_the_corner_of_what_was_scanned(slide, tmp_path, to, counts_from, origin_xy0):
    project, _ = slide
    store = shutil.copytree(project.store_path("S-1"), tmp_path / "p" / "slides" / "S-1.ome.zarr")
    attributes = json.loads((store / "zarr.json").read_text())
    attributes["attributes"]["gemslide"]["bounds_px0"] = [42, 63, 500, 300]
    (store / "zarr.json").write_text(json.dumps(attributes))
    drawn = AnnotationObject(box(0, 0, TILE_PX, 2 * TILE_PX), "", "warm")
    write_annotations(tmp_path / "a", AnnotationFile("qupath", (drawn,)), to)

    table = tile_table(Project(tmp_path / "p"), tmp_path / "a", "area", qupath_counts_from=counts_from)

    x, y = origin_xy0
    labelled = table.frame[table.frame["label"] == "warm"]
    assert sorted(zip(labelled.x_px0, labelled.y_px0, strict=True)) == [(x, y), (x, y + TILE_PX)]
    assert table.metadata["annotations"]["S-1"]["moved_xy0"] == origin_xy0
