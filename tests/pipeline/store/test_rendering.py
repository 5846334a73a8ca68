"""What the browser is sent."""

import base64
import io

import numpy as np
import pytest
import tifffile
import zarr
from PIL import Image, ImageCms

from pipeline.config import IngestConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.store.layout import ArraySpec
from pipeline.store.metadata import read_json, write_json
from pipeline.store.reader import StoreReader
from pipeline.store.render import render_chunk_jpeg, thumbnail
from pipeline.store.shard import write_shard
from pipeline.store.zarr_codecs import Jpeg2000Codec, JpegCodec
from tests.pipeline.make import picture, write_jpeg_pyramid
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


def test_a_chunk_without_profile_is_sent_as_it_was_scanned(store):
    reader = StoreReader(store)

    assert render_chunk_jpeg(reader, 0, 1, 1) == reader.chunk(0, 1, 1)


def test_the_scanner_s_profile_is_applied_to_tiles_and_thumbnails(store):
    plain = StoreReader(store)
    before, small = decoded(render_chunk_jpeg(plain, 0, 1, 1)), thumbnail(plain, 200)
    root = read_json(store / "zarr.json")
    root["attributes"]["gemslide"]["icc"] = base64.b64encode(swapped_profile()).decode()
    write_json(store / "zarr.json", root)

    reader = StoreReader(store)
    after = decoded(render_chunk_jpeg(reader, 0, 1, 1))

    assert np.abs(after - before[..., ::-1]).mean() < 5  # two JPEG encodings apart
    assert np.abs(after - before).mean() > 10
    assert np.abs(thumbnail(reader, 200).astype(int) - small[..., ::-1]).mean() < 3


def test_a_thumbnail_read_in_bands_is_the_average_of_the_slide(store):
    reader = StoreReader(store)
    level = reader.levels[0]
    whole = reader.read_region(0, 0, 0, level.width_px, level.height_px).astype(float)

    small = level.array.read_whole(110, 82)

    blocks = whole.reshape(82, 10, 110, 10, 3).mean((1, 3))
    assert np.abs(small - blocks).max() <= 1


def test_a_picture_of_the_level_s_own_size_is_the_level(store):
    level = StoreReader(store).levels[1]

    assert np.array_equal(
        level.array.read_whole(level.width_px, level.height_px),
        level.array.read_region(0, 0, level.width_px, level.height_px),
    )


def test_an_array_whose_tables_lie_in_its_configuration_is_decoded_by_plain_zarr_with_the_right_colours(tmp_path):
    """As the imagecodecs project's own codec keeps abbreviated tiles."""
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [picture(256, 256)], photometric="rgb")
    with tifffile.TiffFile(source) as tiff:
        page = tiff.pages[0]
        tiff.filehandle.seek(page.dataoffsets[0])
        tile, tables = tiff.filehandle.read(page.databytecounts[0]), page.jpegtables
        expected = page.asarray()
    meta = ArraySpec(256, 256, 256, 1, "imagecodecs_jpeg").to_zarr_json()
    keys = {"tables": base64.b64encode(tables).decode(), "colorspace_jpeg": "RGB", "colorspace_data": "RGB"}
    meta["codecs"][0]["configuration"]["codecs"][1]["configuration"] = keys
    (tmp_path / "array/c/0/0").mkdir(parents=True)
    write_json(tmp_path / "array/zarr.json", meta)
    write_shard(tmp_path / "array/c/0/0/0", [(tile,)])

    found = zarr.open_array(tmp_path / "array", mode="r")[...]

    np.testing.assert_array_equal(np.moveaxis(found, 0, -1), expected)
    with pytest.raises(ValueError, match="no complete streams"):
        ArraySpec.from_zarr_json(meta)


@pytest.mark.parametrize("codec", [JpegCodec, Jpeg2000Codec])
def test_a_configuration_key_that_nobody_knows_is_refused(codec):
    with pytest.raises(ValueError, match=r"unknown configuration keys \['colour'\]"):
        codec.from_dict({"name": codec.codec_name, "configuration": {"colour": 1}})
