"""What the browser is sent."""

import base64
import io
import shutil

import numpy as np
import pytest
from PIL import Image, ImageCms

from pipeline.box import Box
from pipeline.config import IngestConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.store.metadata import read_json, write_json
from pipeline.store.reader import StoreReader
from pipeline.store.render import thumbnail
from pipeline.store.screen import screen_levels, tile_parts
from tests.pipeline.make import ingest, sample_image, write_aperio_j2k, write_pyramid
from tests.small_road import make_slide


@pytest.fixture
def store(tmp_path):
    make_slide(tmp_path / "a.tiff", 3)
    return ingest_slide(IngestRequest(tmp_path / "a.tiff", "a"), Project(tmp_path / "p"), IngestConfig()).store


def swapped_profile() -> bytes:
    """sRGB's profile with its red and blue primaries exchanged: colours that are wrong unless it is applied."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    count = int.from_bytes(profile[128:132], "big")
    entries = {bytes(profile[132 + 12 * i : 136 + 12 * i]): 132 + 12 * i for i in range(count)}
    red, blue = entries[b"rXYZ"], entries[b"bXYZ"]
    profile[red + 4 : red + 12], profile[blue + 4 : blue + 12] = (
        profile[blue + 4 : blue + 12],
        profile[red + 4 : red + 12],
    )
    return bytes(profile)


def decoded(jpeg: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB")).astype(int)


def first_tile(reader: StoreReader) -> np.ndarray:
    """Its parts drawn upon white, as a browser does it."""
    finest = screen_levels(reader)[0]
    shown = np.full((finest.tile_px, finest.tile_px, 3), 255)
    for part in tile_parts(reader, finest, 0, 0):
        box, pixels = part.box, decoded(part.jpeg)
        shown[box.y_px : box.bottom_px, box.x_px : box.right_px] = pixels[: box.height_px, : box.width_px]
    return shown


def test_chunks_without_profile_are_sent_as_they_were_scanned(store):
    reader = StoreReader(store)

    parts = tile_parts(reader, screen_levels(reader)[0], 0, 0)

    assert [part.jpeg for part in parts] == [reader.chunk(0, row, column) for row in (0, 1) for column in (0, 1)]


def test_the_scanner_s_profile_is_applied_to_tiles_and_thumbnails(store):
    plain = StoreReader(store)
    before, small = first_tile(plain), thumbnail(plain, 200)
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["icc"] = base64.b64encode(swapped_profile()).decode()
    write_json(store / "zarr.json", root)

    reader = StoreReader(store)
    after = first_tile(reader)

    assert np.abs(after - before[..., ::-1]).mean() < 5  # two JPEG encodings apart
    assert np.abs(after - before).mean() > 10
    assert np.abs(thumbnail(reader, 200).astype(int) - small[..., ::-1]).mean() < 3


def test_a_thumbnail_read_in_bands_is_the_average_of_the_slide(store):
    reader = StoreReader(store)
    level = reader.levels[0]
    whole = reader.read_region(0, Box(0, 0, level.width_px, level.height_px)).astype(float)

    small = level.array.read_whole(110, 82)

    blocks = whole.reshape(82, 10, 110, 10, 3).mean((1, 3))
    assert np.abs(small - blocks).max() <= 1


def test_a_image_of_the_level_s_own_size_is_the_level(store):
    level = StoreReader(store).levels[1]

    assert np.array_equal(
        level.array.read_whole(level.width_px, level.height_px),
        level.array.read_region(Box(0, 0, level.width_px, level.height_px)),
    )


@pytest.fixture(scope="module")
def other_stores(tmp_path_factory):
    """A store of JPEG 2000 chunks and one of zstd chunks, with what is in them."""
    folder = tmp_path_factory.mktemp("rendered")
    pixels = sample_image(700, 500)
    return pixels, {
        "imagecodecs_jpeg2k": ingest(
            write_aperio_j2k(folder / "a.svs", pixels, compression=33005), folder, slide_id="j2k"
        ).store,
        "zstd": ingest(write_pyramid(folder / "b.tiff", [pixels], compression="lzw"), folder, slide_id="zstd").store,
    }


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg2k", "zstd"])
def test_a_chunk_that_no_browser_knows_is_sent_as_a_jpeg_of_its_pixels(other_stores, codec):
    pixels, stores = other_stores
    reader = StoreReader(stores[codec])
    assert reader.levels[0].codec == codec

    [part] = tile_parts(reader, screen_levels(reader)[0], 0, 0)

    assert Image.open(io.BytesIO(part.jpeg)).format == "JPEG"
    shown = decoded(part.jpeg)
    assert shown.shape == (500, 512, 3)
    assert np.abs(shown - pixels[:500, :512]).mean() < 8  # noise of ±20 through a JPEG of quality 90
    assert np.abs(thumbnail(reader, 70).astype(int) - pixels.reshape(50, 10, 70, 10, 3).mean((1, 3))).max() < 1.5


def test_the_profile_is_applied_to_jpeg_2000_chunks_too(other_stores, tmp_path):
    _, stores = other_stores
    store = shutil.copytree(stores["imagecodecs_jpeg2k"], tmp_path / stores["imagecodecs_jpeg2k"].name)
    before = first_tile(StoreReader(store))
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["icc"] = base64.b64encode(swapped_profile()).decode()
    write_json(store / "zarr.json", root)

    after = first_tile(StoreReader(store))

    assert np.abs(after - before[..., ::-1]).mean() < 8  # noise of ±20 through two JPEGs
    assert np.abs(after - before).mean() > 10
