"""Stores of stacks, tile tables and links that somebody sent: the plane that was meant, or one clear error."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import tifffile

from pathology_app.slides import cache as slides_cache
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.presenters import crops_of
from pathology_app.tiles.review_routes import review_routes
from pipeline.box import Box
from pipeline.errors import DamagedStoreError
from pipeline.export.export import ExportRequest, export_slide
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, Settings
from pipeline.store.format.checksums import write_checksums
from pipeline.store.format.shard import sum_file
from pipeline.store.integrity import check_levels
from pipeline.store.layers.overlays import Predictions, read_prediction_grid, read_predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.table import read_table
from pipeline.verbs.infer import at_plane
from tests.attacks.hostile_tables import write as write_any_table
from tests.pathology_app.routes_in_process import get, get_from
from tests.pipeline.make import PLAIN_TISSUE, halved, sample_image
from tests.pipeline.slides.make_dicom import write_dicom_stack
from tests.pipeline.store.bucket_server import BUCKET, bucket_server
from training.foundation.errors import BadRecipeError, GemslideError, UnreadableError

HEIGHTS_UM = (-1.5, 0.0, 2.0)
SIZE_WH_PX0 = (200, 136)
CONFIG = IngestConfig(shard_px=256, tissue=PLAIN_TISSUE, smallest_level_px=100)
WHOLE = Box(0, 0, *SIZE_WH_PX0)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stack") / "s"
    folder.mkdir()
    planes = {um: halved(sample_image(*SIZE_WH_PX0, seed), 1) for seed, um in enumerate(HEIGHTS_UM)}
    for level in range(2):
        at_level = {um: levels[level] for um, levels in planes.items()}
        write_dicom_stack(folder / f"{level}.dcm", at_level, downsample=2**level, is_full=False)
    return folder


@pytest.fixture(scope="module")
def made(source, tmp_path_factory) -> Path:
    """A project with a stack and a slide of one plane."""
    project = Project(tmp_path_factory.mktemp("project"))
    ingest_slide(IngestRequest(source, "S-1"), project, CONFIG)
    write_dicom_stack(source.parent / "one.dcm", {0.0: sample_image(*SIZE_WH_PX0)})
    ingest_slide(IngestRequest(source.parent / "one.dcm", "one"), project, CONFIG)
    return project.root


@pytest.fixture
def project(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "p")


@pytest.fixture
def store(project) -> Path:
    return Project(project).store_path("S-1")


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def name_planes(store: Path, planes_um: object) -> None:
    edit(store / "zarr.json", lambda root: root["attributes"]["gemslide"].update(planes_um=planes_um))


def refuse_everywhere(store: Path) -> None:
    """No reader, check or export takes it."""
    with pytest.raises(GemslideError):
        StoreReader(store)
    refuse_as_damaged(store)


def refuse_as_damaged(store: Path) -> None:
    with pytest.raises(GemslideError):
        verify_store(store, every_chunk=True)
    for kind in ("ngff-0.5", "ome-tiff"):
        with pytest.raises(GemslideError):
            export_slide(ExportRequest(store, store.parent / "copy", kind))
        assert not (store.parent / "copy").exists()


# --- metadata


@pytest.mark.parametrize(
    "planes_um",
    [
        [2.0, 0.0, -1.5], [0.0, 0.0, 2.0], [-1.5, 0.0], [-1.5, 0.0, 2.0, 3.0], list(range(300)), {"0": 1}, [[0], 1, 2],
        [None, 0, 1], [10**25, 1, 2], "-1.5, 0, 2", [-1.5, float("nan"), 2.0], [-1.5, 0.0, float("inf")],
    ],
    ids=lambda planes_um: f"{planes_um!r:.20}",
)  # fmt: skip
def test_heights_that_are_none_are_refused_everywhere(store, planes_um):
    name_planes(store, planes_um)
    refuse_everywhere(store)


@pytest.mark.parametrize(
    "planes_um",
    [[0.0, 1.5, 3.5], [-1.5, 0.0, 2.5], [1.0, 2.0, 3.0], [True, 2, 3], [-3.5, -1.5, 0.0], [-1e308, 0.0, 1e308]],
    ids=repr,
)
def test_heights_in_the_root_that_are_not_those_of_the_image_are_noticed(store, planes_um):
    """The image's own metadata, which have a checksum, state the lowest height and the mean distance; so does the XML.

    Otherwise another plane is the default one, and whatever is predicted or exported bears another height.
    """
    name_planes(store, planes_um)

    with pytest.raises(GemslideError):
        check_levels(StoreReader(store))
    with pytest.raises(DamagedStoreError):
        verify_store(store, every_chunk=True)


def test_a_height_between_the_first_and_the_last_is_not_changed_unnoticed(store):
    name_planes(store, [-1.5, 0.5, 2.0])

    with pytest.raises(DamagedStoreError, match=r"says 3, at -1\.5, 0\.5, 2 µm, and 0/zarr\.json states other focal"):
        verify_store(store)


def test_a_changed_distance_of_planes_is_not_exported(store):
    def change(image: dict[str, Any]) -> None:
        for dataset in image["attributes"]["ome"]["multiscales"][0]["datasets"]:
            dataset["coordinateTransformations"][0]["scale"][1] = 9.0

    edit(store / "0/zarr.json", change)
    refuse_as_damaged(store)


@pytest.mark.parametrize("planes", [1, 2, 4, 0, 3.0, True, "3", None, 10**30], ids=repr)
def test_a_level_with_another_number_of_planes_is_refused_everywhere(store, planes):
    edit(store / "0/1/zarr.json", lambda array: array["shape"].__setitem__(1, planes))
    refuse_everywhere(store)


@pytest.mark.parametrize("where", ["shards", "chunks", "no z", "root"])
def test_a_level_whose_chunks_are_not_of_one_plane_is_refused_everywhere(store, where):
    def change(array: dict[str, Any]) -> None:
        if where == "shards":
            array["chunk_grid"]["configuration"]["chunk_shape"][1] = 3
        elif where == "chunks":
            array["codecs"][0]["configuration"]["chunk_shape"][1] = 3
        else:
            del array["shape"][1]

    if where == "root":
        name_planes(store, None)
    else:
        edit(store / "0/1/zarr.json", change)
    refuse_everywhere(store)


# --- shards


@pytest.mark.parametrize("plane", range(3))
@pytest.mark.parametrize("level", [0, 1])
def test_a_missing_shard_of_any_plane_is_noticed(store, plane, level):
    (store / f"0/{level}/c/0/{plane}/0/0").unlink()

    with pytest.raises(DamagedStoreError, match="is missing"):
        check_levels(StoreReader(store))
    refuse_as_damaged(store)


def test_a_shard_of_another_plane_is_noticed(store):
    shutil.copy(store / "0/0/c/0/0/0/0", store / "0/0/c/0/2/0/0")
    refuse_as_damaged(store)


def test_a_shard_of_another_plane_with_new_checksums_is_found_by_its_source(store, source):
    shard = store / "0/0/c/0/2/0/0"
    shutil.copy(store / "0/0/c/0/0/0/0", shard)
    digest = write_checksums(store, {"0/0/c/0/2/0/0": sum_file(shard)})
    edit(store / "zarr.json", lambda root: root["attributes"]["gemslide"]["ingest"].update(checksums_sha256=digest))

    verify_store(store)
    with pytest.raises(DamagedStoreError, match="focal plane 2 µm, level 0: pixels"):
        verify_store(store, source=source)


def test_planes_beyond_those_of_the_root_are_noticed(store):
    shutil.copytree(store / "0/0/c/0/2", store / "0/0/c/0/3")

    with pytest.raises(DamagedStoreError, match="not written by ingest"):
        verify_store(store)


def test_an_exported_plane_states_its_height_in_micrometres(made, tmp_path):
    """OME's default unit of PositionZ is the microscope's "reference frame"."""
    store = Project(made).store_path("S-1")
    export_slide(ExportRequest(store, tmp_path / "copy.ome.tiff", "ome-tiff", plane_um=2.0))

    with tifffile.TiffFile(tmp_path / "copy.ome.tiff") as tiff:
        (plane,) = ElementTree.fromstring(tiff.ome_metadata).findall(".//{*}Plane")
    assert (plane.get("PositionZ"), plane.get("PositionZUnit")) == ("2", "µm")


# --- in other places


def test_a_plane_is_the_same_in_a_bucket(made, monkeypatch):
    store = Project(made).store_path("S-1")
    with bucket_server() as server:
        server.reach(monkeypatch)
        server.put_folder(store, f"trial/{store.name}")
        for um in HEIGHTS_UM:
            far = StoreReader(f"s3://{BUCKET}/trial/{store.name}", um)
            assert far.plane_um == um
            assert np.array_equal(far.read_region(0, WHOLE), StoreReader(store, um).read_region(0, WHOLE))
        verify_store(far.path)
        with pytest.raises(BadRecipeError, match="no focal plane at 1 µm"):
            StoreReader(far.path, 1.0)


def test_a_reader_of_a_plane_stays_one_in_a_spawned_worker(made):
    reader = StoreReader(Project(made).store_path("S-1"), 2.0)
    expected = reader.read_region(0, WHOLE)

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert np.array_equal(pool.apply(reader.read_region, (0, WHOLE)), expected)
        assert pool.apply(reader.levels[0].array.chunk, (0, 0)) == reader.chunk(0, 0, 0)


# --- --plane and plane_um


@pytest.mark.parametrize("plane", ["nan", "1e400", "0.5", "2.006"])
@pytest.mark.parametrize("slide", ["S-1", "one"])
@pytest.mark.parametrize("verb", ["tile", "qc", "export"])
def test_a_plane_that_is_none_is_one_error(project, tmp_path, gemslide, verb, slide, plane):
    out = [tmp_path / "copy.ome.tiff"] if verb == "export" else []
    done = gemslide(verb, slide, *out, "--project", project, f"--plane={plane}")

    assert done.code == 1
    assert not any(Path(path).exists() for path in out)
    assert "plane" in done.out + done.err


@pytest.mark.parametrize("plane", ["nan", "inf", "-inf", "1e400", "1e30"])
def test_a_plane_that_is_no_height_is_refused_for_models(plane):
    with pytest.raises(BadRecipeError, match="plane_um"):
        at_plane(Settings(), float(plane))


@pytest.mark.parametrize("slide", ["S-1", "one"])
@pytest.mark.parametrize("plane", ["-0", "0", "0.004", "-0.0"])
def test_height_0_is_0_however_it_is_written(project, gemslide, slide, plane):
    tiled = [gemslide("tile", slide, "--project", project, "--tile-px", 32, "--tile-set", "a", *more)
             for more in ([], [f"--plane={plane}"])]  # fmt: skip
    assert [done.code for done in tiled] == [0, 0], tiled
    table = read_table(project / "tiles/a.parquet")
    assert str(table.plane_um(slide)) == ("0.0" if slide == "S-1" else "None")


@pytest.mark.parametrize("value", ["[0.0]", '"upper"', "nan", "inf", "1e400", "{}", "1979-05-27", "20000"])
def test_a_setting_that_is_no_height_is_refused(project, gemslide, value):
    (project / "gemslide.toml").write_text(f"[infer]\nplane_um = {value}\n")

    done = gemslide("tile", "S-1", "--project", project)
    assert done.code == 1
    assert "plane_um" in done.out + done.err


# --- tile tables


@pytest.mark.parametrize(
    "height", ["2.0", "upper", True, 1.0, 1e30, None, [2.0], float("nan"), float("inf")], ids=lambda value: repr(value)
)
@pytest.mark.parametrize("slide", ["S-1", "one"])
def test_tiles_of_a_plane_that_a_slide_does_not_have_are_refused(project, gemslide, slide, height):
    """Somebody's table, with a hash that fits."""
    assert gemslide("tile", slide, "--project", project, "--tile-px", 32, "--tile-set", "a").code == 0
    path = project / "tiles/a.parquet"
    table = read_table(path)
    metadata = {**table.metadata, "planes_um": {slide: height}}
    write_any_table(path, table.frame, metadata, honestly=True)

    with pytest.raises(GemslideError):
        TileDataset(project, "a").read(0)


