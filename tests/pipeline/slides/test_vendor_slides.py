"""Slides in vendor formats: the right reader, exact pixels of every level, white where nothing was scanned."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.errors import CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.openslide.reader import VendorSlide
from pipeline.slides.registry import open_slide
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid
from tests.pipeline.slides.make_ndpi import write_ndpi
from tests.pipeline.slides.make_vendor_slides import Made, ScnArea, write_bif, write_mrxs, write_scn
from training.foundation.errors import UnreadableError

SCN_NM = 469


def mrxs(folder) -> Made:
    """Slide of 8 × 6 images of 96 × 64 px, of which five were scanned, one of them isolated."""
    places = [(2, 1), (3, 1), (2, 2), (5, 2), (2, 4)]
    tiles = {place: sample_image(96, 64, seed=i) for i, place in enumerate(places)}
    return write_mrxs(folder / "a.mrxs", tiles, columns=8, rows=6, num_levels=3)


def ndpi(folder) -> Made:
    return write_ndpi(folder / "a.ndpi", halved(sample_image(512, 384), 2), macro=sample_image(80, 50, seed=3))


def scn(folder) -> Made:
    """Slide with two areas whose corners fall between pixels at every level, on a canvas of non-integer levels."""
    areas = [
        ScnArea(100_100, 60_250, halved(sample_image(300, 200, 1), 2)),
        ScnArea(300_333, 200_000, halved(sample_image(200, 180, 2), 2)),
    ]
    made = write_scn(folder / "a.scn", areas, slide_nm=(500_300, 400_100), nm_per_px=SCN_NM)
    levels = []
    for level in range(3):
        step_nm = SCN_NM * 2**level
        canvas = np.full((-(-400_100 // step_nm), -(-500_300 // step_nm), 3), 255, np.uint8)
        for i, area in enumerate(areas):
            pixels, x, y = made.levels[3 * i + level], area.x_nm // step_nm, area.y_nm // step_nm
            canvas[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
        levels.append(canvas)
    return Made(made.path, levels)


def bif(folder) -> Made:
    tiles = {(column, row): sample_image(64, 64, seed=column + 5 * row) for column in range(5) for row in range(3)}
    return write_bif(folder / "a.bif", tiles, columns=5, rows=3)


MAKERS = {"mirax": mrxs, "hamamatsu": ndpi, "leica": scn, "ventana": bif}


@pytest.fixture(scope="module", params=list(MAKERS))
def slide_and_truth(request, tmp_path_factory):
    made = MAKERS[request.param](tmp_path_factory.mktemp(request.param))
    with open_slide(made.path) as slide:
        assert slide.info.format == f"openslide:{request.param}"
        yield slide, made.levels


def test_every_level_has_exactly_the_pixels_that_were_put_in(slide_and_truth):
    slide, levels = slide_and_truth

    for level, pixels in enumerate(levels):
        size = slide.info.levels[level]
        assert (size.height_px, size.width_px, size.downsample) == (*pixels.shape[:2], 2**level)
        np.testing.assert_array_equal(slide.read_region(level, Box(0, 0, size.width_px, size.height_px)), pixels)


def test_a_region_anywhere_is_the_same_part_of_the_whole_and_white_outside(slide_and_truth):
    slide, levels = slide_and_truth
    random = np.random.default_rng(5)

    for level, pixels in enumerate(levels):
        around = np.pad(pixels, ((100, 100), (100, 100), (0, 0)), constant_values=255)
        for _ in range(60):
            x, y = int(random.integers(-50, pixels.shape[1] + 20)), int(random.integers(-50, pixels.shape[0] + 20))
            region = slide.read_region(level, Box(x, y, 70, 50))
            np.testing.assert_array_equal(region, around[100 + y : 150 + y, 100 + x : 170 + x], f"{level} {x} {y}")


def test_regions_read_by_many_threads_are_the_same(slide_and_truth):
    slide, levels = slide_and_truth
    corners = [(x, y) for y in range(0, 180, 30) for x in range(0, 300, 50)]

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda at: slide.read_region(0, Box(*at, 50, 30)), corners))

    for (x, y), part in zip(corners, parts, strict=True):
        np.testing.assert_array_equal(part, levels[0][y : y + 30, x : x + 50])


def test_nothing_of_a_patient_or_user_is_in_what_a_slide_says_of_itself(slide_and_truth):
    slide, _ = slide_and_truth

    assert "Jane" not in repr(slide.info)
    assert "SN-123" not in repr(slide.info)
    assert "a." not in repr(slide.info.format)


@pytest.mark.parametrize(
    ("maker", "mpp", "power", "model", "associated"),
    [
        ("mirax", 0.25, 20, None, {"label", "macro", "thumbnail"}),
        ("hamamatsu", 0.5, 20, "NanoZoomer 2.0-HT", {"macro"}),
        ("leica", SCN_NM / 1000, 20, "Leica SCN400", {"macro"}),
        ("ventana", 0.465, 20, "iScan HT", {"macro"}),
    ],
)
def test_scale_objective_scanner_and_associated_images_are_known(tmp_path, maker, mpp, power, model, associated):
    with open_slide(MAKERS[maker](tmp_path).path) as slide:
        info = slide.info
        assert info.mpp_xy == pytest.approx((mpp, mpp), rel=1e-6)
        assert (info.objective_power, info.scanner_model, set(info.associated)) == (power, model, associated)
        for name in associated:
            assert slide.associated_image(name).ndim == 3


def test_what_was_scanned_of_a_mirax_slide_is_said_and_its_frame_is_not_cropped(tmp_path):
    with open_slide(mrxs(tmp_path).path) as slide:
        assert slide.info.bounds_px0 == (2 * 96, 1 * 64, 4 * 96, 4 * 64)
        assert (slide.info.levels[0].width_px, slide.info.levels[0].height_px) == (8 * 96, 6 * 64)


def test_a_slide_scanned_to_its_borders_has_no_bounds(tmp_path):
    with open_slide(ndpi(tmp_path).path) as slide:
        assert slide.info.bounds_px0 is None


def test_an_unscanned_area_of_any_size_is_white_without_asking_openslide(tmp_path):
    tiles = {(3, 2): sample_image(96, 64)}
    path = write_mrxs(tmp_path / "a.mrxs", tiles, columns=4000, rows=4000, num_levels=2).path

    with VendorSlide(path) as slide:
        assert list(slide._levels[0]._pieces(Box(100_000, 50_000, 200_000, 100_000))) == []
        assert [max(piece[2:]) for piece in slide._levels[0]._pieces(Box(0, 0, 384_000, 256_000))] == [100]
        assert (slide.read_region(0, Box(100_000, 50_000, 300, 200)) == 255).all()


def test_a_large_region_is_read_in_pieces_and_stays_whole(tmp_path):
    levels = halved(sample_image(2600, 2300), 1)
    path = write_jpeg_pyramid(tmp_path / "a.tiff", levels, photometric="rgb", subsampling="444")

    with VendorSlide(path) as slide, open_slide(path) as same:
        box = Box(3, 5, 2590, 2290)
        assert max(max(piece[2:]) for piece in slide._levels[0]._pieces(box)) == 2048
        np.testing.assert_array_equal(slide.read_region(0, box), same.read_region(0, box))


def test_a_level_that_openslide_could_only_blend_is_left_out(tmp_path):
    """1003 / 251 is not a whole number: pixels of that level start between level-0 pixels."""
    levels = [sample_image(1003, 601), sample_image(502, 301), sample_image(251, 151)]
    path = write_jpeg_pyramid(tmp_path / "a.tiff", levels, tile_px=64)
    whole = write_jpeg_pyramid(tmp_path / "b.tiff", halved(sample_image(1024, 512), 2), tile_px=64)

    with VendorSlide(path) as slide, VendorSlide(path, every_level=True) as all_levels:
        assert [level.width_px for level in slide.info.levels] == [1003]
        assert [level.width_px for level in all_levels.info.levels] == [1003, 502, 251]
    with VendorSlide(whole) as slide:
        assert [level.width_px for level in slide.info.levels] == [1024, 512, 256]


def test_all_files_of_a_slide_are_known(tmp_path):
    path = mrxs(tmp_path).path
    folder = tmp_path / "a"

    with open_slide(path) as slide:
        assert slide.files == tuple(sorted([path, *folder.iterdir()]))
        assert len(slide.files) == 4
    with open_slide(ndpi(tmp_path).path) as slide:
        assert slide.files == (tmp_path / "a.ndpi",)


def test_one_damaged_tile_does_not_take_the_others_with_it(tmp_path):
    """OpenSlide's handle refuses everything after its first error."""
    made = mrxs(tmp_path)
    data = tmp_path / "a" / "Data0000.dat"
    content = bytearray(data.read_bytes())
    content[9:300] = bytes(291)  # the first image, (2, 1)
    data.write_bytes(content)

    with open_slide(made.path) as slide:
        for _ in range(2):
            with pytest.raises(CorruptTileError, match=r"^a\.mrxs: OpenSlide cannot read level 0 at x=192, y=64"):
                slide.read_region(0, Box(192, 64, 96, 64))
            np.testing.assert_array_equal(slide.read_region(0, Box(288, 64, 96, 64)), made.levels[0][64:128, 288:384])


