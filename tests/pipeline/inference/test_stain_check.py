"""A slide with a different stain from the model's training slides is flagged; slides of the same stain are not."""

import json
import shutil

import numpy as np
import openslide
import pytest
from PIL import Image
from skimage import data
from skimage.color import hed2rgb, rgb2hed

from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.inference.results.stain_check import COLOUR_DISTANCE, FAR, warning_of
from pipeline.project import Project
from pipeline.settings.config import InferConfig
from pipeline.store.layers.overlays import read_predictions
from tests.model_packages import read_config, write_config
from training.data.colour_statistics import hue_distance, hue_statistics, tile_hues
from training.foundation.errors import UnreadableError
from training.inference import Classifier

KIDNEY = {"median": [-0.043, 0.897], "spread": [0.014, 0.021], "tiles": 90}
"""Hues of a kidney stained bright pink (A9K0_1.svs), unlike all of the small project's slides."""
SIDE_PX = 64


def cut(image_hwc, side_px=SIDE_PX):
    rows, columns = image_hwc.shape[0] // side_px, image_hwc.shape[1] // side_px
    grid = image_hwc[: rows * side_px, : columns * side_px].reshape(rows, side_px, columns, side_px, 3)
    return grid.swapaxes(1, 2).reshape(-1, side_px, side_px, 3)


def brown_of(image_hwc):
    """The same tissue with DAB in place of eosin."""
    haematoxylin, eosin, _ = np.moveaxis(rgb2hed(image_hwc), -1, 0)
    brown = hed2rgb(np.stack([0.6 * haematoxylin, 0 * eosin, 3 * eosin], -1))
    return np.rint(255 * brown).astype(np.uint8)


def read_slide(path, level=0):
    with openslide.OpenSlide(path) as slide:
        return np.asarray(slide.read_region((0, 0), level, slide.level_dimensions[level]).convert("RGB"))


@pytest.fixture(scope="module")
def hues_of_h_and_e(real_slides):
    """Hues of H&E tiles: colon, skin and brain, from several laboratories."""
    colon = sorted((real_slides / "Flagy+Colorectal_Carcinoma_Classifier/images").rglob("*.jpg"))[::25]
    images = {
        "colon tiles": np.stack([np.asarray(Image.open(path).convert("RGB")) for path in colon]),
        "skin": cut(read_slide(real_slides / "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs")),
        "polyp": cut(read_slide(real_slides / "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff", 2)),
        "brain": cut(
            np.asarray(Image.open(real_slides / "ykrmm+monuseg/datasets/MoNuSegTestData/TCGA-HT-8564-01Z-00-DX1.tif"))
        ),
    }
    for path in sorted((real_slides / "crc-mosaic").glob("*.tiff")):
        images[path.stem] = cut(read_slide(path)[:2000, :2000])
    return {name: tile_hues(tiles) for name, tiles in images.items()}


@pytest.mark.data
def test_h_and_e_of_other_laboratories_organs_and_scanners_is_no_other_stain(hues_of_h_and_e):
    for trained_on, hues in hues_of_h_and_e.items():
        trained = hue_statistics(hues)
        far = {name: hue_distance(seen, trained) for name, seen in hues_of_h_and_e.items()}
        assert max(far.values()) < FAR, (trained_on, far)


@pytest.mark.data
def test_brown_stain_is_far_from_h_and_e_whichever_was_trained_on(hues_of_h_and_e):
    brown = tile_hues(cut(data.immunohistochemistry()))
    trained_on_brown = hue_statistics(brown)

    for name, hues in hues_of_h_and_e.items():
        assert hue_distance(brown, hue_statistics(hues)) >= FAR, name
        assert hue_distance(hues, trained_on_brown) >= FAR, name


@pytest.mark.data
def test_the_same_tissue_in_brown_is_another_stain(real_slides):
    pink = read_slide(real_slides / "crc-mosaic/train_1.tiff")[:1000, :1000]

    assert hue_distance(tile_hues(cut(brown_of(pink))), hue_statistics(tile_hues(cut(pink)))) >= FAR


def test_how_dark_tissue_is_changes_its_hue_little():
    tiles = cut(data.immunohistochemistry())
    darker = np.rint(240 * (tiles / 240) ** 1.3).clip(0, 255).astype(np.uint8)

    assert hue_distance(tile_hues(darker), hue_statistics(tile_hues(tiles))) < 1


