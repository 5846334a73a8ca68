"""Philips and OME-TIFF: every level's pixels, unchanged tiles, the scale; or a refusal that states the cause."""

from __future__ import annotations

import imagecodecs
import numpy as np
import openslide
import pytest
import tifffile

from pipeline.box import Box
from pipeline.errors import AmbiguousSeriesError, CorruptTileError, NotBrightfieldRgbError
from pipeline.slides.common.slide import NotCopied, one_stream
from pipeline.slides.registry import open_slide
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid
from tests.pipeline.slides.make_tiff_families import write_ome_tiff, write_philips
from training.foundation.errors import UnreadableError


def check_pixels_and_tiles(path, levels):
    """Check that every level is as written, read as regions and decoded from the passed-through streams."""
    with open_slide(path) as slide:
        assert [(size.height_px, size.width_px) for size in slide.info.levels] == [p.shape[:2] for p in levels]
        for level, pixels in enumerate(levels):
            height, width = pixels.shape[:2]
            assert slide.info.levels[level].downsample == 2**level
            np.testing.assert_array_equal(slide.read_region(level, Box(0, 0, width, height)), pixels)
            encoded = slide.encoded_level(level)
            assert not isinstance(encoded, NotCopied), encoded
            assert (encoded.columns, encoded.rows) == (-(-width // 64), -(-height // 64))
            joined = np.full((encoded.rows * 64, encoded.columns * 64, 3), 255, np.uint8)
            for row in range(encoded.rows):
                for column in range(encoded.columns):
                    stream = one_stream(encoded, row, column)
                    if stream is not None:
                        tile = imagecodecs.jpeg8_decode(stream)
                        joined[row * 64 : row * 64 + 64, column * 64 : column * 64 + 64] = tile
            np.testing.assert_array_equal(joined[:height, :width], pixels)


# --- Philips -------------------------------------------------------------------------------------------------

PHILIPS_LEVELS = [np.ascontiguousarray(sample_image(512, 384)[:: 2**i, :: 2**i]) for i in range(5)]


def test_a_philips_slide_has_the_pixels_put_in_at_every_level_and_they_pass_through(tmp_path):
    """512 × 384 px in tiles of 64: level 3 is 64 × 48 px and level 4 is 32 × 24 px, both stored as 64 × 64."""
    made = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS)

    check_pixels_and_tiles(made.path, made.levels)


@pytest.mark.parametrize("missing", [(), ((1, 1), (7, 5), (0, 0))])
def test_a_philips_slide_is_what_openslide_shows_and_white_where_tiles_are_left_out(tmp_path, missing):
    made = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS, missing=missing)

    with open_slide(made.path) as slide, openslide.OpenSlide(made.path) as other:
        assert slide.info.format == "tiff:philips"
        assert other.properties["openslide.vendor"] == "philips"
        encoded = slide.encoded_level(0)
        assert [tuple(at) for at in np.argwhere(encoded.byte_counts() == 0)] == sorted((y, x) for x, y in missing)
        for level, size in enumerate(slide.info.levels):
            rgba = np.asarray(other.read_region((0, 0), level, (size.width_px, size.height_px)))
            wanted = np.where(rgba[..., 3:] == 0, 255, rgba[..., :3])
            region = slide.read_region(level, Box(0, 0, size.width_px, size.height_px))
            np.testing.assert_array_equal(region, wanted)
        for x, y in missing:
            assert (slide.read_region(0, Box(64 * x, 64 * y, 64, 64)) == 255).all()


@pytest.mark.parametrize("in_xml", [True, False])
def test_scale_scanner_label_and_macro_of_a_philips_slide_are_known(tmp_path, in_xml):
    path = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS, mm_yx=(0.000252, 0.000251), in_xml=in_xml).path

    with open_slide(path) as slide:
        assert slide.info.mpp_xy == pytest.approx((0.251, 0.252))
        assert slide.info.scanner_model == "UFS Scanner"
        assert slide.info.associated == ("label", "macro")
        assert slide.associated_image("label").shape == (20, 30, 3)
        assert slide.associated_image("macro").shape == (24, 60, 3)
        np.testing.assert_allclose(slide.associated_image("macro"), 150, atol=2)
        assert "Jane" not in repr(slide.info)
        assert "FMT0107" not in repr(slide.info)


