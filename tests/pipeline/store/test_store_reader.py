"""The fast reader returns the same pixels for any region and from any caller."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

from pipeline.box import Box
from pipeline.errors import CorruptTileError
from pipeline.store.reading import array_reader
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import UnreadableError

WIDTH_PX0, HEIGHT_PX0 = 1300, 900


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Store with tiles of 240 px in shards of 2 × 2 and three levels: two passed, one built."""
    folder = tmp_path_factory.mktemp("reader")
    source = write_jpeg_pyramid(folder / "a.tiff", halved(sample_image(WIDTH_PX0, HEIGHT_PX0), 1), tile_px=240)
    return ingest(source, folder, smallest_level_px=400).store


@pytest.fixture(scope="module")
def whole(store):
    """Level 0 read by plain zarr, with a white border of 400 px."""
    pixels = np.moveaxis(zarr.open(store, mode="r")["0/0"][...], 0, -1)
    return np.pad(pixels, ((400, 400), (400, 400), (0, 0)), constant_values=255)


def boxes():
    random = np.random.default_rng(5)
    corners = random.integers((-390, -390), (WIDTH_PX0 + 90, HEIGHT_PX0 + 90), (40, 2))
    sizes = random.integers(1, 300, (40, 2))
    return [tuple(int(v) for v in (*corner, *size)) for corner, size in zip(corners, sizes, strict=True)]


EDGES = [
    (0, 0, 1, 1),
    (239, 239, 2, 2),
    (WIDTH_PX0 - 1, HEIGHT_PX0 - 1, 1, 1),
    (WIDTH_PX0 - 5, HEIGHT_PX0 - 5, 20, 20),
    (-10, -10, 20, 20),
    (-30, 100, 30, 10),
    (WIDTH_PX0 + 5, 100, 40, 30),  # beyond the slide, but within its last tile's padding
    (100, HEIGHT_PX0 + 5, 40, 30),
    (WIDTH_PX0 + 5, HEIGHT_PX0 + 5, 40, 30),
    (WIDTH_PX0, HEIGHT_PX0, 10, 10),
    (0, 0, WIDTH_PX0, HEIGHT_PX0),
]


@pytest.mark.parametrize("box", EDGES)
def test_a_region_at_or_over_the_border_is_the_slide_and_white_beyond(store, whole, box):
    x, y, width, height = box

    region = StoreReader(store).read_region(0, Box(*box))

    np.testing.assert_array_equal(region, whole[400 + y : 400 + y + height, 400 + x : 400 + x + width])


def test_a_region_far_outside_is_white(store):
    reader = StoreReader(store)

    for box in ((-5000, 0, 7, 5), (90_000, 0, 7, 5), (0, 90_000, 7, 5), (0, -5000, 7, 5)):
        assert (reader.read_region(0, Box(*box)) == 255).all()


def crcs(reader: StoreReader) -> list[int]:
    return [zlib.crc32(np.ascontiguousarray(reader.read_region(0, Box(*box)))) for box in boxes()]


def _crcs_into(queue, reader: StoreReader) -> None:
    queue.put(crcs(reader))


def test_threads_read_what_one_thread_reads(store, whole):
    expected = [whole[400 + y : 400 + y + h, 400 + x : 400 + x + w] for x, y, w, h in boxes()]
    reader = StoreReader(store)

    with ThreadPoolExecutor(8) as pool:
        regions = list(pool.map(lambda box: reader.read_region(0, Box(*box)), boxes() * 3))

    for pixels, wanted in zip(regions, expected * 3, strict=True):
        np.testing.assert_array_equal(pixels, wanted)


# From Python 3.12 on forking with threads warns; PyTorch's loaders fork anyway, so it has to work.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_read_what_their_parent_reads(store, start):
    reader = StoreReader(store)
    expected = crcs(reader)  # its files are open when the workers start
    context = multiprocessing.get_context(start)
    queue = context.Queue()
    workers = [context.Process(target=_crcs_into, args=(queue, reader)) for _ in range(2)]
    for worker in workers:
        worker.start()

    checksums = [queue.get(timeout=60) for _ in workers]

    for worker in workers:
        worker.join()
    assert checksums == [expected, expected]
    assert crcs(reader) == expected


def test_a_pickled_reader_opens_the_store_anew(store):
    reader = StoreReader(store)
    reader.read_region(0, Box(0, 0, 10, 10))

    copy = pickle.loads(pickle.dumps(reader))

    assert (copy.slide_id, copy.mpp0, copy.size_wh_px0) == (reader.slide_id, reader.mpp0, reader.size_wh_px0)
    assert crcs(copy) == crcs(reader)