def test_a_slide_with_a_little_more_of_one_of_two_tissues_is_no_other_stain():
    tissues = np.array([[-0.2, 0.2], [0.2, 0.6]])
    noise = np.random.default_rng(0).normal(0, 0.01, (100, 2))
    mixed = [tissues[(np.arange(100) < first).astype(int)] + noise for first in (49, 51)]

    assert hue_distance(mixed[1], hue_statistics(mixed[0])) < FAR


def test_tiles_without_tissue_say_nothing():
    white = np.full((3, 32, 32, 3), 245, np.uint8)

    assert np.isnan(tile_hues(white)).all()
    assert hue_statistics(tile_hues(white)) is None
    assert hue_statistics(np.empty((0, 2))) is None


@pytest.fixture
def project(small_project, tmp_path):
    shutil.copytree(small_project.project.root, tmp_path / "project")
    return Project(tmp_path / "project")


def change_hues(project, model_id, hues):
    """Set the hues of the training tiles in the package; None removes them, as in version 0.1."""
    config = read_config(project.model_path(model_id))
    config["gemslide"].pop("hues")
    config["gemslide"] |= {"hues": hues} if hues else {}
    write_config(project.model_path(model_id), config)


def test_a_package_states_the_hues_of_its_training_tiles_and_other_slides_like_them_are_near(small_project, project):
    predictor = Predictor.load(project.model_path(small_project.model_id))

    report = infer_slide(small_project.test_slide, predictor, project, InferConfig())

    hues = read_config(project.model_path(small_project.model_id))["gemslide"]["hues"]
    assert hues["tiles"] > 100
    assert min(hues["spread"]) > 0
    assert 0 <= report.colour_distance < 1
    assert warning_of(report.colour_distance) is None
    stored = read_predictions(project.store_path(small_project.test_slide), small_project.model_id)
    assert stored.attributes[COLOUR_DISTANCE] == report.colour_distance


def test_a_slide_of_another_stain_is_predicted_with_a_warning_that_stays(small_project, project, gemslide):
    change_hues(project, small_project.model_id, KIDNEY)

    first = gemslide("infer", small_project.model_id, small_project.test_slide, "--project", project.root, "--json")
    again = gemslide("infer", small_project.model_id, small_project.test_slide, "--project", project.root, "--json")

    assert first.code == again.code == 0
    lines = [json.loads(done.out) for done in (first, again)]
    assert [line["status"] for line in lines] == ["done", "skipped"]
    for done, line in zip((first, again), lines, strict=True):
        assert f"warning: slide {small_project.test_slide}: " in done.err
        assert "its colours are far from those of" in done.err
        assert "its colours are far from those of the model's training tiles" in line["message"]
    records = [json.loads(path.read_text()) for path in sorted(project.runs_dir.glob("*.json"))]
    distances = [record[COLOUR_DISTANCE][small_project.test_slide] for record in records if record["verb"] == "infer"]
    assert len(distances) == 2
    assert distances[0] == distances[1] >= FAR


def test_a_package_of_an_earlier_version_says_nothing_and_the_record_that_it_is_not_known(
    small_project, project, gemslide
):
    change_hues(project, small_project.model_id, None)

    done = gemslide("infer", small_project.model_id, small_project.test_slide, "--project", project.root)

    assert done.code == 0
    assert "its colours" not in done.err
    records = [json.loads(path.read_text()) for path in project.runs_dir.glob("*.json")]
    assert [record[COLOUR_DISTANCE] for record in records if record["verb"] == "infer"] == [
        {small_project.test_slide: "not known"}
    ]
    assert (
        read_predictions(project.store_path(small_project.test_slide), small_project.model_id).attributes[
            COLOUR_DISTANCE
        ]
        is None
    )


@pytest.mark.parametrize(
    "hues",
    [
        {**KIDNEY, "median": [0.1]},
        {**KIDNEY, "spread": [1e9, 0.1]},
        {**KIDNEY, "tiles": 0},
        {**KIDNEY, "median": ["a", "b"]},
    ],
)
def test_a_package_whose_hues_cannot_be_is_refused(small_project, project, hues):
    change_hues(project, small_project.model_id, hues)

    with pytest.raises(UnreadableError, match=r"gemslide\.hues"):
        Classifier.load(project.model_path(small_project.model_id))
