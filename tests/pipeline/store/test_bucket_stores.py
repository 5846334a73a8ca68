"""A store in a bucket shows what it shows in a folder, with few waits, and never a mixture of two slides."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline.box import Box
from pipeline.errors import CorruptTileError, DamagedStoreError, WrongSlideError
from pipeline.export.export import ExportRequest, export_slide
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.ingest.linked import appear
from pipeline.ingest.source_comparison import verify_store
from pipeline.places.object_path import ObjectPath
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.labels import read_tissue
from pipeline.store.reading.reader import StoreReader
from pipeline.store.view.screen import screen_levels, tile_parts
from tests.pipeline.make import PLAIN_TISSUE, halved, sample_image, write_jpeg_pyramid, write_pyramid
from tests.pipeline.store.bucket_server import BUCKET, BucketServer, bucket_server
from training.foundation.errors import BadRecipeError, UnreadableError

CONFIG = IngestConfig(shard_px=512, tissue=PLAIN_TISSUE, smallest_level_px=400)
SIZE_WH_PX0 = (1300, 900)


@dataclass
class Stored:
    """A slide in a folder, and the same in the bucket."""

    server: BucketServer
    source: Path
    store: Path
    url: str
    key: str

    def copy(self, key: str) -> str:
        """Another copy in the bucket, to be damaged; the slide's name stays. Returns its address."""
        self.server.put_folder(self.store, f"{key}/{self.store.name}")
        return f"s3://{BUCKET}/{key}/{self.store.name}"


@pytest.fixture(scope="module")
def server() -> Iterator[BucketServer]:
    with bucket_server() as running:
        yield running


