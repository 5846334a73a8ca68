"""A tissue mask is remade, drawn or imported without touching pixels or other slides; outdated results are shown."""

from __future__ import annotations

import errno
import json
import shutil
import struct
import unicodedata
import zlib

import numpy as np
import pytest
from PIL import Image
from shapely.geometry import Point, box

from pathology_app.desktop.slide import OpenedSlide
from pathology_app.slides import presenters
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import read_facts
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ledger import open_ledger
from pipeline.project import Project
from pipeline.review import Draft, save
from pipeline.settings.config import IngestConfig
from pipeline.store.format.layout import TISSUE
from pipeline.store.layers.labels import mask_fingerprint, read_tissue
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.layers.tissue_origin import mask_origin
from pipeline.store.reading.reader import StoreReader
from tests.small_trained_project import MPP0, SIZE_WH_PX0, TISSUE_TOML, make_slide, sha256_by_file

pytestmark = pytest.mark.xdist_group("new-tissue")
SLIDE = "small-test"
CELL_PX0 = 8
"""Cell size of the small project's masks: 4 µm."""


@pytest.fixture
def project(small_project, tmp_path):
    """Writable copy of two of the small project's slides, its model, tile set and settings."""
    for name in (SLIDE, "small-val"):
        shutil.copytree(small_project.project.store_path(name), tmp_path / "slides" / f"{name}.ome.zarr")
    for folder in ("models", "tiles"):
        shutil.copytree(getattr(small_project.project, f"{folder}_dir"), tmp_path / folder)
    (tmp_path / "gemslide.toml").write_text(TISSUE_TOML)
    return Project(tmp_path)


@pytest.fixture
def store(project):
    return project.store_path(SLIDE)


def run(gemslide, project, *arguments):
    return gemslide("tissue", SLIDE, *arguments, "--project", project.root)


def geojson(path, shapes, names=()):
    features = [
        {
            "type": "Feature", "geometry": shape.__geo_interface__,
            "properties": {"objectType": "annotation", **({"classification": {"name": name}} if name else {})},
        }
        for shape, name in zip(shapes, names or [None] * len(shapes), strict=True)
    ]  # fmt: skip
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def expected_mask(shape):
    """Cells whose centre is inside a shape, tested one by one."""
    width, height = (round(side / CELL_PX0) for side in SIZE_WH_PX0)
    return np.array(
        [
            [shape.contains(Point((x + 0.5) * CELL_PX0, (y + 0.5) * CELL_PX0)) for x in range(width)]
            for y in range(height)
        ]
    )


def test_another_mask_changes_nothing_but_the_mask_and_no_other_slide(project, store, gemslide):
    before = sha256_by_file(project.root)

    done = run(gemslide, project, "--set", "min_delta_e=20")

    assert done.code == 0, done.err
    after = sha256_by_file(project.root)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    root, mask = f"slides/{store.name}/zarr.json", f"slides/{store.name}/{TISSUE}/"
    assert {name for name in changed if not name.startswith(mask) and not name.startswith("runs")} == {root}
    assert (origin := mask_origin(store)) is not None
    assert (origin.made, origin.settings["min_delta_e"]) == ("found", 20)
    assert StoreReader(store).attributes.ingest["tissue_fraction"] == pytest.approx(
        read_tissue(store)[0].mean(), abs=1e-6
    )
    verified = gemslide("verify", SLIDE, "--project", project.root)
    assert verified.code == 0, verified.err


def test_the_same_mask_again_is_kept(project, store, gemslide):
    before = sha256_by_file(store)

    done = run(gemslide, project)

    assert done.code == 0
    assert f"{SLIDE}: kept: tissue" in done.out
    assert sha256_by_file(store) == before


