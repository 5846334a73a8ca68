"""The parser of JPEG streams: clean ones stay as they are, others keep only the parts that their pixels need."""

import contextlib
import random
from io import BytesIO
from itertools import pairwise

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from pipeline.codecs import jpeg, jpeg_segments
from pipeline.errors import CorruptTileError
from pipeline.export.tiff.jpeg_kind import jpeg_kind
from pipeline.slides.registry import open_slide
from tests.attacks import leaky_streams as leaks
from tests.pipeline.make import _full_tiles, sample_image

PIXELS = sample_image(128, 64)
TEXT = b"Jane Roe, 1950-02-03"
RESTART_INTERVAL = 0xDD


def encoded(**options):
    return bytes(imagecodecs.jpeg8_encode(PIXELS, level=85, **options))


def by_pillow(**options):
    out = BytesIO()
    Image.fromarray(PIXELS).save(out, "JPEG", **options)
    return out.getvalue()


def cleaned(stream):
    parsed = jpeg.parse(stream)
    return parsed.head(is_rgb=False) + parsed.coded


@pytest.mark.parametrize(
    "stream",
    [encoded(), encoded(subsampling="420"), encoded(colorspace="RGB", outcolorspace="RGB"), by_pillow(optimize=True),
     by_pillow(progressive=True), by_pillow(restart_marker_blocks=2), by_pillow(quality=5), by_pillow(quality=100)],
)  # fmt: skip
def test_a_clean_stream_stays_byte_for_byte(stream):
    assert cleaned(stream) == stream


@pytest.mark.parametrize(
    ("stream", "holds_rgb", "sampling"),
    [
        (encoded(subsampling="420"), False, ((2, 2), (1, 1), (1, 1))),
        (encoded(colorspace="RGB", outcolorspace="RGB"), True, ((1, 1),) * 3),
        (by_pillow(progressive=True, subsampling="4:4:4"), False, ((1, 1),) * 3),
    ],
)
def test_the_header_alone_says_what_the_whole_stream_says(stream, holds_rgb, sampling):
    header = jpeg.read_header(stream)

    assert header == jpeg.parse(stream).header
    assert (header.width_px, header.height_px, header.components, header.bits) == (128, 64, 3, 8)
    assert (header.holds_rgb(), header.sampling) == (holds_rgb, sampling)


def test_a_header_that_was_read_before_is_read_as_its_own_tables_and_process_say():
    """A level's tiles start alike, and what they share is remembered; levels share less."""
    stream = by_pillow(subsampling="4:4:4")
    (jfif,) = (s for s in jpeg_segments.segments(stream) if s.marker == 0xE0)
    bare = stream[: jfif.at] + stream[jfif.end :]
    rgb = bare[:2] + jpeg_segments.app14_rgb() + b"\xff\xd9"
    lossless = stream.replace(b"\xff\xc0", b"\xff\xc3")

    for _ in range(2):
        assert [jpeg.read_header(bare, tables).holds_rgb() for tables in (None, rgb, None)] == [False, True, False]
        assert jpeg.read_header(lossless, any_process=True).components == 3
        with pytest.raises(jpeg_segments.JpegError, match="baseline"):
            jpeg.read_header(lossless)
        with pytest.raises(jpeg_segments.JpegError, match="no whole segment"):
            jpeg.read_header(stream[:40])


def test_a_marker_behind_the_frame_header_counts_for_the_colours_as_libjpeg_counts_it():
    """TIFF copies used to stop at the frame header, and would have declared such a tile YCbCr."""
    stream = encoded(colorspace="RGB", outcolorspace="RGB")
    scan_at = next(s.at for s in jpeg_segments.segments(stream) if s.marker == jpeg_segments.START_OF_SCAN)
    (adobe,) = (s for s in jpeg_segments.segments(stream) if s.marker == 0xEE)
    header, scan = bytearray(stream[adobe.end : scan_at]), bytearray(stream[scan_at : scan_at + 14])
    for name, number in ((b"R", b"\1"), (b"G", b"\2"), (b"B", b"\3")):  # names that alone would mean Y, Cb, Cr
        header = header.replace(name + b"\x11", number + b"\x11")
        scan = scan.replace(name, number)
    late = stream[: adobe.at] + header + stream[adobe.at : adobe.end] + scan + stream[scan_at + 14 :]

    np.testing.assert_array_equal(imagecodecs.jpeg8_decode(late), imagecodecs.jpeg8_decode(stream))
    assert jpeg.read_header(late).component_names == b"\1\2\3"
    assert jpeg.read_header(late).holds_rgb()
    assert jpeg_kind(late).is_rgb


@pytest.mark.parametrize("leak", leaks.JPEG_LEAKS, ids=lambda leak: leak.__name__)
def test_what_is_hidden_stays_behind_and_the_rest_is_the_clean_stream(leak):
    assert cleaned(leak(encoded(), TEXT)) == encoded()


@pytest.mark.parametrize("where", leaks.REFUSED_JPEG_LEAKS)
def test_a_segment_longer_than_its_content_is_damage(where):
    with pytest.raises(jpeg.JpegError):
        jpeg.parse(leaks.REFUSED_JPEG_LEAKS[where](encoded(), TEXT))


