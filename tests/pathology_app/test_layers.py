"""Layers for napari: values and micrometres, tested without napari."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from pathology_app.desktop.layers import layers_of, slide_layers
from pathology_app.desktop.pixels import LevelYxc, SlidePixels
from pathology_app.desktop.reader import napari_get_reader
from pathology_app.desktop.slide import OpenedSlide
from pipeline.project import Project
from pipeline.store.format.layout import LABELS, TISSUE
from pipeline.store.reading.reader import StoreReader
from tests.pathology_app.small_project import (
    DAMAGED_TILES,
    HEIGHT_PX0,
    MPP0,
    SLIDE_ID,
    STRIDE_PX0,
    WIDTH_PX0,
    small_predictions,
)


@pytest.fixture(scope="module")
def finest(project: Project) -> LevelYxc:
    reader = StoreReader(project.store_path(SLIDE_ID))
    return SlidePixels(reader, print).arrays(as_scanned=False)[0]


@pytest.mark.parametrize(
    "key",
    [
        (slice(100, 400), slice(1700, 1800), slice(None)),
        (slice(1290, 2000), slice(-40, None)),
        (slice(0, 600, 7), slice(5, 900, 3), 1),
        (12, 900),
        (-1, slice(0, 10)),
        slice(1000, 1003),
        (..., 2),
        (slice(5, 5), slice(0, 10)),
    ],
)
def test_a_level_is_sliced_like_an_array(finest: LevelYxc, key: object) -> None:
    whole = np.asarray(finest)
    assert whole.shape == finest.shape == (HEIGHT_PX0, WIDTH_PX0, 3)

    np.testing.assert_array_equal(finest[key], whole[key])


def test_layers_lie_over_each_other(project: Project) -> None:
    """Every layer starts at the slide's corner: its translation less half a cell is minus half a pixel."""
    layers = slide_layers(project.store_path(SLIDE_ID))

    assert [kind for _, _, kind in layers] == ["image"] * 4
    for _, keywords, _ in layers:
        assert keywords["units"] == ("micrometer", "micrometer")
        for scale_um, translate_um in zip(keywords["scale"], keywords["translate"], strict=True):
            assert translate_um - scale_um / 2 == pytest.approx(-MPP0 / 2)
    (levels, image, _), (mask_yx, tissue, _), (_, prediction, _) = layers[:3]
    assert [level.shape[:2] for level in levels] == [(1300, 1800), (650, 900), (325, 450)]
    assert image["scale"] == (MPP0, MPP0)
    assert prediction["scale"] == (STRIDE_PX0 * MPP0, STRIDE_PX0 * MPP0)
    covered_um = np.array(mask_yx.shape) * tissue["scale"]
    assert np.all(covered_um >= np.array([HEIGHT_PX0, WIDTH_PX0]) * MPP0 - tissue["scale"][0])


def test_a_slide_without_a_tissue_mask_is_shown_without_its_layer(project: Project, tmp_path: Path) -> None:
    whole = project.store_path(SLIDE_ID)
    store = shutil.copytree(whole, tmp_path / whole.name)
    shutil.rmtree(store / LABELS)

    shown = [(kind, keywords["name"]) for _, keywords, kind in slide_layers(store)]

    with_mask = [(kind, keywords["name"]) for _, keywords, kind in slide_layers(whole)]
    assert shown == [layer for layer in with_mask if layer != ("image", "tissue")] != with_mask


def test_a_damaged_tissue_mask_is_not_taken_for_none(project: Project, tmp_path: Path) -> None:
    whole = project.store_path(SLIDE_ID)
    store = shutil.copytree(whole, tmp_path / whole.name)
    (store / TISSUE / "zarr.json").write_text("{}")

    slide = OpenedSlide(store)
    layers = layers_of(slide)

    assert layers[0][1]["name"] == SLIDE_ID  # the slide can be viewed
    assert "no readable tissue mask" in slide.problems[0]


def test_predictions_keep_their_values(project: Project) -> None:
    *_, (negative, _, _), (positive, keywords, _) = slide_layers(project.store_path(SLIDE_ID))

    np.testing.assert_array_equal([negative, positive], small_predictions().probabilities_cyx.astype(np.float32))
    assert keywords["colormap"]["low_color"][3] == 0


def test_the_reader_leaves_other_folders_alone(project: Project) -> None:
    assert napari_get_reader(str(project.root)) is None
    assert napari_get_reader([str(project.store_path(SLIDE_ID))]) is None
    reader = napari_get_reader(str(project.store_path(SLIDE_ID)))
    assert reader is not None
    assert len(reader(str(project.store_path(SLIDE_ID)))) == 4


def test_damage_is_the_layer_on_top_and_is_shown(damaged_project: Project) -> None:
    mask_yx, keywords, kind = slide_layers(damaged_project.store_path(SLIDE_ID))[-1]

    assert (keywords["name"], kind, keywords["visible"]) == ("damaged in the file", "image", True)
    assert set(zip(*np.nonzero(mask_yx), strict=True)) == DAMAGED_TILES
    assert keywords["scale"] == (256 * MPP0, 256 * MPP0)
    assert keywords["translate"] == (255 * MPP0 / 2, 255 * MPP0 / 2)
