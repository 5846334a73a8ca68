"""DICOM slides: the right pixels from every kind of frame, unchanged frames, and folders as pyramids."""

from __future__ import annotations

import io
import subprocess
import sys

import imagecodecs
import numpy as np
import openslide
import pytest
from PIL import Image
from pydicom.dataset import Dataset

from pipeline.box import Box
from pipeline.slides.registry import open_slide
from tests.pipeline.make import sample_image
from tests.pipeline.slides import make_dicom as make
from tests.pipeline.slides.make_dicom import tiles_of, write_dicom

WIDTH_PX, HEIGHT_PX = 300, 200  # 5 × 4 tiles of 64 px
JPEG_RGB = {"encode": make.jpeg_rgb, "photometric": "RGB"}
LOSSLESS = {
    "native": {"syntax": make.NATIVE, "encode": make.native, "photometric": "RGB"},
    "implicit": {"syntax": make.IMPLICIT, "encode": make.native, "photometric": "RGB"},
    "encapsulated": {"syntax": make.ENCAPSULATED_NATIVE, "encode": make.native, "photometric": "RGB"},
    "jpeg_2000": {"syntax": make.JPEG_2000_LOSSLESS, "encode": make.jpeg_2000, "photometric": "YBR_RCT"},
    "jpeg_2000_plain": {
        "syntax": make.JPEG_2000_LOSSLESS, "encode": make.jpeg_2000_without_transform, "photometric": "RGB",
    },
    "htj2k": {"syntax": make.HTJ2K, "encode": make.htj2k, "photometric": "YBR_RCT"},
    "jpeg_ls": {"syntax": make.JPEG_LS, "encode": make.jpeg_ls, "photometric": "RGB"},
    "jpeg_lossless": {"syntax": make.JPEG_LOSSLESS, "encode": make.jpeg_lossless, "photometric": "RGB"},
    "rle": {"syntax": make.RLE, "encode": make.rle, "photometric": "RGB"},
}  # fmt: skip


@pytest.fixture
def pixels():
    return sample_image(WIDTH_PX, HEIGHT_PX)


def through(pixels, encode, decode, tile_wh=(64, 64)):
    """Image after a lossy codec was applied to each tile."""
    tiles = [decode(encode(tile)) for tile in tiles_of(pixels, tile_wh)]
    columns = -(-pixels.shape[1] // tile_wh[0])
    rows = [np.hstack(tiles[at : at + columns]) for at in range(0, len(tiles), columns)]
    return np.vstack(rows)[: pixels.shape[0], : pixels.shape[1]]


def by_pillow(stream):
    return np.asarray(Image.open(io.BytesIO(stream)).convert("RGB"))


def whole(slide, level=0):
    size = slide.info.levels[level]
    return slide.read_region(level, Box(0, 0, size.width_px, size.height_px))


@pytest.mark.parametrize("coded", LOSSLESS.values(), ids=LOSSLESS)
def test_every_lossless_kind_of_frame_gives_the_pixels_back(tmp_path, pixels, coded):
    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, **coded)) as slide:
        np.testing.assert_array_equal(whole(slide), pixels)


def test_colour_planes_that_are_stored_apart_are_put_together(tmp_path, pixels):
    def planar(ds):
        ds.PlanarConfiguration = 1

    def encode(tile):
        return np.moveaxis(tile, -1, 0).tobytes()

    path = write_dicom(tmp_path / "a.dcm", pixels, syntax=make.NATIVE, encode=encode, photometric="RGB", change=planar)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(whole(slide), pixels)


@pytest.mark.parametrize("said", ["RGB", "YBR_FULL_422", "YBR_ICT"])
@pytest.mark.parametrize("encode", [make.jpeg_ycc, make.jpeg_rgb], ids=["ycc", "rgb"])
def test_markers_in_a_jpeg_count_and_not_what_the_file_says_of_its_colours(tmp_path, pixels, encode, said):
    path = write_dicom(tmp_path / "a.dcm", pixels, encode=encode, photometric=said)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(whole(slide), through(pixels, encode, by_pillow))