def test_two_scans_in_one_philips_file_are_refused(tmp_path):
    path = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS[:2], scans=2).path

    with pytest.raises(UnreadableError, match="2 scans"):
        open_slide(path)


def test_a_damaged_label_of_a_philips_slide_is_a_corrupt_tile_and_the_slide_is_read(tmp_path):
    path = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS).path
    path.write_bytes(path.read_bytes().replace(b"/9j/", b"AAAA"))

    with open_slide(path) as slide:
        with pytest.raises(CorruptTileError, match="label image"):
            slide.associated_image("label")
        assert slide.read_region(0, Box(0, 0, 9, 9)).shape == (9, 9, 3)


def test_a_philips_slide_whose_xml_names_other_levels_keeps_the_right_ones(tmp_path):
    """Without the true sizes of padded levels, mismatching levels are dropped and rebuilt."""
    path = write_philips(tmp_path / "a.tiff", PHILIPS_LEVELS).path
    content = path.read_bytes()
    at = content.rindex(b'<DataObject ObjectType="PixelDataRepresentation">')
    path.write_bytes(content[:at] + content[at:].replace(b"PixelDataRepresentation", b"PixelDataRepresentatioX", 1))

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [512, 256]


# --- OME -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("bigtiff", [False, True])
def test_an_ome_tiff_with_levels_as_subifds_passes_through_in_either_byte_order(tmp_path, byteorder, bigtiff):
    levels = halved(sample_image(300, 210), 2)
    made = write_ome_tiff(tmp_path / "a.ome.tiff", levels, byteorder=byteorder, bigtiff=bigtiff)

    check_pixels_and_tiles(made.path, made.levels)
    with open_slide(made.path) as slide:
        assert (slide.info.format, slide.info.mpp_xy) == ("tiff:ome", (0.25, 0.25))


@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_a_generic_pyramid_passes_through_in_either_byte_order(tmp_path, byteorder):
    path = tmp_path / "a.tiff"
    levels = halved(sample_image(300, 210), 2)
    with tifffile.TiffWriter(path, byteorder=byteorder, bigtiff=True) as tiff:
        for level, pixels in enumerate(levels):
            tiff.write(
                pixels, tile=(64, 64), photometric="ycbcr", compression="jpeg", subfiletype=1 if level else 0,
                compressionargs={"level": 90}, subsampling=(1, 1), metadata=None,
            )  # fmt: skip
    with tifffile.TiffFile(path) as tiff:
        written = [page.asarray() for page in tiff.pages]

    check_pixels_and_tiles(path, written)


@pytest.mark.parametrize(
    ("size", "mpp"),
    [
        ((0.25, 0.2501, "µm"), (0.25, 0.2501)),
        ((0.25, 0.25, "\u03bcm"), (0.25, 0.25)),
        ((250, 250, "nm"), (0.25, 0.25)),
        ((2.5e-4, 2.5e-4, "mm"), (0.25, 0.25)),
        ((2.5e-5, 2.5e-5, "cm"), (0.25, 0.25)),
        ((2.5e-7, 2.5e-7, "m"), (0.25, 0.25)),
        ((2500, 2500, "Å"), (0.25, 0.25)),
        ((1e-5, 1e-5, "in"), (0.254, 0.254)),
        ((0.25, 0.25, "pixel"), None),
        ((0.25, 0.25, "reference frame"), None),
        ((25_000, 25_000, "µm"), None),
        (None, None),
    ],
)
def test_the_scale_of_an_ome_tiff_is_read_in_any_unit_and_never_guessed(tmp_path, size, mpp):
    path = write_ome_tiff(tmp_path / "a.ome.tiff", [sample_image(100, 80)], size=size).path

    with open_slide(path) as slide:
        assert slide.info.mpp_xy == (None if mpp is None else pytest.approx(mpp))


def test_label_macro_and_objective_of_an_ome_tiff_are_known(tmp_path):
    beside = {"label image": sample_image(90, 70, 1), "macro image": sample_image(200, 80, 2)}
    instrument = '<Instrument ID="Instrument:0"><Objective ID="Objective:0:0" NominalMagnification="40"/></Instrument>'
    made = write_ome_tiff(
        tmp_path / "a.ome.tiff", halved(sample_image(300, 210), 1), beside=beside, extra_xml=instrument
    )

    with open_slide(made.path) as slide:
        assert (slide.info.associated, slide.info.objective_power) == (("label", "macro"), 40)
        np.testing.assert_array_equal(slide.associated_image("label"), beside["label image"])
        assert len(slide.info.levels) == 2


