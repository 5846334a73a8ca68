"""The parser of JPEG 2000 streams: segments that no pixel needs are dropped, and the pixels stay the same."""

import contextlib
import random
import struct

import imagecodecs
import numpy as np
import pytest
import tifffile
from pydicom import dcmread
from pydicom.encaps import generate_frames

from pipeline.codecs import jpeg2000
from tests.attacks import leaky_streams as leaks
from tests.pipeline.make import sample_image

PIXELS = sample_image(120, 90)
TEXT = b"Jane Roe, 1950-02-03, TCGA-5P-A9K0."
COMMENT, SIZE = 0x64, b"\xff\x51"


def encoded(**options):
    chosen = {"codecformat": "j2k", "mct": True, "reversible": True, "level": 0, **options}
    return bytes(imagecodecs.jpeg2k_encode(PIXELS, **chosen))


def cleaned(stream):
    parsed = jpeg2000.parse(stream)
    return parsed.head + parsed.coded


def without_comment(stream):
    """Remove the comment in which openjpeg writes its name."""
    at = stream.index(b"\xff\x64")
    return stream[:at] + stream[at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big") :]


@pytest.mark.parametrize("options", [{}, {"reversible": False, "level": 30}, {"mct": False}, {"resolutions": 1}])
def test_a_clean_stream_loses_nothing_but_its_encoder_s_comment(options):
    assert cleaned(encoded(**options)) == without_comment(encoded(**options))


@pytest.mark.parametrize("leak", [*leaks.JPEG_2000_LEAKS, leaks.in_boxes], ids=lambda leak: leak.__name__)
def test_what_is_hidden_stays_behind_and_the_rest_is_the_clean_stream(leak):
    hidden = leak(encoded(), TEXT)
    assert TEXT in hidden

    assert cleaned(hidden) == cleaned(encoded())


def test_a_tile_part_of_open_length_ends_at_the_end_marker():
    assert cleaned(leaks.with_an_open_end(encoded(), TEXT)) == cleaned(encoded())


def test_a_stream_without_an_end_marker_gets_one():
    assert cleaned(encoded()[:-2]) == cleaned(encoded())
    assert cleaned(encoded()[:-2] + b"\0") == cleaned(encoded())


def test_known_segments_longer_than_their_content_twice_or_of_no_component_are_damage():
    stream = encoded()
    size_end = 2 + 2 + int.from_bytes(stream[4:6], "big")
    style = stream[size_end : size_end + 2 + int.from_bytes(stream[size_end + 2 : size_end + 4], "big")]
    longer = leaks.segment(style[1], style[4:] + TEXT)
    region = leaks.segment(0x5E, bytes([7, 0, 0]))

    for damaged in (
        stream[:size_end] + longer + stream[size_end + len(style) :],
        stream[:size_end] + style + stream[size_end:],
        stream[:size_end] + region + stream[size_end:],
    ):
        with pytest.raises(jpeg2000.Jpeg2000Error):
            jpeg2000.parse(damaged)


@pytest.mark.parametrize("share", [0.01, 0.02, 0.1, 0.5, 0.99])
def test_a_stream_cut_short_is_refused(share):
    with pytest.raises(jpeg2000.Jpeg2000Error):
        jpeg2000.parse(encoded()[: int(len(encoded()) * share)])


def test_a_tile_part_that_says_more_than_is_there_is_refused():
    stream = encoded()
    at = stream.index(leaks.TILE_PART)
    (length,) = struct.unpack_from(">I", stream, at + 6)

    with pytest.raises(jpeg2000.Jpeg2000Error, match="ends at byte"):
        jpeg2000.parse(stream[: at + 6] + struct.pack(">I", length + 1000) + stream[at + 10 :])


def test_a_damaged_stream_is_parsed_or_refused_and_explained():
    draw, stream = random.Random(0), leaks.in_boxes(encoded(), TEXT)
    for _ in range(400):
        damaged = bytearray(stream)
        for _ in range(draw.choice([1, 3, 10])):
            damaged[draw.randrange(300)] = draw.randrange(256)
        with contextlib.suppress(jpeg2000.Jpeg2000Error):
            jpeg2000.parse(bytes(damaged))


def _check_real(stream):
    assert b"\xff\x64" in stream[:400]
    clean = cleaned(stream)
    assert b"Kakadu" not in clean
    np.testing.assert_array_equal(imagecodecs.jpeg2k_decode(clean), imagecodecs.jpeg2k_decode(stream))
    start = jpeg2000.parse(stream).start()
    end = start.end(stream, 0, len(stream))
    assert start.head + stream[len(start.own) : end] == clean  # the way tiles after the first are copied


@pytest.mark.data
def test_every_real_tile_decodes_to_the_same_pixels(real_slides):
    proxy = "GoogleCloudPlatform+medical-imaging/pathology/dicom_proxy/testdata"
    ds = dcmread(real_slides / proxy / "multi_frame_jpeg2000_camelyon_challenge_image.dcm")
    for frame in generate_frames(ds.PixelData, number_of_frames=ds.NumberOfFrames):
        _check_real(frame)
    folder = real_slides / "BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original"
    with tifffile.TiffFile(folder / "A9K0_3.svs") as tiff:
        page = tiff.pages.first
        for at, count in zip(page.dataoffsets, page.databytecounts, strict=True):
            tiff.filehandle.seek(at)
            _check_real(tiff.filehandle.read(count))