@pytest.mark.parametrize(
    ("encode", "said", "marked"),
    [
        (make.jpeg_bare, "RGB", make.jpeg_rgb),
        (make.jpeg_ycc_bare, "YBR_FULL_422", make.jpeg_ycc),
        (make.jpeg_ycc_bare, "RGB", make.jpeg_ycc),  # no scanner samples red more coarsely than green
    ],
)
def test_a_jpeg_without_markers_is_read_as_the_file_says_unless_its_sampling_speaks_against(
    tmp_path, pixels, encode, said, marked
):
    path = write_dicom(tmp_path / "a.dcm", pixels, encode=encode, photometric=said)
    expected = through(pixels, marked, by_pillow)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(whole(slide), expected)
        np.testing.assert_array_equal(from_streams(slide), expected)


def from_streams(slide, level=0):
    """Image from every tile's stream, decoded as by a reader of the store."""
    encoded = slide.encoded_level(level)
    decode = imagecodecs.jpeg8_decode if encoded.codec == "imagecodecs_jpeg" else imagecodecs.jpeg2k_decode
    white = np.full((encoded.tile_px, encoded.tile_px, 3), 255, np.uint8)
    rows = [
        np.hstack(
            [decode(b"".join(stream)) if stream else white for stream in encoded.streams(row, range(encoded.columns))]
        )
        for row in range(encoded.rows)
    ]
    size = slide.info.levels[level]
    return np.vstack(rows)[: size.height_px, : size.width_px]


@pytest.mark.parametrize("offsets", ["basic", "extended", "none"])
@pytest.mark.parametrize(
    ("syntax", "encode", "said"),
    [
        (make.JPEG, make.jpeg_ycc, "YBR_FULL_422"),
        (make.JPEG, make.jpeg_bare, "RGB"),
        (make.JPEG_EXTENDED, make.jpeg_ycc, "YBR_FULL_422"),
        (make.JPEG_2000_LOSSLESS, make.jpeg_2000, "YBR_RCT"),
        (make.JPEG_2000, make.jpeg_2000_lossy, "YBR_ICT"),
    ],
)
def test_streams_have_the_pixels_of_the_slide(tmp_path, pixels, syntax, encode, said, offsets):
    path = write_dicom(tmp_path / "a.dcm", pixels, syntax=syntax, encode=encode, photometric=said, offsets=offsets)

    with open_slide(path) as slide:
        np.testing.assert_array_equal(from_streams(slide), whole(slide))


def test_a_frame_is_passed_byte_for_byte_without_its_padding(tmp_path, pixels):
    encoded_tiles = [make.jpeg_ycc(tile) for tile in tiles_of(pixels, (64, 64))]
    assert {len(tile) % 2 for tile in encoded_tiles} == {0, 1}

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels)) as slide:
        encoded = slide.encoded_level(0)
        streams = [b"".join(s) for row in range(4) for s in encoded.streams(row, range(5))]
        counts = encoded.byte_counts()

    assert streams == encoded_tiles
    assert counts.shape == (4, 5)
    assert counts.ravel().tolist() == [len(tile) + len(tile) % 2 for tile in encoded_tiles]
    assert slide.info.levels[0].tile_px == 64


def test_a_frame_in_several_fragments_is_put_together(tmp_path, pixels):
    frames = [make.jpeg_ycc(tile) for tile in tiles_of(pixels, (64, 64))]

    def in_pieces(ds):
        make.put_pixels(ds, frames, "basic")
        ds.PixelData = make.encapsulate(frames, fragments_per_frame=3, has_bot=True)

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, change=in_pieces)) as slide:
        encoded = slide.encoded_level(0)
        assert [b"".join(s) for row in range(4) for s in encoded.streams(row, range(5))] == frames


