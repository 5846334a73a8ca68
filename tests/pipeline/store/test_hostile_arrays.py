"""Files of an array may be hostile: a foreign array is one clear error, at once and in little memory."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tracemalloc

import google_crc32c
import numpy as np
import pytest

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.store.format.layout import ArraySpec
from pipeline.store.reading import array_reader
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.render import thumbnail
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import UnreadableError

SHARD = "0/0/c/0/0/0"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    return ingest(write_jpeg_pyramid(folder / "a.tiff", [sample_image(700, 460)]), folder, smallest_level_px=700).store


@pytest.fixture
def store(made, tmp_path):
    return shutil.copytree(made, tmp_path / made.name)


def sharding(**changes):
    def change(meta):
        meta["codecs"][0]["configuration"] |= changes

    return change


def grid(px):
    return lambda meta: meta["chunk_grid"]["configuration"].update(chunk_shape=[3, px, px])


def inner(*codecs):
    return sharding(codecs=[{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, *codecs])


JPEG, CRC = {"name": "imagecodecs_jpeg"}, {"name": "crc32c"}
HOSTILE = {
    "no codecs": lambda meta: meta.update(codecs=[]),
    "codecs are a number": lambda meta: meta.update(codecs=5),
    "codecs are numbers": sharding(codecs=[1, 2]),
    "codecs are words": sharding(codecs="crc32c"),
    "not sharded": lambda meta: meta.update(codecs=[{"name": "bytes"}]),
    "another name of sharding": lambda meta: meta["codecs"][0].update(name="other"),
    "an unknown codec before": inner({"name": "scramble"}, JPEG, CRC),
    "an unknown codec behind": inner(JPEG, CRC, {"name": "scramble"}),
    "a checksum twice": inner(JPEG, CRC, CRC),
    "a checksum before the image": inner(CRC, JPEG),
    "two images": inner(JPEG, {"name": "imagecodecs_jpeg2k"}, CRC),
    "the image only": sharding(codecs=[JPEG, CRC]),
    "another order of axes": sharding(codecs=[{"name": "transpose", "configuration": {"order": [2, 1, 0]}}, JPEG]),
    "big-endian": inner({"name": "bytes", "configuration": {"endian": "big"}}, {"name": "zstd"}),
    "the index at the start": sharding(index_location="start"),
    "an index without a checksum": sharding(index_codecs=[{"name": "bytes", "configuration": {"endian": "little"}}]),
    "chunks of no pixel": sharding(chunk_shape=[3, 0, 0]),
    "chunks of less than none": sharding(chunk_shape=[3, -256, -256]),
    "chunks of half a pixel": sharding(chunk_shape=[3, 256.5, 256.5]),
    "chunks of true": sharding(chunk_shape=[3, True, True]),
    "chunks that are not square": sharding(chunk_shape=[3, 128, 256]),
    "chunks as large as a slide": sharding(chunk_shape=[3, 2**20, 2**20]),
    "one channel in a chunk": sharding(chunk_shape=[1, 256, 256]),
    "shards that are no multiple": grid(500),
    "shards smaller than chunks": grid(128),
    "shards of 2^40 chunks": grid(256 * 2**20),
    "shards that are not square": lambda meta: meta["chunk_grid"]["configuration"].update(chunk_shape=[3, 256, 512]),
    "another grid": lambda meta: meta["chunk_grid"].update(name="rectilinear"),
    "a slide of 2^60 px": lambda meta: meta.update(shape=[3, 2**60, 2**60]),
    "a slide of no height": lambda meta: meta.update(shape=[3, 0, 700]),
    "a height of words": lambda meta: meta.update(shape=[3, "460", 700]),
    "two axes": lambda meta: meta.update(shape=[460, 700]),
    "four channels": lambda meta: meta.update(shape=[4, 460, 700]),
    "16 bits": lambda meta: meta.update(data_type="uint16"),
    "black where nothing is": lambda meta: meta.update(fill_value=0),
    "other names of files": lambda meta: meta["chunk_key_encoding"]["configuration"].update(separator="."),
    "a storage transformer": lambda meta: meta.update(storage_transformers=[{"name": "other"}]),
    "a group": lambda meta: meta.update(node_type="group"),
    "zarr v2": lambda meta: meta.update(zarr_format=2),
    "no attributes at all": lambda meta: meta.clear(),
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_metadata_of_another_kind_of_array_are_refused_whatever_they_say(store, change):
    path = store / "0/0/zarr.json"
    meta = json.loads(path.read_text())
    change(meta)
    path.write_text(json.dumps(meta))

    with pytest.raises(UnreadableError, match="not an array of a slide store"):
        StoreReader(store)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"codecs": ' + b"[" * 900 + b"]" * 900 + b"}", b" " * 2**21],
    ids=["empty", "no text", "a list", "null", "nested too deeply", "nested", "2 MB of nothing"],
)
def test_metadata_that_are_no_json_of_an_array_are_refused(store, content):
    (store / "0/0/zarr.json").write_bytes(content)

    with pytest.raises(UnreadableError, match=r"0/0: .* The store is damaged; delete it and ingest the slide again"):
        StoreReader(store)


@pytest.mark.parametrize("name", [SHARD, "0/0/zarr.json"])
def test_a_named_pipe_in_place_of_a_file_is_refused_and_not_waited_for(store, name):
    (store / name).unlink()
    os.mkfifo(store / name)

    with pytest.raises(UnreadableError, match="not a regular file"):
        StoreReader(store).read_region(0, Box(0, 0, 100, 100))


def test_a_folder_in_place_of_a_shard_is_refused(store):
    (store / SHARD).unlink()
    (store / SHARD).mkdir()

    with pytest.raises(UnreadableError, match="not a regular file"):
        StoreReader(store).chunk(0, 0, 0)


@pytest.mark.parametrize("name", ["0/0", "0/0/zarr.json", "0/0/c", "0/0/c/0/0", SHARD])
def test_a_link_that_leads_to_another_slide_s_pixels_is_refused(store, tmp_path, name):
    other = write_jpeg_pyramid(tmp_path / "b.tiff", [sample_image(700, 460, 3)])
    theirs = ingest(other, tmp_path / "theirs", smallest_level_px=700).store / name
    ours = store / name
    shutil.rmtree(ours) if ours.is_dir() else ours.unlink()
    ours.symlink_to(theirs)

    with pytest.raises(UnreadableError, match="a symbolic link leads out of the store"):
        StoreReader(store).read_region(0, Box(0, 0, 100, 100))


def test_a_store_that_is_reached_by_a_link_is_read(store, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / store.name
    link.symlink_to(store)

    assert (
        StoreReader(link).read_region(0, Box(0, 0, 90, 70)) == StoreReader(store).read_region(0, Box(0, 0, 90, 70))
    ).all()


def forged_index(store, entries):
    """Shard of 4 kB followed by the given index with a correct checksum."""
    packed = struct.pack(f"<{len(entries)}Q", *entries)
    (store / SHARD).write_bytes(bytes(4096) + packed + google_crc32c.value(packed).to_bytes(4, "little"))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ((0, 2**62), "outside its 4096 bytes"),
        ((100, 2**64 - 50), "outside its 4096 bytes"),
        ((2**63, 10), "outside its 4096 bytes"),
        ((4090, 10), "outside its 4096 bytes"),
        ((0, 3), "the checksum of its 3 bytes does not match"),
        ((0, 4), "JPEG of 0 bytes"),
        ((0, 4096), "the checksum of its 4096 bytes does not match"),
    ],
)
def test_an_index_that_lies_with_a_right_checksum_is_a_corrupt_tile(store, entry, message):
    forged_index(store, [*entry, *[2**64 - 1] * 6])

    with pytest.raises(CorruptTileError, match=message):
        StoreReader(store).read_region(0, Box(0, 0, 100, 100))


def test_a_chunk_of_gigabytes_is_refused_without_reading_it(store):
    """Sparse file of 8 GB whose index claims that all of it is one chunk."""
    packed = struct.pack("<8Q", 0, 2**33, *[2**64 - 1] * 6)
    with (store / SHARD).open("r+b") as stream:
        stream.truncate(2**33)
        stream.seek(2**33)
        stream.write(packed + google_crc32c.value(packed).to_bytes(4, "little"))
    reader = StoreReader(store)
    tracemalloc.start()

    with pytest.raises(CorruptTileError, match="names a chunk of 8589934592 bytes"):
        reader.read_region(0, Box(0, 0, 100, 100))

    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_a_level_of_millions_of_pixels_a_side_is_not_read_for_an_overview(store):
    """No file of it is damaged: all shards that are missing are white."""
    path = store / "0/0/zarr.json"
    path.write_text(json.dumps(ArraySpec(2**21, 2**21, 256, 2, "imagecodecs_jpeg").to_zarr_json()))

    with pytest.raises(UnreadableError, match="2097152 × 2097152 px, too many to read"):
        thumbnail(StoreReader(store), 512)


def test_a_whole_level_is_read_in_parts_that_fit_into_memory(store, monkeypatch):
    array = StoreReader(store).levels[0].array
    expected = array.read_whole(140, 92)
    monkeypatch.setattr(array_reader, "MAX_BAND_BYTES", 3 * 255 * 50)

    np.testing.assert_array_equal(array.read_whole(140, 92), expected)


def test_chunks_without_checksums_are_told_from_those_with_them(store):
    spec = ArrayReader.open(store / "0/0").spec

    assert spec.has_checksums
    bare = ArraySpec(spec.width_px, spec.height_px, spec.chunk_px, spec.shard_chunks, spec.codec, has_checksums=False)
    assert ArraySpec.from_zarr_json(bare.to_zarr_json()) == bare
    assert ArraySpec.from_zarr_json(spec.to_zarr_json()) == spec
