import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from pipeline.errors import NoTissueError
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.inference.results.files import heatmap_name
from pipeline.inference.results.hotspots import Hotspots, find_hotspots, read_hotspots
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import Predictions, list_predictions, read_predictions, write_predictions
from pipeline.store.reading.reader import StoreReader
from tests.model_packages import with_weights
from tests.small_disk import small_disk
from training.foundation.errors import BadRecipeError, DiskFullError, ImplausibleOutputError, UnreadableError

CONFIG = InferConfig(batch_size=16)


@pytest.fixture
def predictor(small_project):
    return Predictor.load(small_project.project.models_dir / small_project.model_id)


def test_stored_probabilities_are_the_network_s_own(small_project, own, predictor):
    infer_slide(small_project.test_slide, predictor, own, CONFIG)

    reader = StoreReader(own.store_path(small_project.test_slide))
    stored = read_predictions(reader.path, small_project.model_id)
    for row, column in ((3, 4), (7, 11)):
        tile = reader.read_square(1, column * 64, row * 64, 64, 32)
        assert stored.probabilities_cyx[:, row, column] == pytest.approx(predictor.predict(tile[None])[0], abs=1e-3)


def test_only_tissue_is_predicted_and_the_rest_is_nan(small_project, own, predictor):
    report = infer_slide(small_project.test_slide, predictor, own, CONFIG)

    values = read_predictions(own.store_path(small_project.test_slide), small_project.model_id).probabilities_cyx
    assert np.isnan(values[:, 0, :]).all()
    assert np.isfinite(values[0]).sum() == report.num_tiles == 15 * 10
    assert np.nansum(values, axis=0)[np.isfinite(values[0])] == pytest.approx(1, abs=2e-3)


def test_the_result_does_not_depend_on_the_batch_size(small_project, own, predictor):
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    one = read_predictions(own.store_path(small_project.test_slide), small_project.model_id).probabilities_cyx
    infer_slide(small_project.test_slide, predictor, own, InferConfig(batch_size=7))
    other = read_predictions(own.store_path(small_project.test_slide), small_project.model_id).probabilities_cyx

    assert np.allclose(one, other, atol=1e-3, equal_nan=True)


def test_finished_predictions_are_kept_and_other_tiles_are_predicted(small_project, own, predictor):
    assert not infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped
    assert infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped
    assert not infer_slide(small_project.test_slide, predictor, own, InferConfig(min_tissue=0.9)).skipped


@pytest.mark.parametrize(
    "change", [{"threshold": 0.9}, {"max_hotspots": 1}, {"batch_size": 5}, {"hotspot_classes": ("cold",)}]
)
def test_what_only_decides_how_predictions_are_shown_predicts_nothing_again(small_project, own, predictor, change):
    before = infer_slide(small_project.test_slide, predictor, own, CONFIG)
    stored = own.store_path(small_project.test_slide) / "predictions" / small_project.model_id / "zarr.json"
    identity = stored.stat().st_ino, stored.stat().st_mtime_ns
    shown = (before.result_dir / "hotspots.json").read_text()

    after = infer_slide(small_project.test_slide, predictor, own, CONFIG.model_copy(update=change))

    assert after.skipped
    assert (stored.stat().st_ino, stored.stat().st_mtime_ns) == identity
    assert ((after.result_dir / "hotspots.json").read_text() == shown) == ("batch_size" in change)
    made = read_hotspots(own.root, small_project.test_slide, small_project.model_id)
    assert made is not None
    assert made.threshold == change.get("threshold", 0.5)


def test_every_file_of_the_contract_is_written(small_project, own, predictor):
    folder = infer_slide(small_project.test_slide, predictor, own, CONFIG).result_dir

    assert {path.name for path in folder.iterdir()} == {
        "predictions.csv", "predictions.parquet", "predictions.geojson", "hotspots.json", "heatmap_warm.png",
        "slide_report.html",
    }  # fmt: skip
    with Image.open(folder / "heatmap_warm.png") as image:
        assert image.size[0] > 800
    stored = json.loads((folder / "hotspots.json").read_text())
    assert read_hotspots(own.root, small_project.test_slide, small_project.model_id) == Hotspots(
        stored["threshold"], stored["hotspots"]
    )


