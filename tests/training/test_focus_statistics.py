"""Focus statistics flag a slide that is out of focus, but not another tissue, stain or scanner."""

import cv2
import numpy as np
import openslide
import pytest
from skimage import data

from pipeline.models.sample_tiles import sample_tiles
from training.data.focus_statistics import LEAST_SPREAD, FocusStatistics, focus_distance, focus_statistics, tile_focus
from training.inference import Classifier

SIDE_PX = 64


def cut(image_hwc):
    rows, columns = image_hwc.shape[0] // SIDE_PX, image_hwc.shape[1] // SIDE_PX
    grid = image_hwc[: rows * SIDE_PX, : columns * SIDE_PX].reshape(rows, SIDE_PX, columns, SIDE_PX, 3)
    return grid.swapaxes(1, 2).reshape(-1, SIDE_PX, SIDE_PX, 3)


def blurred(image_hwc, sigma_px):
    return cv2.GaussianBlur(image_hwc, (0, 0), sigma_px)


@pytest.fixture(scope="module")
def slides(real_slides):
    """Upper left 2000 x 1800 px of each slide."""
    images = {}
    for path in sorted((real_slides / "crc-mosaic").glob("*.tiff")):
        with openslide.OpenSlide(path) as slide:
            images[path.stem] = np.asarray(slide.read_region((0, 0), 0, (2000, 1800)).convert("RGB"))
    return images


@pytest.mark.data
def test_slides_of_other_patients_are_near_each_other_and_blurred_ones_far(slides):
    sharp = {name: tile_focus(cut(image)) for name, image in slides.items()}
    soft = {name: tile_focus(cut(blurred(image, 1.5))) for name, image in slides.items()}

    for name, focus in sharp.items():
        trained = focus_statistics(focus)
        assert max(focus_distance(other, trained) for other in sharp.values()) < 2
        assert min(focus_distance(other, trained) for other in soft.values()) > 3, name


def test_a_trained_model_knows_the_focus_of_its_tiles(small_project):
    model = Classifier.load(small_project.project.model_path(small_project.model_id))
    tiles = sample_tiles(small_project.project, [small_project.test_slide], tile_px=32, mpp=1.0, count=20)

    assert model.focus.tiles > 100
    assert model.focus_distance(model.tile_focus(tiles)) < 1
    soft = np.stack([blurred(tile, 2) for tile in tiles])
    assert model.focus_distance(model.tile_focus(soft)) > 3


def test_the_more_blur_the_farther():
    image = data.immunohistochemistry()
    trained = focus_statistics(tile_focus(cut(image)))

    distances = [focus_distance(tile_focus(cut(blurred(image, sigma))), trained) for sigma in (0.3, 0.7, 1.5, 3)]

    assert distances == sorted(distances)
    assert distances[0] < 1 < distances[-1]


def test_a_stain_half_as_strong_is_no_other_focus():
    image = data.immunohistochemistry()
    density = -np.log((image + 1.0) / 256)
    pale = np.rint(256 * np.exp(-0.7 * density) - 1).clip(0, 255).astype(np.uint8)

    assert focus_distance(tile_focus(cut(pale)), focus_statistics(tile_focus(cut(image)))) < 2


def test_focus_is_that_of_the_tissue_alone_whatever_share_of_the_tile_it_has():
    tissue = cut(data.immunohistochemistry())[10:11]
    half = tissue.copy()
    half[:, :, SIDE_PX // 2 + 1 :] = 245
    whole_left = tile_focus(tissue[:, :, : SIDE_PX // 2])

    assert tile_focus(half) == pytest.approx(whole_left, abs=0.1)


def test_of_a_large_tile_the_middle_is_looked_at():
    image = np.full((700, 900, 3), 245, np.uint8)
    tissue = data.immunohistochemistry()[:512, :512]
    image[94:606, 194:706] = tissue

    assert tile_focus(image[None]) == tile_focus(tissue[None])


def test_glass_says_nothing_and_a_painted_area_is_finite():
    white = np.full((3, 32, 32, 3), 245, np.uint8)

    assert np.isnan(tile_focus(white)).all()
    assert focus_statistics(tile_focus(white)) is None
    assert focus_statistics(np.empty(0)) is None
    assert focus_distance(tile_focus(white), FocusStatistics(5.0, 1.0, 10)) is None
    assert np.isfinite(tile_focus(np.full((1, 32, 32, 3), 100, np.uint8))).all()


def test_distance_counts_in_spreads_and_a_narrow_training_set_is_given_some():
    seen = np.array([3.0, 5.0, 4.0, np.nan])

    assert focus_distance(seen, FocusStatistics(6.0, 2.0, 9)) == 1.0
    assert focus_distance(seen, FocusStatistics(6.0, 0.0, 9)) == round(2 / LEAST_SPREAD, 2)
