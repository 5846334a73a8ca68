"""Every real DICOM file: equal to OpenSlide pixel by pixel, passed through, also with its tiles rearranged."""

from __future__ import annotations

import random

import imagecodecs
import numpy as np
import openslide
import pytest
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, generate_frames

from pipeline.box import Box
from pipeline.errors import AmbiguousSeriesError, NotBrightfieldRgbError
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import ingest
from training.foundation.errors import UnreadableError

pytestmark = pytest.mark.data

PROXY = "GoogleCloudPlatform+medical-imaging/pathology/dicom_proxy/testdata"
JPEG = f"{PROXY}/multi_frame_jpeg_camelyon_challenge_image.dcm"
JPEG_2000 = f"{PROXY}/multi_frame_jpeg2000_camelyon_challenge_image.dcm"
NATIVE = "ImagingDataCommons+highdicom/data/test_files/sm_image.dcm"
ENCODERS_COMMENT = b"\xff\x64\0\x04\0\x01"
"""Comment in the main header of every JPEG 2000 frame, which is dropped."""
SLIDE_COORDINATES = (
    "GoogleCloudPlatform+medical-imaging/pathology/transformation_pipeline/testdata/test_slide_coordinates.dcm"
)
ANNOTATIONS = "ImagingDataCommons+highdicom/data/test_files/sm_annotations.dcm"
GREY = "ImagingDataCommons+highdicom/data/test_files/sm_image_grayscale.dcm"


def whole(slide):
    return slide.read_region(0, Box(0, 0, slide.info.levels[0].width_px, slide.info.levels[0].height_px))


def by_openslide(path):
    with openslide.OpenSlide(path) as other:
        return np.asarray(other.read_region((0, 0), 0, other.dimensions))[..., :3]


@pytest.mark.parametrize(
    ("name", "size_wh", "mpp_xy"),
    [
        (JPEG, (1152, 700), (28.969, 28.968)),
        (JPEG_2000, (1696, 812), (28.969, 28.968)),
        (NATIVE, (50, 50), (0.499, 0.499)),
    ],
)
def test_pixels_size_and_scale_are_those_of_openslide(real_slides, name, size_wh, mpp_xy):
    with open_slide(real_slides / name) as slide, openslide.OpenSlide(real_slides / name) as other:
        assert (slide.info.levels[0].width_px, slide.info.levels[0].height_px) == size_wh == other.dimensions
        assert slide.info.mpp_xy == pytest.approx(mpp_xy)
        assert float(other.properties["openslide.mpp-x"]) == pytest.approx(mpp_xy[0])
        assert slide.openslide_file == real_slides / name
        np.testing.assert_array_equal(whole(slide), by_openslide(real_slides / name))


@pytest.mark.parametrize("name", [JPEG_2000, NATIVE])
def test_lossless_pixels_are_those_of_pydicom(real_slides, name):
    frames = dcmread(real_slides / name).pixel_array
    with open_slide(real_slides / name) as slide:
        width_px, side_px = slide.info.levels[0].width_px, slide.info.levels[0].tile_px
        for frame in (0, 3, len(frames) - 1):
            row, column = divmod(frame, -(-width_px // side_px))
            region = slide.read_region(0, Box(column * side_px, row * side_px, side_px, side_px))
            inside = (region != 255).any(-1)
            np.testing.assert_array_equal(region[inside], frames[frame][inside])


@pytest.mark.parametrize(("name", "decode"), [(JPEG, imagecodecs.jpeg8_decode), (JPEG_2000, imagecodecs.jpeg2k_decode)])
def test_every_frame_passes_byte_for_byte_and_decodes_to_the_same_pixels(real_slides, name, decode):
    ds = dcmread(real_slides / name)
    frames = list(generate_frames(ds.PixelData, number_of_frames=ds.NumberOfFrames))
    truth = by_openslide(real_slides / name)
    with open_slide(real_slides / name) as slide:
        encoded = slide.encoded_level(0)
        for row in range(encoded.rows):
            for column, stream in enumerate(encoded.streams(row, range(encoded.columns))):
                joined, frame = b"".join(stream), frames[row * encoded.columns + column]
                own = frame if name == JPEG else frame.replace(ENCODERS_COMMENT, b"", 1)
                assert own.startswith(joined)
                assert len(own) - len(joined) <= 1
                y, x = row * 256, column * 256
                part = truth[y : y + 256, x : x + 256]
                np.testing.assert_array_equal(decode(joined)[: part.shape[0], : part.shape[1]], part)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (SLIDE_COORDINATES, UnreadableError, "is DICOM, but a VL Slide-Coordinates Microscopic Image"),
        (ANNOTATIONS, UnreadableError, "is DICOM, but a Microscopy Bulk Simple Annotations"),
        (GREY, NotBrightfieldRgbError, "1 samples of 16 bits.*MONOCHROME2"),
    ],
)
def test_dicom_of_another_kind_is_refused_and_explained(real_slides, name, error, message):
    with pytest.raises(error, match=message):
        open_slide(real_slides / name)


