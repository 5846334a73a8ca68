"""Rendered images sent to the browser."""

import base64
import io
import shutil

import numpy as np
import pytest
from PIL import Image, ImageCms

from pipeline.box import Box
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.format.metadata import read_json, write_json
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.colour import ToSrgb, colour_table
from pipeline.store.view.render import thumbnail
from pipeline.store.view.screen import screen_levels, tile_parts
from tests.pipeline.make import ingest, sample_image, write_aperio_j2k, write_pyramid
from tests.small_trained_project import make_slide
from training.foundation.errors import UnreadableError


@pytest.fixture
def store(tmp_path):
    make_slide(tmp_path / "a.tiff", 3)
    return ingest_slide(IngestRequest(tmp_path / "a.tiff", "a"), Project(tmp_path / "p"), IngestConfig()).store


def swapped_profile() -> bytes:
    """sRGB profile with red and blue primaries swapped: colours are wrong unless it is applied."""
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


def test_chunks_without_profile_are_sent_as_they_were_scanned(store):
    reader = StoreReader(store)

    parts = tile_parts(reader, screen_levels(reader)[0], 0, 0)

    assert [part.jpeg for part in parts] == [reader.chunk(0, row, column) for row in (0, 1) for column in (0, 1)]


def give_profile(store, icc: bytes) -> StoreReader:
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["icc"] = base64.b64encode(icc).decode()
    write_json(store / "zarr.json", root)
    return StoreReader(store)


def test_tiles_of_a_slide_with_a_profile_go_out_as_scanned_at_every_level(store):
    plain = StoreReader(store)
    before = [tile_parts(plain, level, 0, 0) for level in screen_levels(plain)]

    reader = give_profile(store, swapped_profile())

    assert [tile_parts(reader, level, 0, 0) for level in screen_levels(reader)] == before


def test_the_scanner_s_profile_is_applied_to_thumbnails(store):
    small = thumbnail(StoreReader(store), 200)

    reader = give_profile(store, swapped_profile())

    assert np.abs(thumbnail(reader, 200).astype(int) - small[..., ::-1]).mean() < 3
    assert np.abs(thumbnail(reader, 200).astype(int) - small).mean() > 10


def test_a_profile_of_no_use_is_an_error_that_says_so(store):
    reader = give_profile(store, b"no profile at all")

    with pytest.raises(UnreadableError, match="ICC profile of 17 bytes cannot be used"):
        thumbnail(reader, 200)
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    with pytest.raises(UnreadableError, match="cannot be used"):
        colour_table(lab)


def test_a_colour_table_holds_what_little_cms_makes_of_its_nodes():
    table = colour_table(swapped_profile())

    nodes, colours = table.nodes, table.colours_rgbc
    assert (nodes[0], nodes[-1]) == (0, 255)
    assert (np.diff(nodes.astype(int)) > 0).all()
    assert colours.shape == (*3 * (len(nodes),), 3)
    chosen = np.array([[3, 11, len(nodes) - 1]])
    expected = ToSrgb(swapped_profile())(nodes[chosen][None])
    assert np.array_equal(colours[tuple(chosen.T)], expected[0])


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
    """Store of JPEG 2000 chunks and store of zstd chunks, with their pixels."""
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
    assert np.abs(shown - pixels[:500, :512]).mean() < 8  # noise of ±20 after JPEG compression at quality 90
    assert np.abs(thumbnail(reader, 70).astype(int) - pixels.reshape(50, 10, 70, 10, 3).mean((1, 3))).max() < 1.5


def test_jpeg_2000_chunks_of_a_slide_with_a_profile_go_out_in_colours_as_scanned(other_stores, tmp_path):
    _, stores = other_stores
    store = shutil.copytree(stores["imagecodecs_jpeg2k"], tmp_path / stores["imagecodecs_jpeg2k"].name)
    plain = StoreReader(store)
    before = tile_parts(plain, screen_levels(plain)[0], 0, 0)

    reader = give_profile(store, swapped_profile())

    assert tile_parts(reader, screen_levels(reader)[0], 0, 0) == before
