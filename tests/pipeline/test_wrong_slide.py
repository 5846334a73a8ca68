"""The right patient: a file named after one slide that holds another is refused everywhere."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pathology_app.desktop.layers import slide_layers
from pathology_app.slides.cache import SlideCache
from pipeline.cohort.manifest import load_cohort
from pipeline.errors import WrongSlideError
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.reading.reader import StoreReader
from pipeline.tiles.dataset import TileDataset
from pipeline.tiles.tile import make_tile_table
from tests.conftest import Done
from tests.small_trained_project import TILES, SmallProject
from training.foundation.errors import GemslideError, UnreadableError


@pytest.fixture
def swapped(small_project: SmallProject, tmp_path: Path) -> Project:
    """The small project with the folders of two stores swapped."""
    project = Project(tmp_path / "project")
    shutil.copytree(small_project.project.root, project.root)
    one, other = project.store_path("small-train"), project.store_path("small-test")
    temporary = one.with_name("aside")
    one.rename(temporary)
    other.rename(one)
    temporary.rename(other)
    return project


def test_a_store_whose_folder_names_another_slide_is_refused_wherever_it_is_opened(
    small_project: SmallProject, swapped: Project
) -> None:
    cohort = load_cohort(small_project.cohort)
    predictor = Predictor.load(swapped.model_path(small_project.model_id))
    ways: dict[str, Callable[[], object]] = {
        "read": lambda: StoreReader(swapped.store_path("small-test")),
        "infer": lambda: infer_slide("small-test", predictor, swapped, InferConfig()),
        "tile": lambda: make_tile_table(swapped, "again", TILES, cohort=cohort),
        "train": lambda: TileDataset(swapped.root, "small").read(0),
        "viewer": lambda: SlideCache(swapped).slide("small-test"),
        "napari": lambda: slide_layers(swapped.store_path("small-test")),
    }

    for name, way in ways.items():
        with pytest.raises(WrongSlideError, match="named after") as caught:
            way()
        assert "small-train" in str(caught.value), name
        assert "small-test" in str(caught.value), name
    assert not swapped.results_dir.exists()


def test_verify_names_swapped_stores(swapped: Project, gemslide: Callable[..., Done]) -> None:
    done = gemslide("verify", "--project", swapped.root, "--json", "--sample-chunks", "1")

    lines = {line["slide_id"]: line for line in map(json.loads, done.out.splitlines())}
    assert done.code == 1
    assert {slide_id: line["code"] for slide_id, line in lines.items()} == {
        "small-test": "wrong_slide", "small-train": "wrong_slide", "small-val": None,
    }  # fmt: skip


def test_a_link_named_after_another_slide_is_refused(small_project: SmallProject, tmp_path: Path) -> None:
    link = tmp_path / "small-val.ome.zarr"
    link.symlink_to(small_project.project.store_path("small-test"))

    with pytest.raises(WrongSlideError, match="small-val"):
        StoreReader(link)


def test_a_store_opened_from_inside_its_folder_is_known_by_the_folder_s_name(
    small_project: SmallProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small_project.project.store_path("small-test"))

    assert StoreReader(".").slide_id == "small-test"


def test_predictions_of_another_slide_s_pixels_are_refused(small_project: SmallProject, swapped: Project) -> None:
    """Copied from store to store, or under another model's id."""
    one, other = small_project.project.store_path("small-val"), small_project.project.store_path("small-test")
    project = Project(swapped.root.parent / "honest")
    for store in (one, other):
        shutil.copytree(store, project.store_path(store.name.removesuffix(".ome.zarr")))
    predictor = Predictor.load(small_project.project.model_path(small_project.model_id))
    infer_slide("small-test", predictor, project, InferConfig())
    made = project.store_path("small-test") / "predictions" / small_project.model_id
    shutil.copytree(made, project.store_path("small-val") / "predictions" / small_project.model_id)

    with pytest.raises(WrongSlideError, match="holds predictions of model"):
        SlideCache(project).predictions("small-val", small_project.model_id)
    assert not infer_slide("small-val", predictor, project, InferConfig()).skipped


