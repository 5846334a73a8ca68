"""Tissue is detected correctly on bright, grey and pale slides alike."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from pipeline.box import Box
from pipeline.demo.make_slides import ENLARGED, MPP0, SLIDES, make_slide, tissue_field
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.tissue.detection import background_colour, find_tissue
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TissueConfig
from pipeline.slides.registry import open_slide
from pipeline.store.layers.labels import read_tissue
from tests.pipeline.make import PLAIN_TISSUE, ingest, write_pyramid

VISIUM = "scverse+scanpy/tests/_data/visium_data/1.0.0/spatial/tissue_lowres_image.png"


@pytest.mark.data
@pytest.mark.xdist_group("polyp")
def test_the_mask_of_a_real_slide_agrees_with_the_published_one(polyp, polyp_store):
    truth = np.asarray(Image.open(polyp.with_name("P2_0039_section1_tissue_mask_ds16.png"))) > 0
    mask, mpp = read_tissue(polyp_store.store)
    mask = mask.astype(bool)

    assert mpp == 8.0
    assert mask.shape == truth.shape
    assert (mask & truth).sum() / (mask | truth).sum() >= 0.90


@pytest.mark.data
def test_nothing_is_claimed_outside_the_frame_of_dots_on_a_grey_slide(real_slides, tmp_path):
    image = np.asarray(Image.open(real_slides / VISIUM).convert("RGB"))
    source = write_pyramid(tmp_path / "a.tiff", [image], compression="lzw", mpp=17.0)
    report = ingest_slide(IngestRequest(source, "visium"), Project(tmp_path), IngestConfig())
    mask, mpp = read_tissue(report.store)

    assert (mpp, mask.shape) == (17.0, image.shape[:2])
    assert 0.1 < mask.mean() < 0.6
    # Read off the image: dots are in rows 84–108 and 534–558 and in columns 526–556, none of them under tissue;
    # on the left, columns 88–118, the tissue covers them.
    assert not mask[:115].any()
    assert not mask[515:].any()
    assert not mask[:, 524:].any()
    assert not mask[:, :86].any()
    assert mask[140:500, 160:500].mean() > 0.95


@pytest.fixture(scope="module")
def negative_demo_slide(tmp_path_factory):
    """Pale, DAB-negative tissue on glass, which saturation alone misses."""
    folder = tmp_path_factory.mktemp("pale")
    slide = next(s for s in SLIDES if not s.has_positive)
    make_slide(folder / "pale.tiff", slide)
    report = ingest_slide(IngestRequest(folder / "pale.tiff", "pale"), Project(folder), IngestConfig())
    return report.store, tissue_field(np.random.default_rng(slide.seed)) > 0


def test_pale_tissue_is_kept_and_glass_is_not(negative_demo_slide):
    store, truth = negative_demo_slide
    mask, mpp = read_tissue(store)
    # Truth at the centre of each cell of the mask; cells on the frayed edge are left out.
    at_px = [((np.arange(n) + 0.5) * mpp / (MPP0 * ENLARGED)).astype(int) for n in mask.shape]
    tissue = truth[np.ix_(*(np.minimum(a, n - 1) for a, n in zip(at_px, truth.shape, strict=True)))]
    core, glass = ndimage.binary_erosion(tissue, iterations=2), ~ndimage.binary_dilation(tissue, iterations=2)

    assert mask[core].mean() >= 0.95
    assert mask[glass].mean() <= 0.01


def disc_on(background, colour, *, size=(220, 300), noise=2.0):
    random = np.random.default_rng(0)
    y, x = np.mgrid[: size[0], : size[1]]
    inside = np.hypot(y - 100, x - 130) < 60
    pixels = np.where(inside[..., None], colour, background) + random.normal(0, noise, (*size, 1))
    return np.clip(pixels, 0, 255).astype(np.uint8), inside


@pytest.mark.parametrize("background", [(255, 255, 255), (243, 243, 240), (200, 200, 205), (165, 170, 168)])
def test_tissue_is_found_on_white_yellowish_and_grey_glass(background):
    pixels, inside = disc_on(background, (190, 120, 160))

    mask = find_tissue(pixels, 8.0, TissueConfig()).mask_yx

    assert (mask & inside).sum() / (mask | inside).sum() > 0.95


def test_dust_is_dropped_and_narrow_gaps_are_closed():
    pixels, inside = disc_on((240, 240, 240), (190, 120, 160))
    pixels[20:23, 20:23] = (40, 40, 40)  # 24 µm of dust
    pixels[:, 129:131] = (240, 240, 240)  # a crack of 16 µm

    mask = find_tissue(pixels, 8.0, TissueConfig()).mask_yx

    assert not mask[:40, :60].any()
    assert mask[inside].mean() > 0.99


@pytest.mark.parametrize("colour", [(255, 255, 255), (200, 200, 200)])
def test_an_empty_slide_has_no_tissue(colour):
    pixels = np.full((120, 200, 3), colour, np.uint8)

    assert find_tissue(pixels, 8.0, TissueConfig()).fraction == 0


def test_a_slide_without_glass_in_view_is_tissue_everywhere():
    pixels = np.clip(np.random.default_rng(0).normal((190, 120, 160), 15, (120, 200, 3)), 0, 255).astype(np.uint8)

    assert find_tissue(pixels, 8.0, TissueConfig()).fraction == 1


def test_the_background_is_the_commonest_light_colour_and_not_the_lightest():
    lab = np.zeros((100, 100, 3), np.float32)
    lab[..., 0] = 85
    lab[:10, :, 0] = 99

    level, a, b = background_colour(lab)

    assert (round(level), round(a), round(b)) == (85, 0, 0)


# --- impossible colours --------------------------------------------------------------------------


def as_ycc(pixels):
    """Y, Cb, Cr shown as R, G, B."""
    return np.ascontiguousarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2YCrCb)[..., [0, 2, 1]])


def as_if_ycc(pixels):
    """R, G, B taken for Y, Cb, Cr."""
    return cv2.cvtColor(np.ascontiguousarray(pixels[..., [0, 2, 1]]), cv2.COLOR_YCrCb2RGB)


def a_slide(background):
    """Purple tissue on glass."""
    random = np.random.default_rng(0)
    pixels = np.full((300, 420, 3), background, np.int64)
    pixels[60:240, 90:330] = (178, 110, 170)
    return np.clip(pixels + random.integers(-12, 12, pixels.shape), 0, 255).astype(np.uint8)


@pytest.mark.parametrize("background", [(244, 242, 245), (205, 204, 208)], ids=["white", "grey"])
def test_wrong_colours_are_said_where_all_would_be_tissue_and_nothing_is_glass(background):
    pixels = a_slide(background)

    for shown in (as_ycc(pixels), as_if_ycc(pixels)):
        warning = find_tissue(shown, 4.0, PLAIN_TISSUE).warning
        assert warning
        assert "none of it is grey-white" in warning
    assert find_tissue(pixels, 4.0, PLAIN_TISSUE).warning is None


def test_grey_glass_beside_tissue_is_no_wrong_colour():
    assert find_tissue(a_slide((150, 150, 152)), 4.0, PLAIN_TISSUE).warning is None


def test_a_slide_of_wrong_colours_is_stored_with_a_warning_that_is_kept(tmp_path):
    source = write_pyramid(tmp_path / "a.tiff", [as_ycc(a_slide((244, 242, 245)))], compression="lzw", mpp=4.0)

    first, again = ingest(source, tmp_path), ingest(source, tmp_path)

    assert "none of it is grey-white" in first.warnings[0]
    assert (again.skipped, again.warnings) == (True, first.warnings)


@pytest.mark.data
@pytest.mark.xdist_group("polyp")
def test_a_real_slide_is_plausible_and_its_colours_swapped_are_not(polyp, polyp_store):
    assert polyp_store.warnings == ()
    with open_slide(polyp) as slide:
        size = slide.info.levels[-1]
        overview = slide.read_region(len(slide.info.levels) - 1, Box(0, 0, size.width_px, size.height_px))
        mpp = 0.5 * size.downsample
    for shown in (as_ycc(overview), as_if_ycc(overview)):
        assert find_tissue(shown, mpp, TissueConfig()).warning
    assert find_tissue(overview, mpp, TissueConfig()).warning is None
