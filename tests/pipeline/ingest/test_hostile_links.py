"""Links in a project that somebody sent: wherever they point, the answer is one clear error, and little memory."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ChangedSourceError, CorruptTileError, SourceGoneError
from pipeline.files import sha256_of
from pipeline.store.format.layout import POINTERS
from pipeline.store.format.link_shard import OWN_FILE, RECORD
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.ingest.test_linked_stores import link, write_tiff
from training.foundation.errors import GemslideError, UnreadableError

SHARD = "0/c/0/0/0"
READ = "import sys; from pipeline.store.reading.reader import StoreReader; StoreReader(sys.argv[1]).chunk(0, 0, 0)"


@pytest.fixture
def store(tmp_path):
    return link(write_tiff(tmp_path), tmp_path / "p").store


def links_of(store: Path) -> Path:
    return store.parents[1] / "links.json"


def change_links(store: Path, change) -> None:
    content = json.loads(links_of(store).read_text())
    (entry,) = content["links"].values()
    change(entry)
    links_of(store).write_text(json.dumps(content))


def point(store: Path, **pointer: int) -> None:
    """Change the first pointer, and all that would give it away."""
    shard = store / "0" / SHARD
    records = np.frombuffer(shard.read_bytes(), RECORD).copy()
    for name, value in pointer.items():
        records[name][0] = value
    shard.write_bytes(records.tobytes())
    hashes = json.loads((store / POINTERS).read_text())
    hashes[SHARD] = hashlib.sha256(records.tobytes()).hexdigest()
    (store / POINTERS).write_text(json.dumps(hashes))
    change_links(store, lambda entry: entry.update(pointers_sha256=sha256_of(store / POINTERS)))


@pytest.mark.parametrize(
    ("pointer", "says"),
    [
        ({"offset": 2**64 - 1}, "ends at byte 1844"),
        ({"offset": 10**9}, "ends at byte 1000"),
        ({"offset": 0}, "does not start|starts with|not ffd8|no whole segment"),
        ({"count": 2**32 - 1}, "at most 67108864 are read"),
        ({"count": 1}, "its 1 bytes|starts with|bytes"),
        ({"file": 1}, "file 1 of 1"),
        ({"file": OWN_FILE}, "bytes|checksum"),
        ({"crc32c": 1}, "checksum of its .* bytes does not match"),
    ],
)
def test_a_pointer_that_leads_nowhere_is_a_damaged_tile(store, pointer, says):
    point(store, **pointer)

    with pytest.raises((CorruptTileError, UnreadableError), match=says):
        StoreReader(store).chunk(0, 0, 0)


def test_bytes_of_another_image_are_not_shown_as_a_tile(store):
    """Of another size than the level's tiles, as a label is; even without a checksum."""
    tile = StoreReader(store).chunk(1, 0, 0)
    other = store.parents[1] / "label.jpg"
    from PIL import Image

    Image.new("RGB", (300, 200), "white").save(other)
    status = other.stat()
    stated = {"path": str(other), "bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
    change_links(store, lambda entry: entry["files"].append(stated))
    point(store, file=1, offset=0, count=status.st_size, has_crc32c=0)

    with pytest.raises(CorruptTileError, match="300"):
        StoreReader(store).chunk(0, 0, 0)
    assert StoreReader(store).chunk(1, 0, 0) == tile


@pytest.mark.parametrize(
    "change",
    [
        lambda entry: entry["files"][0].update(path="relative/slide.tiff"),
        lambda entry: entry["files"][0].update(path="/tmp/a\0b"),
        lambda entry: entry["files"][0].update(inode=-1),
        lambda entry: entry["files"][0].update(bytes="many"),
        lambda entry: entry.update(files=[]),
        lambda entry: entry.update(slide_id="../../etc"),
        lambda entry: entry.update(pointers_sha256="0" * 63),
        lambda entry: entry.update(more=1),
    ],
)
def test_an_entry_that_gemslide_did_not_write_is_named_as_damaged(store, change):
    change_links(store, change)

    with pytest.raises(UnreadableError, match=r"links\.json: is damaged"):
        StoreReader(store)


@pytest.mark.parametrize(
    "content", ["{", "null", "[" * 100_000, '{"version": 2}', '{"version": 1, "links": [1]}', "9" * 5000]
)
def test_a_file_that_is_no_list_of_links_is_named(store, content):
    links_of(store).write_text(content)

    with pytest.raises(UnreadableError, match=r"links\.json"):
        StoreReader(store)


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop"])
def test_what_is_no_file_is_neither_waited_for_nor_read(store, tmp_path, kind):
    odd = tmp_path / "odd"
    {
        "pipe": lambda: os.mkfifo(odd),
        "folder": odd.mkdir,
        "device": lambda: odd.symlink_to("/dev/zero"),
        "loop": lambda: odd.symlink_to(odd),
    }[kind]()
    change_links(store, lambda entry: entry["files"][0].update(path=str(odd)))

    with pytest.raises((ChangedSourceError, SourceGoneError, UnreadableError)) as error:
        StoreReader(store)
    assert "odd" not in str(error.value)


def test_a_pipe_with_the_identity_of_the_slide_is_not_waited_for(store, tmp_path):
    odd = tmp_path / "pipe"
    os.mkfifo(odd)
    status = odd.stat()
    stated = {"path": str(odd), "bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "inode": status.st_ino}
    change_links(store, lambda entry: entry["files"][0].update(stated))

    with pytest.raises((CorruptTileError, UnreadableError)):
        StoreReader(store).chunk(0, 0, 0)


def test_huge_pointers_take_little_memory(store):
    """Under a limit of memory, as a rank or a server may have."""
    point(store, count=2**32 - 1)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))

    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(store)], capture_output=True, text=True, preexec_fn=limited, env=environment
    )

    assert "CorruptTileError" in done.stderr
    assert "MemoryError" not in done.stderr


def test_any_change_to_a_byte_of_the_links_is_an_error_or_the_same_tile(store):
    """Fuzzed: never other pixels, never another error than gemslide's."""
    whole, tile = links_of(store).read_bytes(), StoreReader(store).chunk(0, 0, 0)
    random = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        at = int(random.integers(len(changed)))
        changed[at] = int(random.integers(256))
        links_of(store).write_bytes(bytes(changed))
        try:
            shown = StoreReader(store).chunk(0, 0, 0)
        except GemslideError:
            continue
        assert shown == tile, (at, changed[at])


def test_another_list_of_shards_is_refused(store):
    (store / POINTERS).write_text("{}")

    with pytest.raises(UnreadableError, match=r"pointers\.json: is not the list that was written"):
        StoreReader(store)