@pytest.mark.parametrize(
    ("coded", "reason"),
    [
        ({**JPEG_RGB, "tile_wh": (64, 48)}, "64×48 px, not square"),
        (LOSSLESS["htj2k"], "high-throughput"),
        (LOSSLESS["rle"], "not compressed with JPEG"),
    ],
)
def test_frames_that_cannot_pass_say_why_and_are_decoded_all_the_same(tmp_path, pixels, coded, reason):
    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, **coded)) as slide:
        assert reason in slide.encoded_level(0).reason
        assert whole(slide).shape == (HEIGHT_PX, WIDTH_PX, 3)


@pytest.mark.parametrize("box", [(-10, -20, 70, 90), (60, 60, 10, 10), (280, 190, 50, 50), (400, 10, 20, 20)])
def test_a_region_is_cut_out_of_the_slide_and_white_outside_it(tmp_path, pixels, box):
    x, y, width, height = box
    around = np.full((HEIGHT_PX + 400, WIDTH_PX + 400, 3), 255, np.uint8)
    around[100 : 100 + HEIGHT_PX, 100 : 100 + WIDTH_PX] = pixels

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, **LOSSLESS["native"])) as slide:
        np.testing.assert_array_equal(
            slide.read_region(0, Box(*box)), around[y + 100 : y + 100 + height, x + 100 : x + 100 + width]
        )


def test_a_large_single_frame_is_read_in_pieces(tmp_path):
    pixels = sample_image(1700, 1300)
    path = write_dicom(tmp_path / "a.dcm", pixels, tile_wh=(1700, 1300), **LOSSLESS["jpeg_ls"])

    with open_slide(path) as slide:
        np.testing.assert_array_equal(slide.read_region(0, Box(600, 500, 700, 300)), pixels[500:800, 600:1300])


def test_frames_of_a_sparse_slide_lie_where_they_say_and_the_rest_is_white(tmp_path, pixels):
    present = [7, 0, 19, 3, 12]
    expected = np.full_like(pixels, 255)
    for tile in present:
        y, x = tile // 5 * 64, tile % 5 * 64
        expected[y : y + 64, x : x + 64] = through(pixels, make.jpeg_ycc, by_pillow)[y : y + 64, x : x + 64]

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, sparse=present)) as slide:
        encoded = slide.encoded_level(0)
        np.testing.assert_array_equal(whole(slide), expected)
        np.testing.assert_array_equal(from_streams(slide), expected)
        assert encoded.streams(1, range(1, 4))[0] == ()
        assert (encoded.byte_counts() > 0).ravel().nonzero()[0].tolist() == sorted(present)


def undefined_items(ds):
    for groups in ds.PerFrameFunctionalGroupsSequence:
        groups.is_undefined_length_sequence_item = True


def undefined_sequence(ds):
    ds["PerFrameFunctionalGroupsSequence"].is_undefined_length = True


def undefined_inside(ds):
    for groups in ds.PerFrameFunctionalGroupsSequence:
        groups["PlanePositionSlideSequence"].is_undefined_length = True
        groups.PlanePositionSlideSequence[0].is_undefined_length_sequence_item = True


@pytest.mark.parametrize("syntax", [make.NATIVE, make.IMPLICIT])
@pytest.mark.parametrize("change", [undefined_items, undefined_sequence, undefined_inside, lambda ds: None])
@pytest.mark.parametrize("organization", ["TILED_SPARSE", "TILED_FULL"])
def test_places_of_frames_are_read_however_their_sequences_are_written(tmp_path, pixels, syntax, change, organization):
    order = list(range(20)) if organization == "TILED_FULL" else [*range(7, 20), *range(7)]

    def organized(ds):
        ds.DimensionOrganizationType = organization
        change(ds)

    path = write_dicom(
        tmp_path / "a.dcm", pixels, syntax=syntax, encode=make.native, photometric="RGB", sparse=order,
        change=organized,
    )  # fmt: skip

    with open_slide(path) as slide:
        np.testing.assert_array_equal(whole(slide), pixels)