def test_a_square_that_needs_no_resampling_is_the_stored_pixels(store, whole):
    reader = StoreReader(store)

    square = reader.read_square(0, 123, 45, 224, 224)
    coarse = reader.read_square(1, 124, 46, 448, 224)

    np.testing.assert_array_equal(square, whole[445:669, 523:747])
    np.testing.assert_array_equal(coarse, reader.read_region(1, Box(62, 23, 224, 224)))


def test_a_square_of_half_the_size_is_the_mean_of_two_by_two_pixels(store, whole):
    square = StoreReader(store).read_square(0, 100, 60, 128, 64)

    mean = whole[460:588, 500:628].astype(int).reshape(64, 2, 64, 2, 3).sum((1, 3)) / 4
    assert np.abs(square - mean).max() <= 0.5


@pytest.mark.parametrize(("wanted", "level"), [(0.5, 0), (1.0, 0), (1.9, 0), (1.99, 1), (2.0, 1), (3.9, 1), (64, 2)])
def test_the_level_for_a_downsample_is_the_coarsest_that_is_fine_enough(store, wanted, level):
    assert StoreReader(store).level_for_downsample(wanted) == level


def test_few_files_stay_open_however_many_shards_and_readers_there_are(store, monkeypatch):
    small = array_reader.lru_cache(maxsize=3)(array_reader._open_shard.__wrapped__)
    monkeypatch.setattr(array_reader, "_open_shard", small)
    readers = [StoreReader(store) for _ in range(4)]
    before = len(os.listdir("/proc/self/fd"))

    with ThreadPoolExecutor(8) as pool:
        checksums = list(pool.map(crcs, readers * 2))

    assert all(result == checksums[0] for result in checksums)
    assert len(os.listdir("/proc/self/fd")) <= before + 3


def test_a_reader_opened_after_a_store_was_replaced_sees_the_new_one(tmp_path):
    for seed in (1, 2):
        source = write_jpeg_pyramid(tmp_path / f"{seed}.tiff", [sample_image(500, 300, seed)])
        ingest(source, tmp_path / str(seed))
    path = tmp_path / "1/slides/S-1.ome.zarr"
    old = StoreReader(path)
    first = old.read_region(0, Box(0, 0, 500, 300))
    expected = StoreReader(tmp_path / "2/slides/S-1.ome.zarr").read_region(0, Box(0, 0, 500, 300))

    path.rename(tmp_path / "aside")
    (tmp_path / "2/slides/S-1.ome.zarr").rename(path)

    np.testing.assert_array_equal(StoreReader(path).read_region(0, Box(0, 0, 500, 300)), expected)
    assert not np.array_equal(first, expected)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[: len(b) // 2], "index of 4 chunks is damaged"),
        (lambda b: b[:-30] + bytes([b[-30] ^ 1]) + b[-29:], "index of 4 chunks is damaged"),
        (lambda b: b"\0" * 200 + b[200:], "the checksum of its .* bytes does not match"),
        (lambda b: b[:300] + b"\xff\xc5" * 40 + b[380:], "chunk in row 0, column 0"),
        (lambda b: b"", "index of 4 chunks is damaged"),
    ],
    ids=["cut", "flipped index", "zeroed head", "junk inside", "empty"],
)
def test_a_damaged_shard_is_a_corrupt_tile_and_never_pixels(tmp_path, damage, message):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(500, 300)])
    store = ingest(source, tmp_path).store
    shard = store / "0/0/c/0/0/0"
    shard.write_bytes(damage(shard.read_bytes()))

    with pytest.raises(CorruptTileError, match=message):
        StoreReader(store).read_region(0, Box(0, 0, 500, 300))


def test_a_folder_that_is_no_store_says_so(tmp_path):
    with pytest.raises(UnreadableError, match="no slide store there"):
        StoreReader(tmp_path)
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    with pytest.raises(UnreadableError, match="not a gemslide store"):
        StoreReader(tmp_path)


@pytest.mark.parametrize("version", ["1", "5", "7", "6.0", "true", '"6"', "null"])
def test_a_store_of_another_contract_version_is_refused_and_says_what_to_do(tmp_path, version):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(500, 300)])
    store = ingest(source, tmp_path).store
    root = store / "zarr.json"
    root.write_text(root.read_text().replace('"contract_version": 6', f'"contract_version": {version}'))

    with pytest.raises(
        UnreadableError, match=r"this gemslide reads version 6\. Delete the store and ingest the slide again"
    ):
        StoreReader(store)
