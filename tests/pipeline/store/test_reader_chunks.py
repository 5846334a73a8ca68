"""Chunks as stored, in every codec; sparse chunks; and stores that change or are damaged while a reader is open."""

from __future__ import annotations

import pickle
import shutil

import numpy as np
import pytest
import tifffile

from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg, encode_jpeg, encode_jpeg_2000
from pipeline.codecs.types import DecodeError
from pipeline.errors import CorruptTileError
from pipeline.store.format.chunks import decode_chunk, encode_zstd
from pipeline.store.format.shard import write_shard
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import (
    halved,
    ingest,
    overwrite_tag,
    sample_image,
    write_aperio_j2k,
    write_jpeg_pyramid,
    write_pyramid,
)  # fmt: skip
from training.foundation.errors import UnreadableError

WIDTH_PX0, HEIGHT_PX0 = 1100, 700
RGB_MARKER = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
CODECS = ("imagecodecs_jpeg", "imagecodecs_jpeg2k", "zstd")


def make_source(folder, codec: str, seed: int = 0):
    pixels = sample_image(WIDTH_PX0, HEIGHT_PX0, seed)
    if codec == "imagecodecs_jpeg":
        return write_jpeg_pyramid(folder / f"{seed}.tiff", [pixels])
    if codec == "imagecodecs_jpeg2k":
        return write_aperio_j2k(folder / f"{seed}.svs", pixels, compression=33005)
    return write_pyramid(folder / f"{seed}.tiff", [pixels], compression="lzw")


@pytest.fixture(scope="module")
def make_store(tmp_path_factory):
    """Copy a store that is made once: `make_store(folder, codec, seed)`."""
    made = {}

    def make(folder, codec: str, seed: int = 0):
        if (codec, seed) not in made:
            home = tmp_path_factory.mktemp("store")
            source = make_source(home, codec, seed)
            made[codec, seed] = ingest(source, home, smallest_level_px=1100, decode_chunk_px=256).store
            assert [level.codec for level in StoreReader(made[codec, seed]).levels] == [codec]
        return shutil.copytree(made[codec, seed], folder / f"{codec}-{seed}" / made[codec, seed].name)

    return make


def source_tile(path, number: int, page: int = 0) -> bytes:
    with tifffile.TiffFile(path) as tiff:
        tiff_page = tiff.pages[page]
        tiff.filehandle.seek(tiff_page.dataoffsets[number])
        return tiff.filehandle.read(tiff_page.databytecounts[number])


@pytest.mark.parametrize("photometric", ["rgb", "ycbcr"])
@pytest.mark.parametrize("shared_tables", [True, False])
def test_a_jpeg_chunk_is_the_source_s_tile_after_its_head(tmp_path, photometric, shared_tables):
    """Start marker, colour marker if the tile has none, tables; then the tile's own bytes to the end."""
    source = write_jpeg_pyramid(
        tmp_path / "a.tiff", halved(sample_image(700, 500), 1), photometric=photometric, shared_tables=shared_tables
    )
    with tifffile.TiffFile(source) as tiff:
        tables = tiff.pages[0].jpegtables[2:-2] if shared_tables else b""
    reader = StoreReader(ingest(source, tmp_path).store)

    for level, columns, rows in ((0, 3, 2), (1, 2, 1)):
        for row in range(rows):
            for column in range(columns):
                tile = source_tile(source, row * columns + column, level)
                chunk = reader.chunk(level, row, column)
                assert chunk.endswith(tile[2:])
                head = chunk[: -len(tile[2:])]
                assert head.startswith(b"\xff\xd8")
                assert head.replace(tables, b"", 1) in (
                    b"\xff\xd8",
                    b"\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64" + b"\0" * 5,
                )


def without_comment(codestream: bytes) -> bytes:
    """OpenJPEG writes its name and version before the first tile part; no pixel depends on it."""
    at = codestream.index(b"\xff\x64")
    return codestream[:at] + codestream[at + 2 + int.from_bytes(codestream[at + 2 : at + 4], "big") :]


def test_a_jpeg_2000_chunk_is_the_source_s_codestream_without_its_comment(tmp_path):
    source = make_source(tmp_path, "imagecodecs_jpeg2k")
    reader = StoreReader(ingest(source, tmp_path).store)

    for row in range(3):
        for column in range(5):
            assert reader.chunk(0, row, column) == without_comment(source_tile(source, row * 5 + column))
    with tifffile.TiffFile(source) as tiff:
        np.testing.assert_array_equal(reader.read_region(0, Box(0, 0, WIDTH_PX0, HEIGHT_PX0)), tiff.pages[0].asarray())


@pytest.mark.parametrize("codec", CODECS)
def test_a_chunk_outside_the_grid_is_an_index_error(make_store, tmp_path, codec):
    reader = StoreReader(make_store(tmp_path, codec))

    for row, column in ((-1, 0), (0, -1), (3, 0), (0, 5)):
        with pytest.raises(IndexError, match="the level has 3 × 5"):
            reader.chunk(0, row, column)