def test_a_slide_that_is_not_there_is_refused(own, predictor):
    with pytest.raises(UnreadableError, match="no slide store there"):
        infer_slide("nobody", predictor, own, CONFIG)


def test_a_slide_without_enough_tissue_says_so(small_project, own, predictor):
    from pipeline.store.layers.labels import write_tissue

    store = own.store_path(small_project.test_slide)
    shutil.rmtree(store / "0/labels/tissue")
    write_tissue(store, np.zeros((103, 138), bool), 4.0, 0.5, 2)

    with pytest.raises(NoTissueError, match="none of"):
        infer_slide(small_project.test_slide, predictor, own, CONFIG)
    assert list_predictions(store) == []


@pytest.mark.parametrize(("factor", "says"), [(float("nan"), "not numbers"), (0.0, "exactly the same output")])
def test_a_broken_model_is_refused_and_leaves_nothing(small_project, own, factor, says):
    package = own.models_dir / small_project.model_id
    state = {name: value * factor if value.is_floating_point() else value for name, value in load_file(
        package / "model.safetensors").items()}  # fmt: skip
    package = with_weights(package, state)

    with pytest.raises(ImplausibleOutputError, match=says):
        infer_slide(small_project.test_slide, Predictor.load(package), own, CONFIG)
    assert list_predictions(own.store_path(small_project.test_slide)) == []
    assert not own.results_dir.exists()


def test_a_model_that_wants_finer_pixels_than_were_scanned_is_refused(small_project, own):
    package = own.models_dir / small_project.model_id
    config = json.loads((package / "config.json").read_text())
    (package / "config.json").write_text(json.dumps({**config, "spacing_um_px": 0.25}))

    with pytest.raises(BadRecipeError, match=r"coarser than model small-\w+ needs"):
        infer_slide(small_project.test_slide, Predictor.load(package), own, CONFIG)


@pytest.mark.parametrize("damage", ["missing", "weights", "config"])
def test_a_damaged_package_is_refused(small_project, own, damage):
    package = own.models_dir / small_project.model_id
    if damage == "missing":
        shutil.rmtree(package)
    elif damage == "weights":
        (package / "model.safetensors").write_bytes((package / "model.safetensors").read_bytes()[:1000])
    else:
        (package / "config.json").write_text('{"spec_version": "2.0"}')

    with pytest.raises(UnreadableError):
        Predictor.load(package)


def predictions(values):
    return Predictions("m", ("n", "p"), values.astype(np.float16), 100.0, 100.0, {})


def test_hotspots_are_connected_areas_with_their_strongest_cell():
    p = np.zeros((6, 8))
    p[1, 1], p[2, 2], p[5, 6], p[0, 7] = 0.625, 0.875, 0.75, np.nan
    values = np.stack([1 - p, p])

    spots = find_hotspots(predictions(values), ["p"], mpp0=0.5, threshold=0.5, most=10)

    assert [(s["x_px0"], s["y_px0"], s["score"]) for s in spots] == [(250, 250, 0.875), (650, 550, 0.75)]
    assert [s["area_um2"] for s in spots] == [2 * 50**2, 50**2]


def test_coarser_overlays_average_only_what_was_predicted(tmp_path):
    import zarr

    values = np.full((2, 65, 90), np.nan)
    values[:, 0, 0], values[:, 0, 1], values[:, 64, 89] = 0.25, 0.75, 0.5
    write_predictions(tmp_path, predictions(values), mpp0=0.5)

    coarse = zarr.open_array(str(tmp_path / "predictions/m/1"), mode="r")[...]

    assert coarse.shape == (2, 33, 45)
    assert coarse[0, 0, 0] == 0.5
    assert coarse[1, 32, 44] == 0.5
    assert np.isfinite(coarse[0]).sum() == 2


