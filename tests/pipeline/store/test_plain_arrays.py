"""Tissue, predictions and scores: plain zarr reads our files, and we read files of earlier versions, nothing else."""

from __future__ import annotations

import json
import os
import tracemalloc

import google_crc32c
import imagecodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import ZstdCodec

from pipeline.store.format.plain_array import PlainArray, read_array, write_array
from training.foundation.errors import UnreadableError

CHUNK = "a/c/0/0/0"


def values_of(dtype: str, shape=(2, 70, 90)):
    random = np.random.default_rng(3)
    if dtype == "uint8":
        return random.integers(0, 255, shape).astype(np.uint8)
    values = random.normal(size=shape).astype(dtype)
    values[..., 4:9, :] = np.nan
    return values


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
@pytest.mark.parametrize(("shape", "axes"), [((2, 70, 90), "cyx"), ((2100, 90), "yx"), ((1, 1), "yx")])
def test_plain_zarr_reads_what_we_write_and_so_do_we(tmp_path, dtype, shape, axes):
    values, fill = values_of(dtype, shape), 0 if dtype == "uint8" else float("nan")

    write_array(tmp_path / "a", values, axes, fill_value=fill)

    array = zarr.open_array(tmp_path / "a", mode="r")
    assert array.metadata.to_dict()["codecs"][-1] == {"name": "crc32c"}
    np.testing.assert_array_equal(array[...], values)
    np.testing.assert_array_equal(read_array(tmp_path, "a"), values)
    assert read_array(tmp_path, "a").dtype == dtype


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_what_zarr_wrote_for_earlier_versions_is_read(tmp_path, dtype):
    """Without checksums, with 1024 cells per chunk, and without chunks that are all fill value."""
    values, fill = values_of(dtype, (1500, 1100)), 7 if dtype == "uint8" else np.nan
    values[1024:, :1024] = fill
    array = zarr.create_array(
        store=str(tmp_path / "a"), shape=values.shape, dtype=dtype, chunks=(1024, 1024), fill_value=fill,
        compressors=[ZstdCodec(level=3)], dimension_names=("y", "x"), config={"write_empty_chunks": False},
    )  # fmt: skip
    array[...] = values

    assert not (tmp_path / "a/c/1/0").exists()
    np.testing.assert_array_equal(read_array(tmp_path, "a"), values)


@pytest.fixture
def store(tmp_path):
    write_array(tmp_path / "s/a", values_of("float16"), "cyx", fill_value=float("nan"))
    return tmp_path / "s"


def test_a_chunk_that_is_missing_is_the_fill_value_as_in_zarr(store):
    (store / CHUNK).unlink()

    np.testing.assert_array_equal(read_array(store, "a"), zarr.open_array(store / "a", mode="r")[...])
    assert np.isnan(read_array(store, "a")).all()


def test_every_single_bit_of_a_chunk_is_under_the_checksum(tmp_path):
    write_array(tmp_path / "a", np.zeros((3, 4), np.uint8), "yx", fill_value=0)
    path = tmp_path / "a/c/0/0"
    stored = path.read_bytes()
    for bit in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(UnreadableError, match=r"the checksum of its .* bytes does not match"):
            read_array(tmp_path, "a")


HOSTILE = {
    "2^40 cells": {"shape": [2, 2**20, 2**20]},
    "chunks larger than the array": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 70, 91]}}},
    "chunks of nothing": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 0, 90]}}},
    "12,600 chunks of 10^9": {
        "shape": [2, 30_000, 30_000],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 1, 1]}},
    },
    "a negative size": {"shape": [2, -70, 90]},
    "half a cell": {"shape": [2, 70.5, 90]},
    "true": {"shape": [2, True, 90]},
    "no axes": {"shape": []},
    "seven axes": {"shape": [1] * 7},
    "64-bit values": {"data_type": "float64"},
    "values of an object": {"data_type": {"name": "object"}},
    "big-endian": {"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd"}]},
    "no compression": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]},
    "a codec of others": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "other"}]},
    "codecs in another order": {"codecs": [{"name": "zstd"}, {"name": "bytes"}]},
    "no codecs": {"codecs": None},
    "another separator": {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "../"}}},
    "a fill value of words": {"fill_value": "many"},
    "a fill value of 400 digits": {"fill_value": 10**400},
    "an infinite fill value": {"fill_value": float("inf")},
    "a size of 400 digits": {"shape": [2, 70, 10**400]},
    "a group": {"node_type": "group"},
    "zarr v2": {"zarr_format": 2},
    "a storage transformer": {"storage_transformers": [{"name": "other"}]},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_metadata_of_another_kind_of_array_are_refused(store, changes):
    path = store / "a/zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    with pytest.raises(UnreadableError, match="a: cannot be read"):
        read_array(store, "a")


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"[" * 10**5, b"{}", b" " * 2**21])
def test_metadata_that_are_no_json_of_an_array_are_refused(store, content):
    (store / "a/zarr.json").write_bytes(content)

    with pytest.raises(UnreadableError, match="a: cannot be read"):
        read_array(store, "a")


@pytest.mark.parametrize("name", ["a/zarr.json", CHUNK])
def test_a_named_pipe_is_refused_and_not_waited_for(store, name):
    (store / name).unlink()
    os.mkfifo(store / name)

    with pytest.raises(UnreadableError, match="not a regular file"):
        read_array(store, "a")


@pytest.mark.parametrize("name", ["a", "a/zarr.json", "a/c", CHUNK])
def test_a_link_out_of_the_store_is_refused(store, tmp_path, name):
    (store / name).rename(tmp_path / "elsewhere")
    (store / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnreadableError, match="a symbolic link leads out of the store"):
        read_array(store, "a")


def test_a_name_that_leads_out_of_the_store_is_refused(store, tmp_path):
    write_array(tmp_path / "other/a", values_of("float16"), "cyx", fill_value=0)

    with pytest.raises(UnreadableError, match="leads out of the store"):
        read_array(store, "../other/a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (imagecodecs.zstd_encode(bytes(2**28)), "Destination buffer is too small"),
        (imagecodecs.zstd_encode(bytes(100)), "holds 100 bytes, not 25200"),
        (b"no zstd", "zstd chunk of 7 bytes"),
        (b"", "holds 0 bytes"),
    ],
    ids=["a bomb of 256 MB", "too little", "junk", "nothing"],
)
def test_a_chunk_that_holds_something_else_is_refused_in_little_memory(store, content, message):
    (store / CHUNK).write_bytes(content + google_crc32c.value(content).to_bytes(4, "little"))
    tracemalloc.start()

    with pytest.raises(UnreadableError, match=message):
        read_array(store, "a")

    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_a_chunk_s_file_of_gigabytes_is_not_read(store):
    os.truncate(store / CHUNK, 2**33)

    with pytest.raises(UnreadableError, match="longer than"):
        read_array(store, "a")


def test_chunks_are_read_one_by_one_with_their_own_shape(tmp_path):
    write_array(tmp_path / "a", np.ones((2050, 3), np.uint8), "yx", fill_value=0)
    array = PlainArray.open(tmp_path, "a")

    assert list(array.positions()) == [(0, 0), (1, 0)]
    assert array.chunk((1, 0)).shape == (2048, 3)
    assert array.chunk((1, 0)).sum() == 6
