"""A slide's colour profile keeps its colours and loses its texts."""

import struct
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageCms
from pydicom import dcmread

from pipeline.ingest.icc.strip import strip_icc_text
from pipeline.ingest.icc.types import exact
from tests.attacks.leaky_profiles import TYPES, header_with, profile_of, with_text_behind
from tests.pipeline.make import sample_image

SECRET = b"text\0\0\0\0Scanner SN-77123, St. Mary, operator J. Doe\0"


def with_secrets(profile: bytes) -> bytes:
    """Profile with four more tags that hold a text, a maker in its header, and its curves listed unchanged."""
    (count,) = struct.unpack_from(">I", profile, 128)
    names = (b"dmnd", b"dmdd", b"targ", b"psd0")
    shift = 12 * len(names)
    table = b""
    for index in range(count):
        name, offset, size = struct.unpack_from(">4sII", profile, 132 + 12 * index)
        table += struct.pack(">4sII", name, offset + shift, size)
    body = profile[132 + 12 * count :]
    body += bytes(-len(body) % 4)
    end = 132 + 12 * count + shift + len(body)
    table += b"".join(struct.pack(">4sII", name, end, len(SECRET)) for name in names)
    header = bytearray(profile[:128])
    header[:4] = struct.pack(">I", end + len(SECRET))
    header[48:56] = b"DoeJMary"
    return bytes(header) + struct.pack(">I", count + len(names)) + table + body + SECRET


@pytest.fixture(params=["sRGB", "XYZ"])
def profile(request):
    return ImageCms.ImageCmsProfile(ImageCms.createProfile(request.param)).tobytes()


def to_screen(icc: bytes, pixels: np.ndarray) -> np.ndarray:
    source = ImageCms.ImageCmsProfile(BytesIO(icc))
    # The reverse of the screen's gamma: a transform that changes pixels, unlike sRGB to sRGB.
    transform = ImageCms.buildTransform(source, ImageCms.createProfile("LAB"), "RGB", "LAB")
    return np.asarray(ImageCms.applyTransform(Image.fromarray(pixels), transform))


def test_colours_are_the_same_bit_for_bit():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pixels = sample_image(300, 200)

    assert np.array_equal(to_screen(strip_icc_text(with_secrets(srgb)), pixels), to_screen(srgb, pixels))


def test_no_text_of_the_profile_is_left(profile):
    secret = with_secrets(profile)
    assert b"SN-77123" in secret

    left = strip_icc_text(secret)

    if left is not None:
        for word in (b"SN-77123", b"Doe", b"Mary", b"FB", "built-in".encode("utf-16-be")):
            assert word not in left
        assert left[24:36] == bytes(12)


def test_cleaning_twice_changes_nothing_more():
    once = strip_icc_text(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())

    assert strip_icc_text(once) == once


@pytest.mark.parametrize("version", [2, 4])
def test_a_cleaned_profile_still_has_the_texts_the_format_requires(version):
    icc = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    icc[8] = version

    opened = ImageCms.ImageCmsProfile(BytesIO(strip_icc_text(bytes(icc))))

    assert opened.profile.profile_description == "slide scanner"
    assert opened.profile.copyright == "none"


@pytest.mark.parametrize("cut", [0, 40, 131, 200])
def test_a_damaged_profile_is_left_out(cut):
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()

    assert strip_icc_text(icc[:cut]) is None


def test_a_text_under_the_name_of_a_colour_tag_is_left_out():
    secret = with_secrets(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())

    assert b"SN-77123" not in strip_icc_text(secret.replace(b"dmnd", b"A2B0"))


@pytest.mark.parametrize("name", list(TYPES))
def test_a_tag_is_cut_to_what_its_type_needs(name):
    data = TYPES[name]

    assert exact(data) == data
    assert exact(with_text_behind(data, SECRET)) == data
    assert exact(data[:-1]) is None
    assert exact(data[:4] + b"Doe!" + data[8:]) == data


def test_types_whose_length_is_not_known_are_left_out():
    assert exact(b"mpet" + bytes(60)) is None
    assert exact(b"text\0\0\0\0Jane Roe") is None
    assert exact(b"") is None


@pytest.mark.parametrize("name", ["mft1", "mft2", "mAB ", "curv", "para"])
def test_colours_of_every_kind_of_profile_are_the_same_without_the_texts_behind_its_data(name):
    pixels = sample_image(300, 200)
    honest, leaky = profile_of(name), profile_of(name, text=SECRET)
    assert SECRET in leaky

    left = strip_icc_text(leaky)

    assert SECRET not in left
    assert b"Doe" not in left
    assert left == strip_icc_text(honest)
    assert np.array_equal(to_screen(left, pixels), to_screen(leaky, pixels))


def test_nothing_but_class_spaces_version_and_intent_of_the_header_is_kept():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pixels = sample_image(300, 200)

    left = strip_icc_text(header_with(srgb, b"JaneRoe1950-02-03TCGA5PA9K0"))

    assert left == strip_icc_text(srgb)
    assert np.array_equal(to_screen(left, pixels), to_screen(srgb, pixels))


def test_a_profile_of_another_kind_than_a_scanner_s_is_left_out():
    assert strip_icc_text(ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()) is None


@pytest.mark.data
def test_colours_of_a_real_slide_s_profile_are_the_same(real_slides):
    ds = dcmread(real_slides / "ImagingDataCommons+highdicom/data/test_files/sm_image.dcm", stop_before_pixels=True)
    real = ds.OpticalPathSequence[0].ICCProfile
    pixels = sample_image(300, 200)

    assert np.array_equal(to_screen(strip_icc_text(real), pixels), to_screen(real, pixels))


@pytest.mark.parametrize("name", list(TYPES))
def test_data_cut_short_anywhere_are_left_out(name):
    assert {exact(TYPES[name][:length]) for length in range(0, len(TYPES[name]), 3)} == {None}