def test_overlay_scale_is_the_stride_in_micrometres_and_its_origin_half_a_cell(small_project, own, predictor):
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    meta = json.loads(
        (own.store_path(small_project.test_slide) / "predictions" / small_project.model_id / "zarr.json").read_text()
    )
    dataset = meta["attributes"]["ome"]["multiscales"][0]["datasets"][0]["coordinateTransformations"]

    assert dataset == [
        {"type": "scale", "scale": [1.0, 32.0, 32.0]},
        {"type": "translation", "translation": [0.0, 16.0, 16.0]},
    ]


def test_the_network_is_in_evaluation_mode(predictor):
    tiles = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)

    together = predictor.predict(tiles)

    assert torch.equal(torch.from_numpy(together), torch.from_numpy(predictor.predict(tiles)))
    assert together[2] == pytest.approx(predictor.predict(tiles[2:3])[0], abs=1e-5)


def test_a_class_the_model_does_not_have_is_refused_before_anything_is_predicted(small_project, own, predictor):
    with pytest.raises(BadRecipeError, match=r"\['tumour'\] are not among the model's classes \['cold', 'warm'\]"):
        infer_slide(small_project.test_slide, predictor, own, InferConfig(hotspot_classes=("tumour",)))
    assert list_predictions(own.store_path(small_project.test_slide)) == []


def test_heatmaps_of_an_earlier_run_do_not_stay(small_project, own, predictor):
    folder = infer_slide(small_project.test_slide, predictor, own, CONFIG).result_dir
    infer_slide(small_project.test_slide, predictor, own, InferConfig(hotspot_classes=("cold",)))

    assert [path.name for path in folder.glob("heatmap_*")] == ["heatmap_cold.png"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("CD3/CD8", r"heatmap_CD3_CD8-[0-9a-f]{8}\.png"),
        ("../../x", r"heatmap_\.\._\.\._x-[0-9a-f]{8}\.png"),
        ("Tumor", r"heatmap_Tumor\.png"),
    ],
)
def test_a_class_name_never_means_a_folder(name, file):
    assert re.fullmatch(file, heatmap_name(name))


def test_damaged_predictions_are_made_again(small_project, own, predictor):
    infer_slide(small_project.test_slide, predictor, own, CONFIG)
    (chunk,) = (own.store_path(small_project.test_slide) / "predictions" / small_project.model_id / "0/c/0").rglob(
        "*/*"
    )
    chunk.write_bytes(b"xxxx")

    assert not infer_slide(small_project.test_slide, predictor, own, CONFIG).skipped
    assert np.isfinite(
        read_predictions(own.store_path(small_project.test_slide), small_project.model_id).probabilities_cyx
    ).any()


def _damage_tissue_chunk(store):
    (chunk,) = (p for p in (store / "0/labels/tissue/0/c").rglob("*") if p.is_file())
    chunk.write_bytes(b"xxxx")


def _damage_tissue_json(store):
    (store / "0/labels/tissue/zarr.json").write_text('{"attributes": {}}')


def _damage_root(store):
    root = json.loads((store / "zarr.json").read_text())
    del root["attributes"]["gemslide"]["mpp0"]
    (store / "zarr.json").write_text(json.dumps(root))


@pytest.mark.parametrize("damage", [_damage_tissue_chunk, _damage_tissue_json, _damage_root])
def test_a_damaged_store_is_refused_and_the_other_slides_go_on(small_project, own, gemslide, damage):
    shutil.copytree(small_project.project.store_path("small-val"), own.store_path("small-val"))
    damage(own.store_path(small_project.test_slide))

    done = gemslide("infer", small_project.model_id, "--project", own.root, "--json")
    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}

    assert done.code == 1
    assert (lines["small-val"]["status"], lines[small_project.test_slide]["code"]) == ("done", "unreadable")


