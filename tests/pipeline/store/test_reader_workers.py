"""One reader shared by batches, threads, and the workers of PyTorch's loader, forked and spawned."""

from __future__ import annotations

import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from pipeline.box import Box
from pipeline.store.reading import array_reader
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image, write_aperio_j2k, write_jpeg_pyramid, write_pyramid

WIDTH_PX0, HEIGHT_PX0 = 1100, 700
NUM_WORKERS = 2
MORE_FILES = 40
"""Open files of a worker beyond its parent's: torch's pipes, and fewer than 30 shards."""


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """Readers of one store per codec, with shards of 2 × 2 chunks and built lower levels."""
    folder = tmp_path_factory.mktemp("workers")
    pixels = sample_image(WIDTH_PX0, HEIGHT_PX0)
    sources = {
        "imagecodecs_jpeg": write_jpeg_pyramid(folder / "a.tiff", halved(pixels, 1)),
        "imagecodecs_jpeg2k": write_aperio_j2k(folder / "b.svs", pixels, compression=33005),
        "zstd": write_pyramid(folder / "c.tiff", [pixels], compression="deflate"),
    }
    readers_by_codec = {}
    for codec, source in sources.items():
        store = ingest(source, folder, slide_id=codec, smallest_level_px=600, decode_chunk_px=256).store
        readers_by_codec[codec] = StoreReader(store)
        assert readers_by_codec[codec].levels[0].codec == codec
    return readers_by_codec


CODECS = ("imagecodecs_jpeg", "imagecodecs_jpeg2k", "zstd")


def boxes(count: int = 12) -> list[tuple[int, int, int, int]]:
    random = np.random.default_rng(3)
    corners = random.integers((-90, -90), (WIDTH_PX0 - 20, HEIGHT_PX0 - 20), (count, 2))
    sizes = random.integers(1, 260, (count, 2))
    return [tuple(int(v) for v in (*corner, *size)) for corner, size in zip(corners, sizes, strict=True)]


@pytest.mark.parametrize("codec", CODECS)
def test_threads_inside_a_read_give_what_one_gives(readers, codec):
    for level in range(len(readers[codec].levels)):
        for box in boxes(8):
            one = readers[codec].read_region(level, Box(*box))
            np.testing.assert_array_equal(readers[codec].read_region(level, Box(*box), threads=4), one)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_is_its_regions(readers, codec, threads):
    reader = readers[codec]
    corners = [box[:2] for box in boxes(9)]

    batch = reader.read_regions(0, corners, 130, 70, threads=threads)

    assert (batch.dtype, batch.shape, batch.flags.c_contiguous) == (np.uint8, (9, 70, 130, 3), True)
    np.testing.assert_array_equal(batch, [reader.read_region(0, Box(*corner, 130, 70)) for corner in corners])
    assert reader.read_regions(0, [], 130, 70, threads=threads).shape == (0, 70, 130, 3)


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_read_is_own_memory_that_may_be_changed(readers, codec):
    """Decoders work in memory owned by a thread, which must never be returned."""
    reader = readers[codec]
    whole_chunk = reader.read_region(0, Box(256, 256, 256, 256))
    before = whole_chunk.copy()
    chunk = reader.levels[0].array.decoded_chunk(1, 1)

    reader.read_region(0, Box(0, 0, 700, 700))

    assert (whole_chunk.dtype, whole_chunk.flags.c_contiguous, whole_chunk.flags.writeable) == (np.uint8, True, True)
    np.testing.assert_array_equal(whole_chunk, before)
    np.testing.assert_array_equal(chunk, before)
    whole_chunk[...] = 0
    np.testing.assert_array_equal(reader.read_region(0, Box(256, 256, 256, 256)), before)


@pytest.mark.parametrize("codec", CODECS)
def test_many_threads_share_one_reader_and_its_threads(readers, codec):
    reader = pickle.loads(pickle.dumps(readers[codec]))  # none of its files is open yet
    expected = [readers[codec].read_region(0, Box(*box)) for box in boxes()]

    with ThreadPoolExecutor(8) as pool:
        regions = list(pool.map(lambda box: reader.read_region(0, Box(*box), threads=2), boxes() * 2))

    for pixels, wanted in zip(regions, expected * 2, strict=True):
        np.testing.assert_array_equal(pixels, wanted)


def test_an_index_is_read_once_and_chunks_are_not_kept(readers, monkeypatch):
    opened, reads = [], []
    read_index, pread = array_reader.read_index, os.pread
    monkeypatch.setattr(array_reader, "read_index", lambda *a: opened.append(a) or read_index(*a))
    reader = pickle.loads(pickle.dumps(readers["imagecodecs_jpeg"]))
    reader.read_region(0, Box(0, 0, 512, 512))
    monkeypatch.setattr(os, "pread", lambda *a: reads.append(a) or pread(*a))

    for _ in range(3):
        reader.read_region(0, Box(0, 0, 512, 512))

    assert (len(opened), len(reads)) == (1, 3 * 2)  # two rows of two adjacent chunks


class Regions(torch.utils.data.Dataset):
    """Dataset of checksums of regions, and of the worker's number of open files."""

    def __init__(self, readers: list[StoreReader]) -> None:
        self.readers = readers

    def __len__(self) -> int:
        return len(boxes()) * len(self.readers)

    def __getitem__(self, index: int) -> tuple[int, int]:
        reader, box = self.readers[index % len(self.readers)], boxes()[index // len(self.readers)]
        pixels = np.concatenate([reader.read_region(0, Box(*box)), reader.read_at_mpp(*box, 0.9)])
        return zlib.crc32(np.ascontiguousarray(pixels)), len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_loader_s_workers_read_what_their_parent_reads_while_it_goes_on_reading(readers, start):
    dataset = Regions(list(readers.values()))
    expected = [dataset[index][0] for index in range(len(dataset))]  # shards are open before the workers start
    for reader in readers.values():
        reader.read_region(0, Box(0, 0, 300, 300), threads=2)  # threads too, which a forked worker does not inherit
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=6, num_workers=NUM_WORKERS, multiprocessing_context=start, persistent_workers=True
    )

    most_files = len(os.listdir("/proc/self/fd")) + MORE_FILES
    for _ in range(2):
        checksums = []
        for number, (crcs, files) in enumerate(loader):
            checksums += crcs.tolist()
            assert max(files.tolist()) < most_files
            assert dataset[number][0] == expected[number]
        assert checksums == expected


class Threaded(Regions):
    """The same dataset, with threads in each worker."""

    def __getitem__(self, index: int) -> int:
        pixels = self.readers[0].read_region(0, Box(*boxes()[index]), threads=2)
        return zlib.crc32(np.ascontiguousarray(pixels))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_worker_may_use_threads_after_its_parent_did(readers):
    dataset = Threaded([readers["imagecodecs_jpeg"]])
    expected = [dataset[index] for index in range(len(dataset))]
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60
    )

    assert [int(crc) for crc in loader] == expected