def test_tiles_are_of_the_plane_that_the_table_names(project, gemslide):
    done = gemslide("tile", "S-1", "--project", project, "--tile-px", 32, "--tile-set", "a", "--plane=2")
    assert done.code == 0, done.out + done.err
    assert read_table(project / "tiles/a.parquet").plane_um("S-1") == 2.0


# --- predictions


@pytest.mark.parametrize(
    "height", ["2.0", 10**25, 1e308, True, None, [2.0], 7.5, float("nan"), {"um": 2.0}], ids=lambda value: repr(value)
)
def test_predictions_of_a_plane_that_the_slide_does_not_have_are_shown_without_its_crops(project, store, height):
    values = np.full((2, 3, 4), 0.5, np.float16)
    write_predictions(store, Predictions("m-1", ("a", "b"), values, 64, 64, {}), mpp0=0.5)
    made_from = {"tiles": {"plane_um": height}}
    edit(store / "predictions/m-1/zarr.json", lambda m: m["attributes"]["gemslide"].update(made_from=made_from))

    try:
        grid, predictions = read_prediction_grid(store, "m-1"), read_predictions(store, "m-1")
    except UnreadableError:
        return
    assert grid.plane_um == predictions.plane_um
    assert "&z=" not in crops_of(SlideCache(Project(project)).slide("S-1"), predictions)


