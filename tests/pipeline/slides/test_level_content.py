"""What is read as a level shows the slide: an image that only has its proportions is left out, and so is a stack."""

from __future__ import annotations

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import AmbiguousSeriesError, NotBrightfieldRgbError
from pipeline.slides.common.level_content import shows_another_image
from pipeline.slides.registry import open_slide
from tests.pipeline.make import sample_image
from tests.pipeline.slides.make_ome_zarr import create, state_scales, write_image
from tests.pipeline.slides.make_tiff_families import write_ome_tiff
from tests.pipeline.slides.test_which_image_is_the_slide import LEVELS, page, write_pages


def test_a_level_a_thousand_times_smaller_is_compared_without_reading_the_whole_slide(tmp_path):
    boxes = []

    def fine(box):
        boxes.append(box)
        return np.full((box.height_px, box.width_px, 3), 255, np.uint8)

    for width in (100, 2000, 30_000):
        coarse = np.zeros((width // 2, width, 3), np.uint8)
        assert shows_another_image(
            lambda box, image=coarse: image[: box.height_px, : box.width_px], (width, width // 2),
            fine, (100_000, 50_000), [Box(0, 0, width, width // 2)],
        )  # fmt: skip
    assert max(max(box.size_wh_px) for box in boxes) <= 1024


def on_glass(width_px, height_px):
    """A slide with a wide margin around its tissue."""
    pixels = np.full((height_px, width_px, 3), 242, np.uint8)
    inside = (slice(height_px // 4, height_px), slice(width_px // 3, width_px))
    pixels[inside] = tissue_like(width_px, height_px)[inside]
    return pixels


def tissue_like(width_px, height_px):
    random = np.random.default_rng(1)
    blobs = cv2.GaussianBlur(random.normal(0, 255, (height_px, width_px, 3)), (0, 0), 9)
    return np.clip(150 + blobs * 8 + random.integers(-8, 8, blobs.shape), 0, 255).astype(np.uint8)


def white_label(width_px, height_px):
    label = np.full((height_px, width_px, 3), 250, np.uint8)
    cv2.putText(
        label, "DOE, JANE", (width_px // 6, height_px // 2), cv2.FONT_HERSHEY_SIMPLEX, width_px / 300, (0, 0, 0), 2
    )
    return label


GLASS = on_glass(1200, 880)
OF_ITS_SHAPE = {
    "a white label": white_label(600, 440),
    "a small white label": white_label(150, 110),
    "a crop": np.ascontiguousarray(GLASS[220:660, 300:900]),
    "a turned level": np.ascontiguousarray(GLASS[::-2, ::-2]),
}


@pytest.mark.parametrize("tile_px", [128, 512])
@pytest.mark.parametrize("case", OF_ITS_SHAPE)
def test_an_image_of_the_slide_s_shape_that_shows_something_else_is_no_level(tmp_path, case, tile_px):
    other, layout = OF_ITS_SHAPE[case], {"tile": (tile_px, tile_px)}
    tiff = write_pages(tmp_path / "a.tif", page(GLASS, mpp=0.5, layout=layout), page(other, layout=layout))
    zarr_path = tmp_path / "a.zarr"
    write_image(create(zarr_path), [GLASS, other], mpp=0.5)
    state_scales(zarr_path, [0.5, 0.5 * 1200 / other.shape[1]])

    for path in (tiff, zarr_path, write_ome_tiff(tmp_path / "a.ome.tiff", [GLASS, other]).path):
        with open_slide(path, "0" if path == tiff else None) as slide:
            assert len(slide.info.levels) == 1
            assert [f"left out as a level (level of {other.shape[1]}" in text for text in slide.info.warnings] == [True]


def in_other_colours(change):
    tinted = np.clip(GLASS * [1.0, 0.8, 0.92], 0, 255).astype(np.uint8)
    return tinted, np.ascontiguousarray(change(tinted[::2, ::2]))


OTHER_COLOURS = {
    "red and blue exchanged": lambda level: level[..., ::-1],
    "a quarter darker": lambda level: (level * 0.75).astype(np.uint8),
    "Y, Cb, Cr for R, G, B": lambda level: cv2.cvtColor(level, cv2.COLOR_RGB2YCrCb),
    "R, G, B for Y, Cb, Cr": lambda level: cv2.cvtColor(level, cv2.COLOR_YCrCb2RGB),
    "negative": lambda level: 255 - level,
    "grey": lambda level: np.repeat(cv2.cvtColor(level, cv2.COLOR_RGB2GRAY)[..., None] // 2, 3, 2),
}


@pytest.mark.parametrize("case", OTHER_COLOURS)
def test_levels_whose_colours_contradict_each_other_do_not_pass_for_one_slide(tmp_path, case):
    pixels, level = in_other_colours(OTHER_COLOURS[case])
    chained = write_pages(tmp_path / "a.tif", page(pixels, mpp=0.5), page(level))
    write_image(create(tmp_path / "a.zarr"), [pixels, level], mpp=0.5)

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0 \(1200×880 px.*; 1 \(600×440 px"):
        open_slide(chained)
    for path in (tmp_path / "a.zarr", write_pages(tmp_path / "b.tif", page(pixels, mpp=0.5, below=[level]))):
        with open_slide(path) as slide:
            assert len(slide.info.levels) == 1
            assert ["in other colours" in text for text in slide.info.warnings] == [True]


LEVELS_BY = {
    "nearest": lambda pixels: pixels[::2, ::2],
    "sharpened": lambda pixels: cv2.addWeighted(
        area := cv2.resize(pixels, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), 2.5,
        cv2.GaussianBlur(area, (0, 0), 1.5), -1.5, 0,
    ),
    "poor JPEG": lambda pixels: imagecodecs.jpeg8_decode(imagecodecs.jpeg8_encode(pixels[::2, ::2].copy(), level=20)),
    "shifted by a pixel": lambda pixels: np.roll(pixels, (2, 2), (0, 1))[::2, ::2],
}  # fmt: skip


@pytest.mark.parametrize("case", LEVELS_BY)
def test_a_level_remains_one_however_it_was_reduced(tmp_path, case):
    level = np.ascontiguousarray(LEVELS_BY[case](GLASS))
    tiff = write_pages(tmp_path / "a.tif", page(GLASS, mpp=0.5), page(level))
    write_image(create(tmp_path / "a.zarr"), [GLASS, level], mpp=0.5)

    for path in (tiff, tmp_path / "a.zarr"):
        with open_slide(path) as slide:
            assert [size.width_px for size in slide.info.levels] == [1200, 600]
            assert list(slide.info.warnings) == []


def test_an_array_whose_scale_contradicts_its_size_is_no_level(tmp_path):
    write_image(create(tmp_path / "a.zarr"), LEVELS, mpp=0.5)
    state_scales(tmp_path / "a.zarr", [0.5, 0.5, 2.0])

    with open_slide(tmp_path / "a.zarr") as slide:
        assert [size.width_px for size in slide.info.levels] == [600, 150]
        assert ["scale that contradicts its size" in text for text in slide.info.warnings] == [True]


def test_a_stack_behind_one_page_is_refused(tmp_path):
    stack = np.stack([sample_image(300, 210, seed) for seed in range(3)])
    tifffile.imwrite(tmp_path / "a.tif", stack, photometric="rgb", truncate=True)
    tifffile.imwrite(tmp_path / "b.tif", stack[:1], photometric="rgb", truncate=True)

    with pytest.raises(NotBrightfieldRgbError, match="3 images of 300×210 px in one stack"):
        open_slide(tmp_path / "a.tif")
    with open_slide(tmp_path / "b.tif"):
        pass
