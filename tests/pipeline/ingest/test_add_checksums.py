"""`gemslide verify --add-checksums`: old stores get checksums, and keep every pixel, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import zarr

from pipeline.errors import CorruptTileError, DamagedStoreError, LockedError, UnreadableError
from pipeline.files import new_folder
from pipeline.ingest import add_checksums as module
from pipeline.ingest.add_checksums import add_checksums
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.store.overlays import read_predictions
from pipeline.store.qc_scores import read_quality
from pipeline.store.reader import StoreReader
from tests.pipeline.store.golden import GOLDEN, as_version_1, level_crcs

SHARD = "0/0/c/0/0/0"
KILLED = """
import os, sys
from pathlib import Path
from pipeline.ingest.add_checksums import add_checksums

store, kill_at, seen = Path(sys.argv[1]), int(sys.argv[2]), 0

def count(event, args):
    global seen
    if event in ("open", "os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir"):
        seen += 1
        if seen == kill_at:
            os.kill(os.getpid(), 9)

sys.addaudithook(count)
add_checksums(store)
print(seen)
"""


@pytest.fixture
def store(tmp_path):
    """A store of contract version 2, as the code of that version wrote it, with predictions and scores."""
    (tmp_path / "slides").mkdir()
    return shutil.copytree(GOLDEN / "golden-2.ome.zarr", tmp_path / "slides/golden-2.ome.zarr")


def streams(store):
    return [
        level.array.chunk(row, column)
        for level in StoreReader(store).levels
        for row in range(level.rows)
        for column in range(level.columns)
    ]


def flip(path, at=-60):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_store_becomes_one_of_this_version_with_the_same_streams(store, version):
    if version == 1:
        as_version_1(store)
    before, crcs = streams(store), level_crcs(store)
    plain = {name: zarr.open_array(store / name, mode="r")[...] for name in ("0/labels/tissue/0", "predictions/m-1/0")}
    root = json.loads((store / "zarr.json").read_text())["attributes"]["gemslide"]

    assert add_checksums(store)

    assert verify_store(store, every_chunk=True) == "all files as written, every chunk decoded"
    assert (streams(store), level_crcs(store)) == (before, crcs)
    assert all(level.array.spec.has_checksums for level in StoreReader(store).levels)
    for name, values in plain.items():
        np.testing.assert_array_equal(zarr.open_array(store / name, mode="r")[...], values)
    assert read_quality(store).names == ("blur", "pen", "fold", "bubble")
    assert read_predictions(store, "m-1").class_names == ("no", "yes")
    after = json.loads((store / "zarr.json").read_text())["attributes"]["gemslide"]
    changed = {
        "contract_version": 3,
        "ingest": {**root["ingest"], "checksums_sha256": after["ingest"]["checksums_sha256"]},
    }
    assert after == root | changed
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_every_array_of_the_new_store_ends_its_codecs_with_a_checksum(store):
    add_checksums(store)

    for path in store.rglob("zarr.json"):
        meta = json.loads(path.read_text())
        if meta["node_type"] == "array":
            inner = meta["codecs"][0].get("configuration", {}).get("codecs", meta["codecs"])
            assert inner[-1] == {"name": "crc32c"}, path


def test_adding_a_second_time_does_nothing(store):
    add_checksums(store)
    before = {path: path.stat().st_ino for path in store.rglob("*")}

    assert not add_checksums(store)
    assert {path: path.stat().st_ino for path in store.rglob("*")} == before


def test_the_command_says_what_is_missing_and_adds_it_once(store, gemslide, tmp_path):
    def run(*options):
        done = gemslide("verify", *options, "--project", tmp_path, "--json")
        assert done.code == 0, done.err
        return json.loads(done.out)["message"]

    lacking = run()
    added, again, after = run("--add-checksums"), run("--add-checksums"), run()

    assert lacking == (
        "all files as written, 64 chunks per level decoded; its chunks have no checksums (contract version 2): "
        "add them with `gemslide verify --add-checksums`"
    )
    assert added == "all files as written, 64 chunks per level decoded; checksums were added to its chunks"
    assert again.endswith("; its chunks have checksums, nothing to add")
    assert after == "all files as written, 64 chunks per level decoded"


@pytest.mark.parametrize("name", [SHARD, "0/labels/tissue/0/c/0/0", "predictions/m-1/0/c/0/0/0", "OME/checksums.json"])
def test_a_damaged_store_is_refused_and_left_as_it_is(store, gemslide, tmp_path, name):
    (store / name).write_bytes((store / name).read_bytes()[:-1])
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    done = gemslide("verify", "golden-2", "--add-checksums", "--project", tmp_path, "--json")

    assert (done.code, json.loads(done.out)["code"]) == (1, "damaged_store")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_store_of_version_1_has_every_chunk_decoded_first(store):
    """It has no list of checksums: decoding is all that can tell."""
    as_version_1(store)
    assert verify_store(store) == (
        "every chunk decoded; neither its files nor its chunks have checksums (contract version 1): "
        "add them with `gemslide verify --add-checksums`"
    )
    reader = StoreReader(store)
    data = bytearray((store / SHARD).read_bytes())
    stream = reader.chunk(0, 2, 3)
    data[data.index(stream) : data.index(stream) + 2] = b"\0\0"
    (store / SHARD).write_bytes(data)

    with pytest.raises(DamagedStoreError, match="0/0: chunk in row 2, column 3"):
        verify_store(store, sample_chunks=1)


def test_damage_that_appears_while_it_is_copied_leaves_the_old_store(store):
    flip(store / SHARD, at=-20)  # the index

    with pytest.raises(CorruptTileError, match="index of 16 chunks is damaged"):
        add_checksums(store)

    assert StoreReader(store).attributes.contract_version == 2
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_predictions_written_meanwhile_are_not_lost(store, monkeypatch):
    link = module._link_the_rest

    def write_meanwhile(*arguments):
        link(*arguments)
        shutil.copytree(store / "predictions/m-1", store / "predictions/m-2")

    monkeypatch.setattr(module, "_link_the_rest", write_meanwhile)

    with pytest.raises(LockedError, match="another process writes to it while checksums are added"):
        add_checksums(store)

    assert (store / "predictions/m-2/zarr.json").exists()
    assert StoreReader(store).attributes.contract_version == 2


def test_predictions_that_are_being_written_are_waited_for(store):
    """Otherwise their folder would be gone when they are whole."""
    with (
        pytest.raises(LockedError, match="another process writes to it"),
        new_folder(store / "predictions/m-2"),
    ):
        add_checksums(store)

    assert StoreReader(store).attributes.contract_version == 2


def test_two_at_a_time_do_not_meet(store):
    with pytest.raises(LockedError), new_folder(store):
        add_checksums(store)


def test_a_link_that_leads_out_of_the_store_is_not_followed(store, tmp_path):
    (store / "OME/METADATA.ome.xml").rename(tmp_path / "elsewhere.xml")
    (store / "OME/METADATA.ome.xml").symlink_to(tmp_path / "elsewhere.xml")

    with pytest.raises(UnreadableError, match="a symbolic link leads out of the store"):
        add_checksums(store)


def killed(store, kill_at: int) -> subprocess.CompletedProcess[str]:
    """A process that adds checksums, and kills itself at one of its file operations."""
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(store), str(kill_at)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_killed_at_any_moment_the_store_is_the_old_one_or_the_new_one(store, tmp_path):
    before = level_crcs(store)
    trial = shutil.copytree(store.parent, tmp_path / "trial") / store.name
    num_operations = int(killed(trial, 0).stdout)

    for kill_at in np.linspace(1, num_operations, 7).astype(int):
        done = killed(store, int(kill_at))
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert level_crcs(store) == before
        assert verify_store(store).startswith("all files as written")

    if StoreReader(store).attributes.contract_version == 2:
        assert add_checksums(store)
    assert verify_store(store) == "all files as written, 64 chunks per level decoded"
    Project(tmp_path).recover()
    assert os.listdir(store.parent) == [store.name]
