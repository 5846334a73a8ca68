"""Chunks that no DICOM frame can be, with valid checksums: encoded again where they decode, else refused."""

from __future__ import annotations

from io import BytesIO

import imagecodecs
import numpy as np
import openslide
import pydicom
import pytest
from PIL import Image

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.export.export import ExportRequest, export_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import j2k_level, jfif, jpeg_level, make_store
from tests.pipeline.export.store_edits import edit_chunks, edit_json
from tests.pipeline.make import halved, sample_image
from training.foundation.errors import DecompressionBombError

JPEG, JPEG_2000 = "0/0/c/0/0/0", "0/1/c/0/0/0"
GREY = np.ascontiguousarray(sample_image(64, 64)[..., 0])
WIDE = sample_image(80, 64)


@pytest.fixture
def store(tmp_path):
    first, second = halved(sample_image(300, 200), 1)
    return make_store(tmp_path / "S.ome.zarr", [jpeg_level(first, 64, jfif("422")), j2k_level(second, 64)])


def j2k(pixels, **options):
    return bytes(imagecodecs.jpeg2k_encode(pixels, reversible=True, level=0, **{"codecformat": "j2k", **options}))


def progressive_jpeg(pixels):
    stream = BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", progressive=True)
    return stream.getvalue()


def frame_header(stream):
    """Start and end of a JPEG's frame header."""
    at = stream.index(b"\xff\xc0")
    return at, at + 2 + int.from_bytes(stream[at + 2 : at + 4], "big")


def with_two_frame_headers(stream):
    start, end = frame_header(stream)
    return stream[:end] + stream[start:]


def without_frame_header(stream):
    start, end = frame_header(stream)
    return stream[:start] + stream[end:]


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize(
    ("shard", "odd"),
    [
        (JPEG, lambda _: jfif("422")(WIDE)),
        (JPEG, lambda _: bytes(imagecodecs.jpeg8_encode(GREY))),
        (JPEG, with_two_frame_headers),
        (JPEG, without_frame_header),
        (JPEG, lambda chunk: chunk[: len(chunk) // 2]),
        (JPEG, lambda chunk: chunk[:20]),
        (JPEG, lambda _: bytes(500)),
        (JPEG, lambda _: b"\xff"),
        (JPEG_2000, lambda _: j2k(WIDE)),
        (JPEG_2000, lambda _: j2k(GREY)),
        (JPEG_2000, lambda chunk: chunk[: len(chunk) // 2]),
        (JPEG_2000, lambda _: bytes(500)),
    ],
)
def test_a_stream_that_is_no_rgb_tile_of_its_size_stops_the_export(store, tmp_path, shard, odd, place):
    edit_chunks(store / shard, lambda chunks: chunks.__setitem__(place, odd(chunks[place])))
    (tmp_path / "out").mkdir()

    with pytest.raises(CorruptTileError, match=rf"row {place // 2}, column {place % 2}"):
        export_slide(ExportRequest(store, tmp_path / "out/S", "dicom"))

    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize(
    ("shard", "odd"),
    [
        (JPEG, progressive_jpeg),
        (JPEG_2000, lambda tile: j2k(tile, codecformat="jp2")),
        (JPEG_2000, lambda tile: j2k(tile, mct=False)),
    ],
)
def test_streams_that_dicom_does_not_know_are_decoded_and_encoded_again(store, tmp_path, shard, odd, place):
    level = int(shard[2])
    tile = StoreReader(store).levels[level].array.decoded_chunk(place // 2, place % 2)
    edit_chunks(store / shard, lambda chunks: chunks.__setitem__(place, odd(tile)))

    report = export_slide(ExportRequest(store, tmp_path / "out", "dicom"))

    assert "as stored" in report.how[str(1 - level)]
    reader = StoreReader(store)
    with openslide.OpenSlide(tmp_path / "out/level-0.dcm") as slide:
        width_px, height_px = slide.level_dimensions[level]
        shown = np.asarray(slide.read_region((0, 0), level, (width_px, height_px)).convert("RGB"))
    np.testing.assert_array_equal(shown, reader.read_region(level, Box(0, 0, width_px, height_px)))
    # What JPEG has lost stays lost: also on the level below, which was made from this one.
    assert pydicom.dcmread(tmp_path / f"out/level-{level}.dcm").LossyImageCompression == "01"


def test_a_level_of_more_tiles_than_any_slide_has_is_refused_at_once(tmp_path):
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(sample_image(150, 90), 64, jfif("422"))])
    edit_json(store / "0/0/zarr.json", lambda array: array.update(shape=[3, 2**21 - 64, 2**21]))
    (tmp_path / "out").mkdir()

    with pytest.raises(DecompressionBombError, match="claims 32767 × 32768 tiles"):
        export_slide(ExportRequest(store, tmp_path / "out/S", "dicom"))

    assert list((tmp_path / "out").iterdir()) == []
