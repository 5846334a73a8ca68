"""DICOM of a damaged store: one error with its code, and nothing at the target; never other pixels."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.pipeline.export.store_edits import edit_bytes, edit_index, edit_json, edit_root, flip, records
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid

LIST, MISSING = "OME/checksums.json", 2**64 - 1
SHARD, LAST_SHARD, LOSSLESS = "0/0/c/0/0/1", "0/0/c/0/1/2", "0/2/c/0/0/0"


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    """Two levels of JPEG tiles in several shards, and a lossless one that was built from them."""
    folder = tmp_path_factory.mktemp("intact")
    source = write_jpeg_pyramid(folder / "a.tiff", halved(sample_image(1300, 700), 1), tile_px=128, subsampling="422")
    store = ingest(source, folder, smallest_level_px=400).store
    assert all((store / shard).is_file() for shard in (SHARD, LAST_SHARD, LOSSLESS))
    return store


@pytest.fixture
def store(intact, tmp_path):
    return shutil.copytree(intact, tmp_path / "slides" / intact.name)


def edit_array(store, level, edit):
    edit_json(store / f"0/{level}/zarr.json", edit)


def swap(store, one, other):
    first, second = (store / one).read_bytes(), (store / other).read_bytes()
    (store / one).write_bytes(second)
    (store / other).write_bytes(first)


def lead_out(store, name):
    outside = store.parent / "outside"
    (store / name).rename(outside)
    (store / name).symlink_to(outside)


def use_smaller_chunks(meta):
    """Shards of the same size in chunks of half the side."""
    meta["codecs"][0]["configuration"]["chunk_shape"] = [3, 64, 64]


def add_level(root):
    root["levels"].append({**root["levels"][-1], "path": "3"})


CHUNKS = {
    "a byte of a chunk": lambda store: flip(store / SHARD, 700, bit=3),
    "the last byte of a chunk": lambda store: flip(store / LOSSLESS, sum(records(store / LOSSLESS)[0]) - 1),
}
"""Of code `corrupt_tile`."""
LEVELS = {
    "a byte of an index": lambda store: flip(store / SHARD, -20),
    "a shard cut short": lambda store: edit_bytes(store / SHARD, lambda content: content[:-100]),
    "an empty shard": lambda store: (store / SHARD).write_bytes(b""),
    "a shard removed": lambda store: (store / SHARD).unlink(),
    "the only shard of a level removed": lambda store: (store / LOSSLESS).unlink(),
    "all shards of a level removed": lambda store: shutil.rmtree(store / "0/1/c"),
    "shards swapped": lambda store: swap(store, SHARD, LAST_SHARD),
    "a folder in place of a shard": lambda store: ((store / SHARD).unlink(), (store / SHARD).mkdir()),
    "an index past the end": lambda store: edit_index(store / SHARD, lambda index: index[0].__setitem__(0, 2**40)),
    "an index into a chunk": lambda store: edit_index(store / SHARD, lambda index: index[0].__setitem__(0, 9)),
    "an index of another tile": lambda store: edit_index(store / SHARD, lambda index: index.__setitem__(0, index[1])),
    "an index without a tile": lambda store: edit_index(
        store / SHARD, lambda index: index.__setitem__(5, [MISSING] * 2)
    ),
    "an index in another order": lambda store: edit_index(store / SHARD, lambda index: index.insert(0, index.pop(1))),
    "fewer levels": lambda store: edit_root(store, lambda root: root["levels"].pop()),
    "another downsample": lambda store: edit_root(store, lambda root: root["levels"][1].update(downsample=3.0)),
    "other micrometres": lambda store: edit_root(store, lambda root: root.update(mpp0=0.25)),
    "another width": lambda store: edit_array(store, 0, lambda array: array["shape"].__setitem__(2, 1200)),
    "another height": lambda store: edit_array(store, 1, lambda array: array["shape"].__setitem__(1, 351)),
    "smaller chunks": lambda store: edit_array(store, 1, use_smaller_chunks),
    "no list of checksums": lambda store: (store / LIST).unlink(),
    "a shorter list of checksums": lambda store: edit_json(store / LIST, lambda content: content["files"].pop(SHARD)),
}
"""Of code `damaged_store`."""
FILES = {
    "a link out of the store": lambda store: lead_out(store, SHARD),
    "a folder that leads out": lambda store: lead_out(store, "0/0/c"),
    "metadata that lead out": lambda store: lead_out(store, "0/1/zarr.json"),
    "more levels": lambda store: edit_root(store, add_level),
    "a root that is no JSON": lambda store: edit_bytes(store / "zarr.json", lambda content: content[:-9]),
    "an image without metadata": lambda store: (store / "0/zarr.json").unlink(),
    "a level without metadata": lambda store: (store / "0/1/zarr.json").unlink(),
    "a colour profile of zeros": lambda store: edit_root(store, lambda root: root.update(icc="AAAA" * 99)),
    "a colour profile that is no base64": lambda store: edit_root(store, lambda root: root.update(icc="?!")),
}
"""Of code `unreadable`."""
DAMAGE = [
    *(("corrupt_tile", what, damage) for what, damage in CHUNKS.items()),
    *(("damaged_store", what, damage) for what, damage in LEVELS.items()),
    *(("unreadable", what, damage) for what, damage in FILES.items()),
]


@pytest.mark.parametrize(("code", "damage"), [pytest.param(code, damage, id=what) for code, what, damage in DAMAGE])
def test_damage_is_one_error_with_its_code_and_nothing_at_the_target(store, tmp_path, gemslide, code, damage):
    damage(store)
    (tmp_path / "out").mkdir()

    done = gemslide("export", store, tmp_path / "out/S-1", "--to", "dicom", "--project", tmp_path, "--json")

    (line,) = done.out.splitlines()
    assert (done.code, json.loads(line)["code"]) == (1, code)
    assert len(json.loads(line)["message"]) > 40
    assert list((tmp_path / "out").iterdir()) == []


def test_the_same_store_undamaged_is_exported(store, tmp_path, gemslide):
    done = gemslide("export", store, tmp_path / "S-1", "--to", "dicom", "--project", tmp_path)

    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "S-1").iterdir()) == [f"level-{i}.dcm" for i in range(3)]