def test_the_folder_they_lie_in_is_refused_as_two_series(real_slides):
    with pytest.raises(AmbiguousSeriesError, match="holds 2 series") as caught:
        open_slide(real_slides / PROXY)
    assert "1696×812 px" in str(caught.value)
    assert "1152×700 px" in str(caught.value)
    with open_slide(real_slides / PROXY, series="24422120.1688792467737634") as slide:
        assert slide.files == (real_slides / JPEG,)


def test_a_folder_of_a_slide_and_its_annotations_is_the_slide(real_slides, tmp_path):
    for name in (NATIVE, ANNOTATIONS):
        (tmp_path / name.split("/")[-1]).write_bytes((real_slides / name).read_bytes())

    with open_slide(tmp_path) as slide:
        assert [path.name for path in slide.files] == ["sm_image.dcm"]
        np.testing.assert_array_equal(whole(slide), by_openslide(real_slides / NATIVE))


@pytest.mark.parametrize("name", [JPEG, JPEG_2000])
def test_a_real_slide_rewritten_sparsely_in_another_order_has_the_same_pixels_with_white_holes(
    real_slides, tmp_path, name
):
    ds = dcmread(real_slides / name)
    frames = list(generate_frames(ds.PixelData, number_of_frames=ds.NumberOfFrames))
    columns = -(-ds.TotalPixelMatrixColumns // 256)
    order = list(range(len(frames)))
    random.Random(1).shuffle(order)
    kept, dropped = order[:-4], order[-4:]
    expected = by_openslide(real_slides / name).copy()
    for tile in dropped:
        y, x = tile // columns * 256, tile % columns * 256
        expected[y : y + 256, x : x + 256] = 255
    ds.DimensionOrganizationType, ds.NumberOfFrames = "TILED_SPARSE", len(kept)
    ds.PerFrameFunctionalGroupsSequence = [
        groups_at(tile % columns * 256 + 1, tile // columns * 256 + 1) for tile in kept
    ]
    ds.PixelData = encapsulate([frames[tile] for tile in kept])
    ds.save_as(tmp_path / "sparse.dcm")

    with open_slide(tmp_path / "sparse.dcm") as slide:
        np.testing.assert_array_equal(whole(slide), expected)
        assert int((slide.encoded_level(0).byte_counts() == 0).sum()) == 4


def groups_at(x, y):
    place, groups = Dataset(), Dataset()
    place.ColumnPositionInTotalImagePixelMatrix, place.RowPositionInTotalImagePixelMatrix = x, y
    groups.PlanePositionSlideSequence = [place]
    return groups


@pytest.mark.parametrize(("name", "codec"), [(JPEG, "imagecodecs_jpeg"), (JPEG_2000, "imagecodecs_jpeg2k")])
def test_ingest_passes_a_real_slide_through_and_names_nobody(real_slides, tmp_path, name, codec):
    report = ingest(real_slides / name, tmp_path)

    assert (report.levels[0].route, report.levels[0].codec) == ("pass-through", codec)
    assert report.levels[0].gate.equal
    assert "openslide" in report.levels[0].gate.against
    reader = StoreReader(report.store)
    level = reader.levels[0]
    truth = by_openslide(real_slides / name)
    np.testing.assert_array_equal(reader.read_region(0, Box(0, 0, level.width_px, level.height_px)), truth)
    ds = dcmread(real_slides / name, stop_before_pixels=True)
    named = [
        str(ds.get(key)) for key in ("PatientName", "PatientID", "AccessionNumber", "SeriesInstanceUID") if ds.get(key)
    ]
    for path in report.store.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [secret for secret in named if secret.encode() in content]
