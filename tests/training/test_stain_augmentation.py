"""Stains are changed as stains: in the optical density of haematoxylin, eosin and DAB, and never on glass."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from skimage import data
from skimage.color import hed2rgb, rgb2hed

from training.data.augment import FULLY_STAINED, augment, change_stains
from training.data.tile_dataset import open_source, stain_of
from training.foundation.errors import BadRecipeError
from training.recipe.config import AugmentConfig, DataConfig

ONE, NONE = np.ones(3), np.zeros(3)


@pytest.fixture(scope="module")
def tile():
    return np.ascontiguousarray(data.immunohistochemistry()[100:200, 60:160])


def test_nothing_asked_changes_nothing(tile):
    assert np.array_equal(change_stains(tile, ONE, NONE), tile)


@pytest.mark.parametrize("stain", [0, 1, 2])
def test_gains_change_one_stain_as_scikit_images_deconvolution_does(stain):
    # Some of each stain everywhere: scikit-image cuts negative concentrations off, as augmentation does not.
    hed = np.random.default_rng(0).uniform(0.005, 0.04, (60, 70, 3))
    pixels = np.rint(256 * hed2rgb(hed) - 1).astype(np.uint8)
    gains = ONE.copy()
    gains[stain] = 1.3
    theirs = 256 * hed2rgb(rgb2hed((pixels + 1) / 256) * gains) - 1

    ours = change_stains(pixels, gains, NONE)

    assert np.abs(ours - theirs).max() < 1
    assert np.abs(ours.astype(int) - pixels).mean() > 3


@pytest.mark.parametrize("gains", [(0.8, 1.2, 1.0), (1.2, 0.8, 1.19)])
@pytest.mark.parametrize("shifts", [(0.2, -0.2, 0.2), (-0.2, -0.2, -0.2)])
def test_glass_stays_white(gains, shifts):
    white = np.full((5, 6, 3), 255, np.uint8)

    assert (change_stains(white, np.array(gains), np.array(shifts)) == 255).all()


def test_shifts_fade_out_towards_glass():
    greys = np.arange(200, 256, dtype=np.uint8)
    ramp = np.repeat(greys[None, :, None], 3, -1)

    changed = change_stains(ramp, ONE, np.full(3, 0.2)).astype(int)

    darker = (ramp.astype(int) - changed).max(-1)[0]
    assert darker[-1] == 0
    assert (np.abs(np.diff(changed, axis=1)) <= 4).all()
    assert darker[0] > 20
    assert -np.log(201 / 256) > FULLY_STAINED


@pytest.mark.parametrize("grey", [0, 1, 128, 254])
def test_tiles_of_one_colour_stay_of_one_colour(grey):
    changed = change_stains(np.full((4, 4, 3), grey, np.uint8), np.array([0.8, 1.2, 1.1]), np.array([0.2, -0.2, 0.1]))

    assert len(np.unique(changed.reshape(-1, 3), axis=0)) == 1


def test_the_same_tile_at_the_same_step_changes_the_same_way(tile):
    tiles, config = np.stack([tile, tile]), AugmentConfig(flips=False, stain=0.2)

    first, second = augment(tiles, np.array([3, 4]), epoch=5, seed=0, config=config)
    alone = augment(tiles[:1], np.array([4]), epoch=5, seed=0, config=config)[0]

    assert not np.array_equal(first, second)
    assert np.array_equal(second, alone)


def test_light_augmentation_changes_less_than_strong(tile):
    def change(strength):
        config = AugmentConfig(flips=False, stain=strength)
        looks = augment(np.stack([tile] * 8), np.arange(8), epoch=0, seed=0, config=config)
        return np.abs(looks.astype(float) - tile).mean()

    assert 0.5 < change(0.05) < change(0.2) / 2 < 40


class Plain:
    """Dataset without stain augmentation."""

    Error = ValueError

    def __init__(self, project_dir, tile_set, classes):
        self.asked = (project_dir, tile_set, classes)


class Normalising(Plain):
    def __init__(self, project_dir, tile_set, classes, *, stain="none"):
        super().__init__(project_dir, tile_set, classes)
        self.stain = {"method": stain}


def test_a_dataset_is_asked_for_normalised_stains_only_when_a_recipe_wants_them(monkeypatch):
    monkeypatch.setattr("training.data.tile_dataset.find_source", {"plain": Plain, "normalising": Normalising}.get)

    plain = open_source(DataConfig(tile_set="t", source="plain"), Path("p"))
    source = open_source(DataConfig(tile_set="t", source="normalising", stain="macenko"), Path("p"))

    assert plain.asked == (Path("p"), "t", ())
    assert stain_of(plain) is None
    assert stain_of(source) == {"method": "macenko"}
    with pytest.raises(BadRecipeError, match="dataset 'plain' does not normalise stains"):
        open_source(DataConfig(tile_set="t", source="plain", stain="reinhard"), Path("p"))