def test_settings_of_tissue_that_changed_hold_up_no_finished_slide_and_touch_none(tmp_path, gemslide):
    project = Project(tmp_path / "project")
    for name in ("a", "b"):
        make_slide(tmp_path / f"{name}.tiff", ord(name))
        ingest_slide(IngestRequest(tmp_path / f"{name}.tiff", name), project, IngestConfig(shard_px=512))
    before = sha256_by_file(project.slides_dir)
    project.settings_path.write_text("[ingest]\nshard_px = 512\n[ingest.tissue]\nmin_delta_e = 30.0\n")

    again = gemslide("ingest", tmp_path / "a.tiff", "--project", project.root)
    assert again.code == 0, again.err
    assert "`gemslide tissue` rebuilds the mask" in again.out
    assert sha256_by_file(project.slides_dir) == before
    one = gemslide("tissue", "a", "--project", project.root)
    assert one.code == 0, one.err
    assert mask_origin(project.store_path("a")).settings["min_delta_e"] == 30
    assert mask_origin(project.store_path("b")) is None
    shutil.rmtree(project.store_path("b") / TISSUE)
    assert gemslide("ingest", tmp_path / "b.tiff", "--project", project.root).code == 0  # as made by ingest
    now = {name: sha for name, sha in sha256_by_file(project.slides_dir).items() if name.startswith("b.")}
    assert now == {name: sha for name, sha in before.items() if name.startswith("b.")}


def test_outlines_become_the_cells_whose_centre_they_hold(project, store, gemslide, tmp_path):
    ring = box(103, 57, 641.5, 402).difference(box(200, 100, 333, 250))
    island = Point(900, 600).buffer(70)
    file = geojson(tmp_path / "tissue.geojson", [ring, island], ["Region*", None])

    done = run(gemslide, project, "--from", file)

    assert done.code == 0, done.err
    mask_yx, mpp = read_tissue(store)
    assert mpp == CELL_PX0 * MPP0
    assert np.array_equal(mask_yx, expected_mask(ring.union(island)))
    origin = mask_origin(store)
    assert (origin.made, origin.file_format, origin.areas) == ("imported", "qupath", 2)
    assert "tissue.geojson" not in (store / TISSUE / "zarr.json").read_text()
    only = run(gemslide, project, "--from", file, "--class", "Region*")
    assert only.code == 0, only.err
    assert np.array_equal(read_tissue(store)[0], expected_mask(ring))


def test_areas_drawn_in_the_project_become_the_mask(project, store, gemslide):
    area = box(80, 80, 480, 240)
    ledger = open_ledger(project)
    try:
        size = StoreReader(store).size_wh_px0
        save(ledger, SLIDE, [Draft(area, class_name="Tissue"), Draft(box(0, 0, 50, 50), class_name="other")], "ada",
             size_wh_px0=size)  # fmt: skip
    finally:
        ledger.database.close()

    done = run(gemslide, project, "--drawn", "Tissue")

    assert done.code == 0, done.err
    assert np.array_equal(read_tissue(store)[0], expected_mask(area))
    assert mask_origin(store).classes == ("Tissue",)
    typed_apart = run(gemslide, project, "--drawn", unicodedata.normalize("NFD", "Tïssue"), "--json")
    assert "class 'T\\u00efssue'" in typed_apart.out
    nobody = run(gemslide, project, "--drawn", "Tisue", "--json")
    assert nobody.code == 1
    assert "no area of class 'Tisue' has been drawn" in nobody.out


@pytest.mark.parametrize("mode", ["1", "L", "ones", "P", "RGB", "RGBA"])
def test_a_png_of_the_whole_slide_becomes_the_mask_however_it_was_saved(project, store, gemslide, tmp_path, mode):
    shape = box(160, 80, 800, 400)
    width, height = (round(side / CELL_PX0) for side in SIZE_WH_PX0)
    wanted = expected_mask(shape)
    path = tmp_path / "mask.png"
    white = np.asarray(wanted, np.uint8)
    if mode == "ones":
        Image.fromarray(white).save(path)
    elif mode == "RGBA":
        Image.fromarray(np.dstack([np.full_like(white, 200)] * 3 + [white * 255])).save(path)
    else:
        Image.fromarray(white * 255).convert(mode).save(path)

    done = run(gemslide, project, "--from", path)

    assert done.code == 0, done.err
    mask, _ = read_tissue(store)
    assert mask.shape == (height, width)
    assert np.array_equal(mask, wanted)
    assert mask_origin(store).file_format == "png"


def test_a_finer_png_counts_a_cell_that_is_half_white(project, store, gemslide, tmp_path):
    width, height = SIZE_WH_PX0
    pixels = np.zeros((height, width), np.uint8)
    pixels[64:128, 64:200] = 255
    Image.fromarray(pixels).save(tmp_path / "mask.png")

    assert run(gemslide, project, "--from", tmp_path / "mask.png").code == 0
    area_px0 = read_tissue(store)[0].sum() * CELL_PX0**2
    assert area_px0 == pytest.approx(64 * 136, rel=0.1)