@pytest.mark.parametrize("path", ["../../small-val.ome.zarr/0/0", "/tmp", "..", "00", "0/../../x", ""])
def test_a_level_that_leads_out_of_the_store_is_refused(small_project: SmallProject, tmp_path: Path, path: str) -> None:
    store = shutil.copytree(small_project.project.store_path("small-test"), tmp_path / "small-test.ome.zarr")
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["gemslide"]["levels"][0]["path"] = path
    (store / "zarr.json").write_text(json.dumps(root))

    with pytest.raises(UnreadableError, match="attributes are damaged"):
        StoreReader(store)


ROOT_CHANGES: dict[str, object] = {
    "slide_id": "../x", "mpp0": float("nan"), "source": [], "levels": [], "icc": "no base64!", "associated": {"a": 1},
    "contract_version": "![x](y)", "bounds_px0": [1], "qc": 3, "stain": "x", "ingest": None, "mpp_source": 4,
    "unknown": 1,
}  # fmt: skip


@pytest.mark.parametrize("key", ROOT_CHANGES)
def test_a_root_attribute_that_cannot_be_is_one_clear_error(
    small_project: SmallProject, tmp_path: Path, key: str
) -> None:
    store = shutil.copytree(small_project.project.store_path("small-test"), tmp_path / "small-test.ome.zarr")
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["gemslide"][key] = ROOT_CHANGES[key]
    (store / "zarr.json").write_text(json.dumps(root))

    with pytest.raises(GemslideError):
        StoreReader(store)


def test_a_root_that_is_a_named_pipe_or_nested_without_end_is_refused(
    small_project: SmallProject, tmp_path: Path
) -> None:
    store = shutil.copytree(small_project.project.store_path("small-test"), tmp_path / "small-test.ome.zarr")
    (store / "zarr.json").write_text('{"attributes":' * 100_000)
    with pytest.raises(UnreadableError, match="nested too deeply"):
        StoreReader(store)
    (store / "zarr.json").unlink()
    os.mkfifo(store / "zarr.json")
    with pytest.raises(UnreadableError, match="not a regular file"):
        StoreReader(store)


def test_infer_of_the_current_folder_is_that_package_and_leaves_other_models_predictions(
    small_project: SmallProject, tmp_path: Path, gemslide: Callable[..., Done]
) -> None:
    """`infer .` once gave an empty id, and replaced all of `predictions/`."""
    project = Project(tmp_path / "project")
    shutil.copytree(small_project.project.store_path("small-test"), project.store_path("small-test"))
    shutil.copytree(small_project.project.models_dir, project.models_dir)
    other = project.store_path("small-test") / "predictions/another-00000000"
    other.mkdir(parents=True)
    (other / "zarr.json").write_text("{}")

    done = gemslide("infer", ".", "--project", project.root, cwd=project.model_path(small_project.model_id))

    assert done.code == 0, done.err
    assert (other / "zarr.json").read_text() == "{}"
    assert (project.store_path("small-test") / "predictions" / small_project.model_id / "zarr.json").exists()
    assert project.result_dir("small-test", small_project.model_id).is_dir()


def test_weights_of_another_model_are_not_taken_for_this_one(small_project: SmallProject, tmp_path: Path) -> None:
    package = shutil.copytree(
        small_project.project.model_path(small_project.model_id), tmp_path / small_project.model_id
    )
    weights = bytearray((package / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (package / "model.safetensors").write_bytes(weights)

    with pytest.raises(UnreadableError, match="not that of model"):
        Predictor.load(package)


def test_predictions_say_which_weights_made_them_in_full(small_project: SmallProject, tmp_path: Path) -> None:
    import hashlib

    project = Project(tmp_path)
    shutil.copytree(small_project.project.store_path("small-test"), project.store_path("small-test"))
    package = small_project.project.model_path(small_project.model_id)
    infer_slide("small-test", Predictor.load(package), project, InferConfig())

    path = project.store_path("small-test") / "predictions" / small_project.model_id / "zarr.json"
    made_from = json.loads(path.read_text())["attributes"]["gemslide"]["made_from"]
    weights = (package / "model.safetensors").read_bytes()
    assert made_from["model"]["weights_sha256"] == hashlib.sha256(weights).hexdigest()
