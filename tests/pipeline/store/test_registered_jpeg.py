"""The codec `jpeg` that is proposed for zarr's registry: read, as `imagecodecs_jpeg` is."""

from __future__ import annotations

import json

import imagecodecs
import numpy as np
import pytest
import zarr

from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg
from pipeline.errors import DamagedStoreError
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store
from tests.pipeline.make import sample_image
from training.foundation.errors import UnreadableError

NAMES = {"encoded_color_space": "YCbCr", "quality": 85, "subsampling": "4:2:0"}


def plain_array(path, chunks: dict[str, bytes], *, shape, chunk_shape, codecs) -> zarr.Array:
    path.mkdir()
    for key, stream in chunks.items():
        (path / key).parent.mkdir(parents=True, exist_ok=True)
        (path / key).write_bytes(stream)
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "attributes": {},
        "codecs": codecs,
    }
    (path / "zarr.json").write_text(json.dumps(metadata))
    return zarr.open_array(path, mode="r")


@pytest.mark.parametrize("configuration", [{}, NAMES])
def test_an_array_of_another_program_is_read_by_plain_zarr(tmp_path, configuration):
    streams = {f"c/0/0/{i}": jfif("420")(sample_image(64, 48, seed=i)) for i in range(2)}
    codecs = [
        {"name": "transpose", "configuration": {"order": [1, 2, 0]}},
        {"name": "jpeg", "configuration": configuration},
    ]

    array = plain_array(tmp_path / "a", streams, shape=[3, 48, 128], chunk_shape=[3, 48, 64], codecs=codecs)

    expected = np.concatenate([decode_jpeg(stream) for stream in streams.values()], axis=1)
    np.testing.assert_array_equal(np.moveaxis(array[:], 0, -1), expected)


def test_grey_chunks_and_unmarked_rgb_are_read_as_they_say(tmp_path):
    pixels = sample_image(64, 48)
    grey = imagecodecs.jpeg8_encode(np.ascontiguousarray(pixels[..., 0]), level=95)
    unmarked = imagecodecs.jpeg8_encode(pixels, level=95, colorspace="RGB", outcolorspace="RGB").replace(
        b"Adobe", b"adobe", 1
    )
    rgb = [{"name": "jpeg", "configuration": {"encoded_color_space": "RGB"}}]

    plane = plain_array(
        tmp_path / "g", {"c/0/0": grey}, shape=[48, 64], chunk_shape=[48, 64], codecs=[{"name": "jpeg"}]
    )
    colours = plain_array(tmp_path / "c", {"c/0/0/0": unmarked}, shape=[48, 64, 3], chunk_shape=[48, 64, 3], codecs=rgb)

    assert np.abs(plane[:].astype(int) - pixels[..., 0]).mean() < 4
    assert np.abs(colours[:].astype(int) - pixels).mean() < 4


@pytest.mark.parametrize("configuration", [{"encoded_color_space": "CMYK"}, {"decoded_color_space": "YCbCr"}, {"q": 1}])
def test_what_cannot_be_read_is_refused_with_the_key(tmp_path, configuration):
    with pytest.raises(ValueError, match=next(iter(configuration))):
        plain_array(
            tmp_path / "a", {}, shape=[48, 64], chunk_shape=[48, 64],
            codecs=[{"name": "jpeg", "configuration": configuration}],
        )  # fmt: skip


@pytest.mark.parametrize(("configuration", "is_read"), [(NAMES, True), ({"encoded_color_space": "RGB"}, False)])
def test_a_store_may_name_its_chunks_so(tmp_path, configuration, is_read):
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(sample_image(500, 300), 256, jfif("420"))])
    expected = StoreReader(store).read_region(0, Box(0, 0, 500, 300))
    metadata = json.loads((store / "0/0/zarr.json").read_text())
    inner = metadata["codecs"][0]["configuration"]["codecs"]
    inner[1] = {"name": "jpeg", "configuration": configuration}
    (store / "0/0/zarr.json").write_text(json.dumps(metadata))

    if is_read:
        np.testing.assert_array_equal(StoreReader(store).read_region(0, Box(0, 0, 500, 300)), expected)
        theirs = zarr.open_array(store / "0/0", mode="r")
        np.testing.assert_array_equal(np.moveaxis(theirs[:], 0, -1), expected)
    else:
        with pytest.raises((UnreadableError, DamagedStoreError), match="not an array of a slide store"):
            StoreReader(store)