@pytest.fixture(scope="module")
def made(server: BucketServer, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("bucket")
    source = write_jpeg_pyramid(folder / "slide.tiff", halved(sample_image(*SIZE_WH_PX0), 1))
    store = ingest_slide(IngestRequest(source, "S-1", mpp_option=0.5), Project(folder / "p"), CONFIG).store
    server.put_folder(store, f"trial/{store.name}")
    return Stored(server, source, store, f"s3://{BUCKET}/trial/{store.name}", f"trial/{store.name}")


@pytest.fixture(autouse=True)
def reachable(server: BucketServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server.reach(monkeypatch)
    server.delay_s, server.fault = 0.0, None
    yield
    server.delay_s, server.fault = 0.0, None


def test_chunks_regions_mask_and_metadata_are_those_of_the_folder(made: Stored) -> None:
    there, here = StoreReader(made.url), StoreReader(made.store)

    assert there.attributes == here.attributes
    assert there.slide_id == "S-1"
    for level, (far, near) in enumerate(zip(there.levels, here.levels, strict=True)):
        for row in range(near.rows):
            assert far.array.chunks(row, range(near.columns)) == near.array.chunks(row, range(near.columns))
        whole = Box(-40, -30, near.width_px + 90, near.height_px + 70)
        assert np.array_equal(there.read_region(level, whole, threads=2), here.read_region(level, whole))
        assert far.array.coded_bytes() == near.array.coded_bytes()
    assert np.array_equal(there.read_at_mpp(13.5, 20.25, 700, 500, 0.8), here.read_at_mpp(13.5, 20.25, 700, 500, 0.8))
    assert np.array_equal(read_tissue(there.path)[0], read_tissue(here.path)[0])
    for far_level, near_level in zip(screen_levels(there), screen_levels(here), strict=True):
        assert tile_parts(there, far_level, 0, 0) == tile_parts(here, near_level, 0, 0)


def test_what_is_white_is_not_stored_and_stays_white(made: Stored, tmp_path: Path) -> None:
    image = sample_image(*SIZE_WH_PX0).copy()
    image[:, 500:] = 255  # whole shards, and chunks of a shard that has others
    source = write_pyramid(tmp_path / "white.tiff", [image], compression=None)
    store = ingest_slide(IngestRequest(source, "white", mpp_option=0.5), Project(tmp_path / "p"), CONFIG).store
    made.server.put_folder(store, f"trial/{store.name}")
    reader = StoreReader(f"s3://{BUCKET}/trial/{store.name}")

    last = reader.levels[0].columns - 1
    assert reader.chunk(0, 0, last) is None
    assert np.array_equal(reader.read_region(0, Box(0, 0, *SIZE_WH_PX0)), image)
    assert StoreReader(store).chunk(0, 0, last) is None


def test_opening_a_tile_and_a_region_take_few_waits(made: Stored) -> None:
    """A wait is a time at which requests are under way and none was before."""
    made.server.delay_s = 0.02

    def waits_of(name: str) -> int:
        waits = made.server.waves
        made.server.forget()
        return waits

    made.server.forget()
    reader = StoreReader(made.url)
    assert waits_of("open") <= 2
    reader.chunk(0, 1, 1)
    assert waits_of("first tile, with its shard's index") <= 2
    reader.chunk(0, 1, 0)
    assert waits_of("tile") == 1
    reader.read_region(0, Box(200, 100, 1024, 700))
    assert waits_of("region, with its shards' indexes") <= 2
    reader.read_region(0, Box(200, 100, 1024, 700))
    assert waits_of("region") == 1
    tile_parts(reader, screen_levels(reader)[0], 0, 0)
    assert waits_of("tile of the viewer") == 1


def test_neighbours_are_fetched_together_and_what_lies_far_apart_is_not(made: Stored) -> None:
    reader = StoreReader(made.url)
    reader.chunk(0, 0, 0)
    made.server.forget()

    reader.levels[0].array.chunks(0, range(2))

    assert len(made.server.requests) == 1
    asked = [request.split("bytes=")[1].split("-") for request in made.server.requests]
    assert sum(int(end) - int(start) for start, end in asked) < 300_000


def test_a_slide_that_is_replaced_while_it_is_open_is_not_mixed_with_the_other(made: Stored, tmp_path: Path) -> None:
    url = made.copy("replaced")
    reader = StoreReader(url)
    first = reader.chunk(0, 0, 0)
    source = write_jpeg_pyramid(tmp_path / "other.tiff", halved(255 - sample_image(*SIZE_WH_PX0), 1))
    other = ingest_slide(IngestRequest(source, "S-1", mpp_option=0.5), Project(tmp_path / "p"), CONFIG).store
    made.server.put_folder(other, f"replaced/{other.name}")

    with pytest.raises(UnreadableError, match="replaced"):
        reader.chunk(0, 0, 0)  # of a shard that was open
    with pytest.raises(UnreadableError, match="replaced"):
        reader.chunk(0, 2, 0)  # of a new one
    with pytest.raises(UnreadableError, match="replaced"):
        reader.chunk(0, 2, 0)
    again = StoreReader(url)
    assert again.chunk(0, 0, 0) == StoreReader(other).chunk(0, 0, 0) != first


def test_a_slide_that_is_deleted_while_it_is_open_is_not_white(made: Stored) -> None:
    reader = StoreReader(made.copy("deleted"))
    for path in made.store.rglob("*"):
        if path.is_file():
            made.server.delete(f"deleted/{made.store.name}/{path.relative_to(made.store)}")

    with pytest.raises(UnreadableError, match="replaced, moved or deleted"):
        reader.chunk(0, 0, 0)


def test_flipped_bytes_and_cut_shards_are_found(made: Stored) -> None:
    shard = "0/0/c/0/1/1"
    content = bytearray((made.store / shard).read_bytes())
    content[len(content) // 3] ^= 1
    url = made.copy("flipped")
    made.server.put(f"flipped/{made.store.name}/{shard}", bytes(content))
    cut = made.copy("cut")
    made.server.put(f"cut/{made.store.name}/{shard}", bytes(content[:-30]))

    for damaged in (url, cut):
        with pytest.raises(CorruptTileError):
            StoreReader(damaged).read_region(0, Box(0, 0, *SIZE_WH_PX0))
        with pytest.raises(DamagedStoreError, match="CRC"):
            verify_store(ObjectPath.parse(damaged))


def test_a_store_in_a_bucket_is_verified_with_its_slide(made: Stored) -> None:
    said = verify_store(ObjectPath.parse(made.url), source=made.source, every_chunk=True)

    assert said == "all files as written, every chunk decoded, pixels equal the source's"


def test_a_store_that_lacks_a_shard_is_not_exported_as_white(made: Stored, tmp_path: Path) -> None:
    url = made.copy("lacking")
    made.server.delete(f"lacking/{made.store.name}/0/0/c/0/1/1")

    with pytest.raises(DamagedStoreError, match="0/0/c/0/1/1: is missing"):
        export_slide(ExportRequest(ObjectPath.parse(url), tmp_path / "out.tiff", "tiff"))

    assert not (tmp_path / "out.tiff").exists()


def test_an_object_that_ingest_did_not_write_is_found(made: Stored) -> None:
    url = made.copy("more")
    made.server.put(f"more/{made.store.name}/0/0/c/0/0/77", b"x")

    with pytest.raises(DamagedStoreError, match="0/0/c/0/0/77: was not written by ingest"):
        verify_store(ObjectPath.parse(url))


def test_a_renamed_store_is_refused(made: Stored) -> None:
    made.server.put_folder(made.store, "trial/S-2.ome.zarr")

    with pytest.raises(WrongSlideError, match="S-1"):
        StoreReader(f"s3://{BUCKET}/trial/S-2.ome.zarr")


def test_a_linked_store_is_refused(made: Stored, tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    appear(IngestRequest(made.source, "L", mpp_option=0.5), project, CONFIG)
    made.server.put_folder(project.store_path("L"), "trial/L.ome.zarr")

    with pytest.raises(UnreadableError, match="holds no tiles"):
        StoreReader(f"s3://{BUCKET}/trial/L.ome.zarr")


def test_a_reader_can_be_sent_to_another_process_but_not_forked(made: Stored) -> None:
    reader = StoreReader(made.url)
    expected = reader.chunk(0, 1, 1)

    assert pickle.loads(pickle.dumps(reader)).chunk(0, 1, 1) == expected
    assert pickle.loads(pickle.dumps(reader.levels[0].array)).chunk(1, 1) == expected
    with multiprocessing.get_context("spawn").Pool(1) as spawned:
        assert spawned.apply(reader.chunk, (0, 1, 1)) == expected
    forked = subprocess.run(
        [sys.executable, "-c", _FORKS, made.url], capture_output=True, text=True, timeout=60, check=False
    )
    assert forked.returncode == 0, forked.stderr
    assert "multiprocessing_context" in forked.stdout


_FORKS = """
import os, sys
from pipeline.store.reading.reader import StoreReader
from training.foundation.errors import BadRecipeError
reader = StoreReader(sys.argv[1])
if os.fork() == 0:
    try:
        reader.chunk(0, 1, 1)
    except BadRecipeError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(
    "url",
    [
        "s3://", "s3://scans/../other", "s3://scans/a//b", "s3://key:secret@scans/trial", "s3://Scans/trial",
        "s3://scans/trial?X-Amz-Signature=secret", "s3://scans/\n", "s3://sc", "s3://scans/" + 1100 * "a", "http://scans/trial",
    ],
)  # fmt: skip
def test_an_address_that_is_no_folder_of_a_bucket_is_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(BadRecipeError, match="not the address of slides in a bucket") as refused:
        ObjectPath.parse(url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["..", "a/../b", "/etc", "", ".", "a//b"])
def test_no_name_leads_out_of_a_folder_of_a_bucket(name: str) -> None:
    with pytest.raises(ValueError, match="not a path below"):
        ObjectPath("scans", "trial") / name


@pytest.mark.parametrize(
    "instead",
    [
        {},
        {"AWS_SKIP_SIGNATURE": "false"},
        {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"},
        {"AWS_ACCESS_KEY_ID": "AKIASECRETKEYID"},
    ],
)
def test_without_credentials_no_other_source_of_them_is_asked(
    made: Stored, monkeypatch: pytest.MonkeyPatch, instead: dict[str, str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in instead.items():
        monkeypatch.setenv(name, value)
    made.server.forget()

    with pytest.raises(BadRecipeError, match="names no credentials"):
        StoreReader(made.url)

    assert made.server.requests == []


def test_without_the_library_it_says_what_to_install(made: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)

    with pytest.raises(BadRecipeError, match=r"gemslide\[buckets\]"):
        StoreReader(made.url)