def png_that_claims(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")
    )


def hostile_files(folder):
    width, height = (round(side / CELL_PX0) for side in SIZE_WH_PX0)
    noise = np.random.default_rng(0).integers(0, 255, (height, width), np.uint8)
    Image.fromarray(noise).save(folder / "grey.png")
    Image.fromarray(np.zeros((height, width), np.uint8)).save(folder / "black.png")
    Image.fromarray(np.full((width, height), 255, np.uint8)).save(folder / "turned.png")
    Image.fromarray(np.full((height, width), 255, np.uint8)).save(folder / "whole.png")
    whole = (folder / "whole.png").read_bytes()
    return {
        "values besides black": folder / "grey.png",
        "has no tissue at all": folder / "black.png",
        "other proportions": folder / "turned.png",
        "is not a readable PNG": written(folder / "cut.png", whole[: len(whole) // 2]),
        "at most 512 are read": written(folder / "bomb.png", png_that_claims(110_000, 82_000)),
        "lines, points and cells do not count": geojson(folder / "point.geojson", [Point(5, 5)]),
        "the slide only": geojson(folder / "outside.geojson", [box(5000, 10, 6000, 90)]),
        "times the slide": geojson(folder / "piled.geojson", [box(i, i, 1100 - i, 820 - i) for i in range(1, 400)]),
        "cannot be read": folder / "nowhere.png",
        "bad_annotation": written(folder / "text.geojson", b"tissue everywhere"),
    }


def written(path, data):
    path.write_bytes(data)
    return path


def test_files_that_are_no_mask_of_this_slide_are_refused_and_the_mask_stays(project, store, gemslide, tmp_path):
    before = sha256_by_file(project.slides_dir)
    for words, path in hostile_files(tmp_path).items():
        done = run(gemslide, project, "--from", path, "--json")
        assert (done.code, words in done.out) == (1, True), (path, done.out)
        assert "Traceback" not in done.err
    assert sha256_by_file(project.slides_dir) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "min_delta=5"], "did you mean `min_delta_e`?"),
        (["--set", "min_delta_e=much"], "give NAME=NUMBER"),
        (["--set", "mpp=0.00001", "--set", "min_delta_e=-1"], "min_delta_e"),
        (["--class", "Tissue"], "--class selects areas of the file"),
        (["--drawn", "Tissue", "--from", "x.png"], "not both"),
        (["--set", "min_delta_e=900"], "has no tissue at all"),
    ],
)
def test_what_makes_no_mask_is_said_and_the_mask_stays(project, store, gemslide, arguments, words):
    before = sha256_by_file(store)

    done = run(gemslide, project, *arguments, "--json")

    assert done.code == 1
    assert words in done.out
    assert sha256_by_file(store) == before


def test_a_full_disk_leaves_the_mask_that_was(project, store, gemslide, monkeypatch):
    before = sha256_by_file(store)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pipeline.store.layers.labels.write_group", full)
    done = run(gemslide, project, "--set", "min_delta_e=20")

    assert done.code == 1
    assert "no space left" in done.err
    assert sha256_by_file(store) == before