def test_a_store_of_another_project_is_not_taken_for_this_one_s(small_project, own, gemslide):
    other = small_project.project.store_path(small_project.test_slide)

    refused = gemslide("infer", small_project.model_id, other, "--project", own.root)
    taken = gemslide("infer", small_project.model_id, own.store_path(small_project.test_slide), "--project", own.root)

    assert (refused.code, taken.code) == (1, 0)
    assert "is not a store of the project" in refused.err


def test_an_unknown_model_is_refused_with_those_there_are(small_project, own, gemslide):
    done = gemslide("infer", "no [/x] model", "--project", own.root)

    assert done.code == 1
    assert f"There are: {small_project.model_id}" in done.err


def test_on_a_full_disk_all_of_a_slide_s_results_appear_or_none(small_project, predictor, tmp_path):
    """The disk has room for the predictions in the store and half of the files beside it."""
    with small_disk(tmp_path / "disk", "size=6m") as disk:
        project = Project(disk)
        store = shutil.copytree(
            small_project.project.store_path(small_project.test_slide), project.store_path(small_project.test_slide)
        )
        free_bytes = shutil.disk_usage(disk).free
        (disk / "junk").write_bytes(bytes(max(0, free_bytes - 120_000)))
        with pytest.raises(DiskFullError, match="no space left"):
            infer_slide(small_project.test_slide, predictor, project, CONFIG)

        assert list_predictions(store) == []
        left = {path.name for path in disk.rglob("*") if path.is_file() and small_project.model_id in str(path)}
        assert left == {".resume", "batches"}  # predictions are not lost
        (disk / "junk").unlink()
        assert not infer_slide(small_project.test_slide, predictor, project, CONFIG).skipped
        assert list(disk.rglob(".*")) == []


@pytest.mark.parametrize("free_bytes", [0, 4096, 8192, 16384])
def test_on_a_disk_without_room_for_one_batch_nothing_is_left(small_project, predictor, tmp_path, free_bytes):
    with small_disk(tmp_path / "disk", "size=6m") as disk:
        project = Project(disk)
        shutil.copytree(
            small_project.project.store_path(small_project.test_slide), project.store_path(small_project.test_slide)
        )
        before = set(disk.rglob("*"))
        (disk / "junk").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - free_bytes)))
        with pytest.raises(DiskFullError, match="no space left"):
            infer_slide(small_project.test_slide, predictor, project, CONFIG)

        (disk / "junk").unlink()
        left = {path for path in set(disk.rglob("*")) - before if path.is_file()}
        # Predictions are kept with their key; files without content are not.
        assert all(path.stat().st_size for path in left)
        assert not left or {path.name for path in left} <= {".resume", "batches", "zarr.json"}
        folders = {path for path in set(disk.rglob("*")) - before if path.is_dir()}
        assert all(any(folder.iterdir()) for folder in folders), folders
        assert not infer_slide(small_project.test_slide, predictor, project, CONFIG).skipped


def test_a_note_that_somebody_left_among_the_results_stays(small_project, own, predictor):
    folder = infer_slide(small_project.test_slide, predictor, own, CONFIG).result_dir
    (folder / "second-opinion.txt").write_text("looked at")
    (folder / "notes").mkdir()
    (folder / "notes/heatmap_mine.png").write_bytes(b"mine")
    (folder / "link").symlink_to("notes")

    infer_slide(small_project.test_slide, predictor, own, InferConfig(batch_size=7))

    assert (folder / "second-opinion.txt").read_text() == "looked at"
    assert (folder / "notes/heatmap_mine.png").read_bytes() == b"mine"
    assert (folder / "link").readlink() == Path("notes")


def test_two_classes_never_share_a_heatmap():
    names = ["a b", "a_b", "腫瘍", "正常", "T+", "T-", "warm"]

    assert len({heatmap_name(name) for name in names}) == len(names)
    assert heatmap_name("warm") == "heatmap_warm.png"
