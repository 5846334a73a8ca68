"""Comments and application data inside a scanner's tiles do not enter the store; pixels stay the same."""

import imagecodecs
import numpy as np
import pytest
import tifffile

from pipeline.codecs import jpeg
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import _full_tiles, _tables_and_rest, ingest, sample_image

COMMENT = b"\xff\xfe\x00\x14patient Jane Roe \0"
EXIF = b"\xff\xe1\x00\x16Exif\0\0" + b"Jane Roe 1950\0"
TABLES_COMMENT = b"\xff\xfe\x00\x0bward-77.\0"


def with_texts(stream: bytes) -> bytes:
    """Insert texts after the first segment, as programs do."""
    first_end = 4 + int.from_bytes(stream[4:6], "big")
    return stream[:first_end] + EXIF + COMMENT + stream[first_end:]


@pytest.mark.parametrize("options", [{"subsampling": "420"}, {"colorspace": "RGB", "outcolorspace": "RGB"}])
def test_a_level_with_texts_in_its_tiles_passes_through_without_them(tmp_path, options):
    pixels = sample_image(600, 400)
    plain = [bytes(imagecodecs.jpeg8_encode(tile, level=85, **options)) for tile in _full_tiles(pixels, 256)]
    is_rgb = "colorspace" in options
    with tifffile.TiffWriter(tmp_path / "a.tiff") as tiff:
        tiff.write(
            (with_texts(stream) for stream in plain), shape=pixels.shape, dtype=np.uint8, tile=(256, 256),
            photometric="rgb", compression="jpeg", compressionargs={"outcolorspace": "RGB" if is_rgb else "YCBCR"},
            subsampling=(1, 1) if is_rgb else (2, 2), metadata=None, resolution=(2e4, 2e4), resolutionunit="CENTIMETER",
        )  # fmt: skip
    assert b"Jane Roe" in (tmp_path / "a.tiff").read_bytes()

    report = ingest(tmp_path / "a.tiff", tmp_path / "p")

    reader = StoreReader(report.store)
    assert report.levels[0].route == "pass-through"
    assert [reader.chunk(0, row, column) for row in range(2) for column in range(3)] == plain
    assert not any(b"Jane Roe" in path.read_bytes() for path in report.store.rglob("*") if path.is_file())


def test_texts_in_shared_tables_are_left_out():
    stream = bytes(imagecodecs.jpeg8_encode(sample_image(256, 256), level=85, subsampling="420"))
    tables, tile = _tables_and_rest(stream)

    parsed = jpeg.parse(tile, jpeg.SOI + TABLES_COMMENT + tables + jpeg.EOI)

    assert (parsed.head(is_rgb=False) + parsed.coded).count(tables) == 1
    assert b"ward" not in parsed.head(is_rgb=False)
    decoded = imagecodecs.jpeg8_decode(parsed.head(is_rgb=False) + parsed.coded)
    np.testing.assert_array_equal(decoded, imagecodecs.jpeg8_decode(stream))


@pytest.mark.parametrize("options", [{"subsampling": "420"}, {"colorspace": "RGB", "outcolorspace": "RGB"}, {}])
def test_a_stream_without_texts_is_left_as_it_is(options):
    stream = bytes(imagecodecs.jpeg8_encode(sample_image(256, 256), level=85, **options))
    parsed = jpeg.parse(stream)

    assert parsed.head(is_rgb=False) + parsed.coded == stream


def test_a_text_behind_a_fill_byte_or_behind_the_end_stays_behind_too(tmp_path):
    pixels = sample_image(300, 200)
    plain = [bytes(imagecodecs.jpeg8_encode(tile, level=85, subsampling="420")) for tile in _full_tiles(pixels, 256)]
    hidden = [stream[:20] + b"\xff" + COMMENT + stream[20:] + b"Jane Roe" for stream in plain]
    with tifffile.TiffWriter(tmp_path / "a.tiff") as tiff:
        tiff.write(
            iter(hidden), shape=pixels.shape, dtype=np.uint8, tile=(256, 256), photometric="rgb", compression="jpeg",
            compressionargs={"outcolorspace": "YCBCR"}, subsampling=(2, 2), metadata=None, resolution=(2e4, 2e4),
            resolutionunit="CENTIMETER",
        )  # fmt: skip

    report = ingest(tmp_path / "a.tiff", tmp_path / "p")

    assert report.levels[0].route == "pass-through"
    assert not [path for path in report.store.rglob("*") if path.is_file() and b"Jane Roe" in path.read_bytes()]