# --- links


@pytest.mark.parametrize("plane", ["z3", "z999", "z9"])
def test_a_tile_of_a_plane_that_is_not_there_is_not_found(made, plane):
    answer = get(SlideCache(Project(made)), f"/tiles/S-1/{plane}/0/0_0")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_tile")


@pytest.mark.parametrize("plane", ["z00000001", "z", "z-1", "z1.0", "z+1", "Z1", "z١", "zz1", "z1/z1", "z0x1", "1z"])
def test_a_link_that_names_no_plane_is_refused(made, plane):
    answer = get(SlideCache(Project(made)), f"/tiles/S-1/{plane}/0/0_0")
    assert answer.status_code == 400


@pytest.mark.parametrize("slide", ["S-1", "one"])
def test_tiles_are_those_of_the_plane_in_the_link(made, slide):
    cache = SlideCache(Project(made))
    bodies = [get(cache, f"/tiles/{slide}/z{plane}/0/0_0") for plane in ("0", "1", "2", "001")]
    default = get(cache, f"/tiles/{slide}/0/0_0")

    if slide == "one":
        assert [body.status_code for body in bodies] == [200, 404, 404, 404]
        assert bodies[0].content == default.content
    else:
        assert bodies[1].content == bodies[3].content == default.content
        assert len({body.content for body in bodies}) == 3