def test_an_empty_frame_is_white(tmp_path, pixels):
    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, empty=[6])) as slide:
        assert (slide.read_region(0, Box(64, 64, 64, 64)) == 255).all()
        assert slide.encoded_level(0).streams(1, range(1, 2)) == [()]
        assert slide.encoded_level(0).byte_counts()[1, 1] == 0
        assert not (slide.read_region(0, Box(128, 64, 64, 64)) == 255).all()


def test_scale_profile_and_scanner_are_told_and_nobody_is_named(tmp_path, pixels):
    def anisotropic(ds):
        ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence[0].PixelSpacing = [0.00025, 0.0005]

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, change=anisotropic)) as slide:
        info = slide.info
    assert info.mpp_xy == (0.5, 0.25)  # x is the second value of Pixel Spacing
    assert (info.format, info.objective_power, info.scanner_model) == ("dicom", 20.0, "Aperio GT 450")
    assert info.icc == make.ICC + b"\0" * (len(make.ICC) % 2)
    for secret in ("Penicillin", "4711", "0815", "SN-99", "1.2.3", "a.dcm"):
        assert secret not in repr(info)


@pytest.mark.parametrize(
    ("change", "mpp_xy"),
    [("volume", (0.8, 0.9)), ("per frame", (0.4, 0.4)), ("nowhere", None), ("absurd", None)],
)
def test_the_scale_is_looked_for_in_three_places(tmp_path, pixels, change, mpp_xy):
    def moved(ds):
        measures = ds.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence
        del ds.SharedFunctionalGroupsSequence
        if change == "volume":
            ds.ImagedVolumeWidth, ds.ImagedVolumeHeight = WIDTH_PX * 0.8e-3, HEIGHT_PX * 0.9e-3
        elif change == "per frame":
            measures[0].PixelSpacing = [0.0004, 0.0004]
            ds.PerFrameFunctionalGroupsSequence[0].PixelMeasuresSequence = measures
        elif change == "absurd":
            ds.ImagedVolumeWidth, ds.ImagedVolumeHeight = 1e6, 1e6

    path = write_dicom(tmp_path / "a.dcm", pixels, sparse=range(20), change=moved)

    with open_slide(path) as slide:
        mpp = slide.info.mpp_xy
    assert (mpp is None) == (mpp_xy is None)
    assert mpp is None or mpp == pytest.approx(mpp_xy, rel=1e-5)
    assert "Imaged Volume" in slide.info.mpp_looked_in or change == "per frame"


def test_an_old_export_without_image_type_is_read_by_its_frame_type(tmp_path, pixels):
    def old(ds):
        kind = Dataset()
        kind.FrameType = ["ORIGINAL", "PRIMARY", "VOLUME", "NONE"]
        ds.SharedFunctionalGroupsSequence[0].WholeSlideMicroscopyImageFrameTypeSequence = [kind]

    with open_slide(write_dicom(tmp_path / "a.dcm", pixels, kind=None, change=old)) as slide:
        assert slide.info.levels[0].width_px == WIDTH_PX


def test_opening_a_tiff_does_not_import_the_dicom_libraries():
    code = (
        "import sys; from pipeline.slides.registry import open_slide; "
        "print([m for m in ('pydicom', 'wsidicom') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("encode", "said", "agrees"),
    [
        (make.jpeg_ycc, "YBR_FULL_422", True),
        (make.jpeg_bare, "RGB", True),
        (make.jpeg_rgb, "YBR_FULL_422", False),
        (make.jpeg_ycc, "RGB", False),
    ],
)
def test_openslide_is_a_reference_only_where_the_file_says_the_colours_its_frames_hold(
    tmp_path, pixels, encode, said, agrees
):
    path = write_dicom(tmp_path / "a.dcm", pixels, encode=encode, photometric=said)

    with open_slide(path) as slide, openslide.OpenSlide(path) as other:
        seen = np.asarray(other.read_region((0, 0), 0, other.dimensions))[..., :3]
        assert np.array_equal(seen, whole(slide)) == agrees
        assert slide.openslide_file == (path if agrees else None)