@pytest.mark.parametrize("codec", ["imagecodecs_jpeg", "imagecodecs_jpeg2k"])
def test_sparse_chunks_and_whole_sparse_shards_are_white_everywhere(tmp_path, codec):
    source = make_source(tmp_path, codec)
    sparse = [(0, 1), (2, 2), (2, 3)]  # the last two are a complete shard
    reduced = np.ascontiguousarray(sample_image(WIDTH_PX0, HEIGHT_PX0)[::2, ::2])
    for row, column in sparse:
        reduced[row * 128 :, column * 128 :][:128, :128] = 255
    tifffile.imwrite(source, reduced, append=True, photometric="rgb", tile=(256, 256), compression="lzw", metadata=None)
    for row, column in sparse:
        overwrite_tag(source, 324, 0, index=row * 5 + column)
        overwrite_tag(source, 325, 0, index=row * 5 + column)
    reader = StoreReader(ingest(source, tmp_path, smallest_level_px=1100).store)

    assert not (reader.path / "0/0/c/0/1/1").exists()
    for row, column in sparse:
        assert reader.chunk(0, row, column) is None
        assert reader.levels[0].array.decoded_chunk(row, column) is None
    assert reader.chunk(0, 1, 1) is not None
    assert (reader.read_region(0, Box(256, 0, 256, 256), threads=2) == 255).all()
    assert (reader.read_region(0, Box(512, 512, 512, 500)) == 255).all()
    assert (reader.read_at_mpp(520.5, 520, 50, 40, 0.7) == 255).all()
    assert (reader.read_regions(0, [(600, 512), (300, 10)], 60, 50) == 255).all()
    assert not (reader.read_region(0, Box(0, 0, 257, 20))[:, :256] == 255).all()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-1], "index of 4 chunks is damaged"),
        (lambda b: b[:40], "index of 4 chunks is damaged"),
        (lambda b: b[1000:], "names bytes outside"),
        (lambda b: b"\0" * 600 + b[600:], "chunk in row 0, column 0"),
    ],
    ids=["one byte short", "only a head", "its front is missing", "zeroed front"],
)
def test_a_damaged_shard_is_one_clear_error_in_every_codec(make_store, tmp_path, codec, damage, message):
    store = make_store(tmp_path, codec)
    shard = store / "0/0/c/0/0/0"
    shard.write_bytes(damage(shard.read_bytes()))

    with pytest.raises(CorruptTileError, match=message):
        StoreReader(store).read_region(0, Box(0, 0, 300, 300))
    StoreReader(store).read_region(0, Box(600, 600, 50, 50))  # another shard


def test_a_chunk_cut_short_inside_a_sound_index_is_an_error_in_every_codec(tmp_path):
    """A shard written again from damaged streams: its index and checksum are right."""
    pixels = sample_image(256, 256)
    streams = {
        "imagecodecs_jpeg": encode_jpeg(pixels),
        "imagecodecs_jpeg2k": encode_jpeg_2000(pixels),
        "zstd": encode_zstd(pixels),
    }
    for codec, stream in streams.items():
        np.testing.assert_array_equal(decode_chunk(codec, stream, 256).shape, (256, 256, 3))
        for cut in (stream[: len(stream) // 2], stream[:10], b"\0", stream[: len(stream) // 2] + b"\0" * 900):
            with pytest.raises(DecodeError):
                decode_chunk(codec, cut, 256)


@pytest.mark.parametrize("codec", CODECS)
def test_a_shard_of_another_store_is_noticed_where_its_chunks_differ_in_size(make_store, tmp_path, codec):
    """Chunks of 128 px, and shards of 4 × 4: foreign in either way."""
    store = make_store(tmp_path, codec)
    encode = {"imagecodecs_jpeg": encode_jpeg, "imagecodecs_jpeg2k": encode_jpeg_2000, "zstd": encode_zstd}[codec]
    shard = store / "0/0/c/0/0/0"

    write_shard(shard, [(encode(sample_image(128, 128)),)] * 4)
    with pytest.raises(CorruptTileError, match="chunk in row 0, column 0"):
        StoreReader(store).read_region(0, Box(0, 0, 20, 20))

    write_shard(shard, [(encode(sample_image(256, 256)),)] * 16)
    with pytest.raises(CorruptTileError, match="index of 4 chunks is damaged"):
        StoreReader(store).read_region(0, Box(0, 0, 20, 20))


def test_a_store_replaced_under_an_open_reader_is_an_error_and_never_a_mixture(make_store, tmp_path):
    first, second = make_store(tmp_path, "imagecodecs_jpeg", 1), make_store(tmp_path, "imagecodecs_jpeg", 2)
    reader = StoreReader(first)
    before = reader.read_region(0, Box(0, 0, 200, 200))  # this shard is open, the others are not
    unpickled_later = pickle.dumps(reader)
    first.rename(tmp_path / "aside")
    shutil.copytree(second, first)

    np.testing.assert_array_equal(reader.read_region(0, Box(0, 0, 200, 200)), before)
    with pytest.raises(UnreadableError, match="replaced, moved or deleted while it was being read"):
        reader.read_region(0, Box(600, 600, 200, 200))
    np.testing.assert_array_equal(
        pickle.loads(unpickled_later).read_region(0, Box(600, 600, 200, 200)),
        StoreReader(second).read_region(0, Box(600, 600, 200, 200)),
    )


def test_a_store_deleted_under_an_open_reader_is_an_error_and_not_white(make_store, tmp_path):
    store = make_store(tmp_path, "zstd")
    reader = StoreReader(store)
    shutil.rmtree(store)

    with pytest.raises(UnreadableError, match="replaced, moved or deleted"):
        reader.read_region(0, Box(0, 0, 100, 100))


def test_quality_and_predictions_written_under_an_open_reader_do_not_disturb_it(make_store, tmp_path):
    store = make_store(tmp_path, "zstd")
    reader = StoreReader(store)
    root = store / "zarr.json"
    text = root.read_text()
    root.unlink()
    root.write_text(text)

    assert reader.read_region(0, Box(0, 0, 100, 100)).shape == (100, 100, 3)


def test_a_jpeg_without_its_end_is_not_filled_up_with_grey():
    stream = encode_jpeg(sample_image(256, 256))

    with pytest.raises(DecodeError, match="without an end marker"):
        decode_jpeg(stream[:-2000])