def test_a_second_scene_of_an_ome_tiff_is_refused_and_not_forgotten(tmp_path):
    beside = {"slide #2": sample_image(280, 200, 1)}
    path = write_ome_tiff(tmp_path / "a.ome.tiff", [sample_image(300, 210)], beside=beside).path

    with pytest.raises(AmbiguousSeriesError, match=r"2 series.*0 \(300×210 px, 0.25 µm/px\); 1 \(280×200 px"):
        open_slide(path)


@pytest.mark.parametrize(
    ("extra_xml", "root_xml"),
    [
        ('<BinaryOnly MetadataFile="a.companion.ome" UUID="urn:uuid:1"/>', ""),
        (
            "<Image><Pixels><TiffData><UUID>urn:uuid:2</UUID></TiffData></Pixels></Image>",
            'UUID="urn:uuid:1"',
        ),
    ],
)
def test_one_file_of_several_is_refused(tmp_path, extra_xml, root_xml):
    made = write_ome_tiff(tmp_path / "a.ome.tiff", [sample_image(300, 210)], extra_xml=extra_xml, root_xml=root_xml)

    with pytest.raises(UnreadableError, match="files of an OME-TIFF"):
        open_slide(made.path)


@pytest.mark.parametrize("axes", ["ZYXS", "TYXS"])
@pytest.mark.parametrize("tile", [(64, 64), None], ids=["tiles", "strips"])
def test_focal_planes_and_times_of_an_ome_tiff_are_refused(tmp_path, axes, tile):
    stack = np.stack([sample_image(100, 80, seed) for seed in range(3)])
    tifffile.imwrite(tmp_path / "a.ome.tiff", stack, photometric="rgb", tile=tile, ome=True, metadata={"axes": axes})

    with pytest.raises(NotBrightfieldRgbError, match=r"3 images of 100×80 px in one stack \(axes [ZT]YXS\)"):
        open_slide(tmp_path / "a.ome.tiff")


def test_a_stack_of_pages_of_one_size_is_refused(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tiff") as tiff:
        for seed in range(3):
            tiff.write(sample_image(100, 80, seed), photometric="rgb", tile=(64, 64), metadata=None)

    with pytest.raises(AmbiguousSeriesError, match=r"3 series.*focal planes"):
        open_slide(tmp_path / "a.tiff")
    with open_slide(tmp_path / "a.tiff", series="1") as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(0, 0, 100, 80)), sample_image(100, 80, 1))


def test_fluorescence_channels_are_refused_with_their_number(tmp_path):
    stack = np.stack([sample_image(100, 80, seed)[..., 0] for seed in range(5)])
    tifffile.imwrite(tmp_path / "a.ome.tiff", stack, photometric="minisblack", ome=True, metadata={"axes": "CYX"})

    with pytest.raises(NotBrightfieldRgbError, match=r"axes CYX \(5×80×100\), as fluorescence"):
        open_slide(tmp_path / "a.ome.tiff")


def test_levels_in_any_order_are_found(tmp_path):
    levels = halved(sample_image(512, 300), 2)
    path = write_jpeg_pyramid(tmp_path / "a.tiff", [levels[0], levels[2], levels[1]], tile_px=64)

    with open_slide(path) as slide:
        assert [size.width_px for size in slide.info.levels] == [512, 256, 128]


@pytest.mark.data
@pytest.mark.parametrize(
    ("file", "found"),
    [
        ("Dana-Farber-AIOS+pathml/tests/testdata/small_vectra.qptiff", r"axes CYX \(3×1440×1920\), as fluorescence"),
        ("Dana-Farber-AIOS+pathml/tests/testdata/smalltif.tif", "1 samples of 16 bits"),
        ("hms-dbmi+viv/sites/avivator/data/multi-channel.ome.tif", r"axes CYX \(3×167×439\), as fluorescence"),
    ],
)
def test_real_files_that_are_no_brightfield_are_refused_with_what_they_are(real_slides, file, found):
    with pytest.raises(NotBrightfieldRgbError, match=found):
        open_slide(real_slides / file)