def test_density_thumbnail_version_and_flags_are_those_of_any_stream():
    rgb = encoded(colorspace="RGB", outcolorspace="RGB")

    assert cleaned(leaks.adobe_fields(rgb, TEXT)) == rgb
    assert cleaned(by_pillow(dpi=(1950, 203)))[:20] == encoded()[:20]


def test_only_the_last_of_many_restart_intervals_is_kept():
    stream = by_pillow(restart_marker_blocks=2)
    many = b"".join(leaks.segment(RESTART_INTERVAL, TEXT[at : at + 2]) for at in range(0, len(TEXT), 2))

    assert cleaned(stream[:2] + many + stream[2:]) == stream


def test_a_restart_interval_of_zero_is_none():
    stream = encoded()
    hidden = stream[:2] + leaks.segment(RESTART_INTERVAL, bytes(2)) + stream[2:-2] + b"\xff\xd0" + TEXT + jpeg.EOI

    with pytest.raises(jpeg.JpegError, match="no marker"):
        jpeg.parse(hidden)


def test_fill_bytes_are_left_behind_and_pixels_stay():
    stream = by_pillow(restart_marker_blocks=2)
    filled = stream.replace(b"\xff\xd0", b"\xff\xff\xff\xd0")[:-2] + b"\xff" * 9 + jpeg.EOI

    assert filled != stream
    assert cleaned(filled) == stream


@pytest.mark.parametrize("length", range(0, 700, 7))
def test_a_stream_cut_short_is_refused(length):
    with pytest.raises(jpeg.JpegError):
        jpeg.parse(encoded()[:length])


@pytest.mark.parametrize("stream", [encoded(), by_pillow(progressive=True), by_pillow(restart_marker_blocks=2)])
def test_a_damaged_stream_is_parsed_or_refused_and_explained(stream):
    draw = random.Random(0)
    for _ in range(400):
        damaged = bytearray(stream)
        for _ in range(draw.choice([1, 3, 10])):
            damaged[draw.randrange(min(len(stream), 700))] = draw.choice([0, 0xFF, 0xDA, draw.randrange(256)])
        with contextlib.suppress(jpeg.JpegError):
            jpeg.parse(bytes(damaged))


def test_marks_are_counted_as_a_plain_search_finds_them():
    noise = np.random.default_rng(0)
    for length in (0, 1, 2, 3, 50, 4096, 100_003):
        data = noise.choice(np.array([0, 1, 0xD0, 0xD9, 0xFE, 0xFF], np.uint8), length).tobytes()

        assert jpeg.count_marks(data) == sum(a == 0xFF and b != 0 for a, b in pairwise(data))


def tiff_of(path, streams):
    with tifffile.TiffWriter(path) as tiff:
        tiff.write(
            iter(streams), shape=(64, 64 * len(streams), 3), dtype=np.uint8, tile=(64, 64), photometric="rgb",
            compression="jpeg", compressionargs={"outcolorspace": "YCBCR"}, subsampling=(2, 2), metadata=None,
            resolution=(2e4, 2e4), resolutionunit="CENTIMETER",
        )  # fmt: skip
    return path


def first_tiles(count):
    pixels = sample_image(64 * count, 64)
    return [bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling="420")) for tile in _full_tiles(pixels, 64)]


def test_a_row_of_tiles_is_copied_as_it_is_and_a_hidden_text_in_one_of_them_changes_no_other(tmp_path):
    plain = first_tiles(8)
    for hidden in range(8):
        streams = [*plain[:hidden], leaks.behind_the_end_and_ended_again(plain[hidden], TEXT), *plain[hidden + 1 :]]
        with open_slide(tiff_of(tmp_path / f"{hidden}.tiff", streams)) as slide:
            level = slide.encoded_level(0)
            for _ in range(2):  # the second time the prefix is known
                assert [b"".join(stream) for stream in level.streams(0, range(8))] == plain


def test_tiles_that_share_their_bytes_do_not_cover_for_what_another_one_hides(tmp_path):
    """Bytes shared by two tiles are counted once; otherwise as many markers could be hidden elsewhere unnoticed."""
    plain = first_tiles(3)
    marks = jpeg.count_marks(plain[1])
    hidden = plain[2] + b"\xff\x01" * (marks - 1) + TEXT + jpeg.EOI
    path = tiff_of(tmp_path / "a.tiff", [plain[0], plain[1], hidden])
    with tifffile.TiffFile(path, mode="r+b") as tiff:
        offsets, counts = tiff.pages[0].tags[324], tiff.pages[0].tags[325]
        counts.overwrite((counts.value[1], *counts.value[1:]))
        offsets.overwrite((offsets.value[1], *offsets.value[1:]))

    with open_slide(path) as slide:
        level = slide.encoded_level(0)
        for _ in range(2):
            assert [b"".join(stream) for stream in level.streams(0, range(3))] == [plain[1], plain[1], plain[2]]


def test_a_slide_whose_tile_hides_a_text_where_no_decoder_goes_on_is_refused_by_name(tmp_path):
    plain = first_tiles(4)
    leak = leaks.REFUSED_JPEG_LEAKS["behind a restart marker without an interval"]
    with open_slide(tiff_of(tmp_path / "a.tiff", [*plain[:3], leak(plain[3], TEXT)])) as slide:
        level = slide.encoded_level(0)
        level.streams(0, range(2))
        with pytest.raises(CorruptTileError, match="row 0, column 3"):
            level.streams(0, range(4))