@pytest.mark.parametrize("query", ["z=", "z=-1", "z=1e2", "z=nan", "z=0001", "z=1.0", "z=%D9%A1", "z=1;2", "z=1&z=9"])
def test_a_crop_of_no_plane_is_refused(made, query):
    answer = get_from(review_routes(SlideCache(Project(made))), f"/crops/S-1/10_10.jpg?{query}")
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(
    ("slide", "plane", "status"), [("S-1", 2, 200), ("S-1", 3, 404), ("one", 0, 200), ("one", 1, 404)]
)
def test_a_crop_is_of_a_plane_that_is_there(made, slide, plane, status):
    answer = get_from(review_routes(SlideCache(Project(made))), f"/crops/{slide}/10_10.jpg?z={plane}")
    assert answer.status_code == status


def test_a_plane_in_the_viewer_is_opened_once(made, monkeypatch):
    """Not for each of its tiles: every opening reads the metadata of all levels, in a bucket by several requests."""
    slide, opened = SlideCache(Project(made)).slide("S-1"), []

    def counting(*arguments: Any) -> StoreReader:
        opened.append(arguments)
        return StoreReader(*arguments)

    monkeypatch.setattr(slides_cache, "StoreReader", counting)
    assert slide.at_plane(2) is slide.at_plane(2)
    assert len(opened) == 1