@pytest.mark.parametrize("lost", ["a", "a/Slidedat.ini", "a/Index.dat"])
def test_a_mirax_slide_without_its_companions_is_unreadable(tmp_path, lost):
    path = mrxs(tmp_path).path
    (tmp_path / lost).rename(tmp_path / "elsewhere")

    with pytest.raises(UnreadableError, match="companion files"):
        open_slide(path)


def test_a_mirax_fluorescence_slide_is_refused(tmp_path):
    path = mrxs(tmp_path).path
    ini = tmp_path / "a" / "Slidedat.ini"
    ini.write_bytes(ini.read_bytes().replace(b"[GENERAL]", b"[GENERAL]\r\nSLIDE_TYPE = SLIDE_TYPE_FLUORESCENCE"))

    with pytest.raises(NotBrightfieldRgbError, match="fluorescence"):
        open_slide(path)


def test_an_ndpi_of_grey_images_is_refused(tmp_path):
    path = write_ndpi(tmp_path / "a.ndpi", [sample_image(512, 384)[..., 0]]).path

    with pytest.raises(NotBrightfieldRgbError, match="color components != 3"):
        open_slide(path)


@pytest.mark.parametrize(
    "tag", [(65434, 2, 4, b"DAP\0"), (65441, 4, 1, 17), (65451, 4, 1, 461)], ids=["filters", "mode", "wavelength"]
)
def test_an_ndpi_imaged_in_fluorescence_is_refused(tmp_path, tag):
    levels = halved(sample_image(512, 384), 1)

    with pytest.raises(NotBrightfieldRgbError, match="fluorescence"):
        open_slide(write_ndpi(tmp_path / "a.ndpi", levels, more_tags=[tag]).path)
    plain = [(65434, 2, 4, bytes(4)), (65441, 4, 1, 0), (65451, 4, 1, 0)]
    with open_slide(write_ndpi(tmp_path / "b.ndpi", levels, more_tags=plain).path) as slide:
        assert slide.info.levels[0].width_px == 512


def test_a_leica_fluorescence_slide_is_refused(tmp_path):
    path = scn(tmp_path).path
    path.write_bytes(path.read_bytes().replace(b">brightfield<", b">fluorescent<"))

    with pytest.raises(UnreadableError, match="OpenSlide"):
        open_slide(path)