@pytest.mark.parametrize("damage", ["chunk", "coarser", "forgotten", "spacing"])
def test_damage_of_a_mask_that_was_replaced_is_found(project, store, gemslide, damage):
    assert run(gemslide, project, "--set", "min_delta_e=20").code == 0
    folder = store / TISSUE
    if damage == "chunk":
        chunk = folder / "0" / "c" / "0" / "0"
        data = bytearray(chunk.read_bytes())
        data[len(data) // 2] ^= 1
        chunk.write_bytes(data)
    elif damage == "coarser":
        shutil.rmtree(folder / "1")
        shutil.copytree(store.parent / "small-val.ome.zarr" / TISSUE / "1", folder / "1")
    else:
        content = json.loads((folder / "zarr.json").read_text())
        if damage == "forgotten":
            del content["attributes"]["gemslide"]
        else:
            (dataset, *_) = content["attributes"]["ome"]["multiscales"][0]["datasets"]
            dataset["coordinateTransformations"][0]["scale"] = [4.1, 4.1]
        (folder / "zarr.json").write_text(json.dumps(content))

    done = gemslide("verify", SLIDE, "--project", project.root)

    assert done.code == 1, done.out
    assert gemslide("verify", "small-val", "--project", project.root).code == 0


def test_what_was_made_with_the_former_mask_is_shown_as_outdated_and_made_again(
    project, store, small_project, gemslide
):
    model = small_project.model_id
    for verb in (
        ["infer", model, SLIDE],
        ["qc", SLIDE],
        ["tile", "--tile-set", "own", "--tile-px", "32", "--tile-mpp", "1"],
    ):
        assert gemslide(*verb, "--project", project.root).code == 0
    former = mask_fingerprint(store)

    done = run(gemslide, project, "--set", "min_delta_e=20")

    assert f"now outdated: predictions of {model}; tile set own" in done.out
    note = "outdated: the tissue mask has since been replaced"
    assert f"{model} ({note})" in gemslide("info", SLIDE, "--project", project.root).out
    verified = gemslide("verify", SLIDE, "--project", project.root)
    assert (verified.code, f"predictions of {model} are {note}" in verified.err) == (0, True)
    cache = SlideCache(project)
    opened = read_predictions(store, model)
    assert presenters.outdated_note(cache.slide(SLIDE), opened) is not None
    assert "Predictions outdated" in read_facts(cache, SLIDE).note
    advice = "Run `gemslide infer` again to update them."
    assert OpenedSlide(store).problems == [f"The predictions of {model} are {note}. {advice}"]
    assert read_facts(cache, "small-val").note == ""
    qc = gemslide("qc", SLIDE, "--project", project.root)
    assert f"{SLIDE}: ok" in qc.out or "kept" not in qc.out
    again = gemslide("infer", model, SLIDE, "--project", project.root)
    assert f"{SLIDE}: done" in again.out
    assert note not in gemslide("info", SLIDE, "--project", project.root).out
    assert mask_fingerprint(store) != former


def test_training_and_evaluation_on_an_outdated_tile_set_warn(small_project_copy, gemslide):
    project = small_project_copy.project
    assert gemslide("infer", small_project_copy.model_id, SLIDE, "--project", project.root).code == 0
    assert gemslide("tissue", SLIDE, "--set", "min_delta_e=20", "--project", project.root).code == 0

    evaluated = gemslide(
        "evaluate", small_project_copy.model_id, "--tile-set", "small", "--no-baselines", "--project", project.root
    )

    assert evaluated.code == 0, evaluated.err
    assert (
        "warning: The tile set: it is outdated: the tissue mask of 1 of its slides has since been replaced"
        in evaluated.err
    )
    assert "warning: Predictions of 1 slide are outdated" in evaluated.err
    recipe = small_project_copy.cohort.parent.parent / "small.toml"
    trained = gemslide("train", recipe, "--project", project.root)
    assert "warning: tile set 'small': it is outdated" in trained.err


def test_a_mask_that_is_replaced_during_inference_stops_the_result(project, small_project, monkeypatch):
    from pipeline.inference import infer as module
    from pipeline.inference.predictor import Predictor
    from pipeline.settings.config import InferConfig
    from training.foundation.errors import LockedError

    predictor = Predictor.load(project.model_path(small_project.model_id))
    monkeypatch.setattr(module, "mask_fingerprint", lambda store: "0" * 64)
    with pytest.raises(LockedError, match="was replaced during prediction"):
        module.infer_slide(SLIDE, predictor, project, InferConfig(formats=()))
    with pytest.raises(Exception, match="no readable predictions"):
        read_predictions(project.store_path(SLIDE), small_project.model_id)


def test_an_annotation_at_another_scale_is_refused(project, gemslide, tmp_path):
    xml = (
        '<Annotations MicronsPerPixel="0.25"><Annotation Name="T"><Regions><Region Type="0"><Vertices>'
        '<Vertex X="10" Y="10"/><Vertex X="500" Y="10"/><Vertex X="500" Y="400"/></Vertices></Region></Regions>'
        "</Annotation></Annotations>"
    )
    done = run(gemslide, project, "--from", written(tmp_path / "a.xml", xml.encode()), "--json")

    assert done.code == 1
    assert "the annotation file says 0.25 µm/px" in json.loads(done.out)["message"]
