"""`gemslide verify` finds and names every kind of damage; later additions do not disturb it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

from pipeline.errors import BadManifestError, ChangedSourceError, DamagedStoreError, WrongSlideError
from pipeline.ingest.source_comparison import verify_store
from pipeline.project import Project
from pipeline.store.format.checksums import read_checksums
from pipeline.store.format.chunks import decode_chunk, encode_zstd
from pipeline.store.format.layout import CHECKSUMS
from pipeline.store.format.shard import sum_file, write_shard
from pipeline.store.layers.overlays import Predictions, write_predictions
from pipeline.store.layers.qc_scores import SCORE_NAMES, Quality, write_quality
from pipeline.store.reading.array_reader import ArrayReader
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.verify import _stores
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid

SHARD = "0/0/c/0/1/1"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Slide of two passed levels and one built level; read it, do not write."""
    folder = tmp_path_factory.mktemp("made")
    source = write_jpeg_pyramid(folder / "a.tiff", halved(sample_image(1300, 900), 1))
    return source, ingest(source, folder, smallest_level_px=400)


@pytest.fixture
def source(made):
    return made[0]


@pytest.fixture
def store(made, tmp_path):
    return shutil.copytree(made[1].store, tmp_path / "slides/S-1.ome.zarr")


def edit_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def flip_a_byte(store):
    data = bytearray((store / SHARD).read_bytes())
    data[len(data) // 2] ^= 1
    (store / SHARD).write_bytes(data)


def cut_the_index(store):
    data = (store / SHARD).read_bytes()
    (store / SHARD).write_bytes(data[:-30])


def add_a_file(store):
    (store / "0/0/c/0/9").mkdir()
    (store / "0/0/c/0/9/9").write_bytes(b"more")


def change_the_list(store):
    edit_json(store / CHECKSUMS, lambda content: content["files"].pop(SHARD))


def list_nothing(store):
    (store / CHECKSUMS).write_text("{}")


def change_the_shape(store):
    edit_json(store / "0/0/zarr.json", lambda content: content["shape"].__setitem__(1, 901))


def change_a_level(store):
    edit_json(store / "zarr.json", lambda root: root["attributes"]["gemslide"]["levels"][0].update(codec="zstd"))


def forget_a_level(store):
    edit_json(store / "zarr.json", lambda root: root["attributes"]["gemslide"]["levels"].pop())


def forget_an_attribute(store):
    edit_json(store / "zarr.json", lambda root: root["attributes"]["gemslide"].pop("mpp_source"))


def change_the_scale(store):
    edit_json(store / "zarr.json", lambda root: root["attributes"]["gemslide"].update(mpp0=0.123))


def change_a_downsample(store):
    edit_json(store / "zarr.json", lambda root: root["attributes"]["gemslide"]["levels"][1].update(downsample=3.0))


DAMAGE = [
    (change_the_scale, r"zarr\.json: says 0\.123 µm/px"),
    (change_a_downsample, r"a downsample of 3 for level 1"),
    (flip_a_byte, rf"{SHARD}: \d+ bytes with CRC \w+, was"),
    (cut_the_index, rf"{SHARD}: \d+ bytes with CRC"),
    (lambda store: (store / SHARD).unlink(), f"{SHARD}: is missing"),
    (add_a_file, "0/0/c/0/9/9: was not written by ingest"),
    (change_the_list, rf"{CHECKSUMS}: is not the list with which the root was written"),
    (list_nothing, rf"{CHECKSUMS}: cannot be read"),
    (lambda store: (store / CHECKSUMS).unlink(), rf"{CHECKSUMS}: cannot be read"),
    (change_the_shape, r"0/0/zarr\.json: \d+ bytes with CRC"),
    (change_a_level, "0/0: its codec is imagecodecs_jpeg, the root says zstd"),
    (forget_a_level, "3 datasets and 3 of tissue for 2 levels"),
    (forget_an_attribute, r"its attributes are damaged \(`mpp_source`"),
    (lambda store: (store / "0/labels/tissue/zarr.json").unlink(), "metadata cannot be read"),
    (lambda store: (store / "OME/METADATA.ome.xml").write_text("<OME>"), "metadata cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("damage", "named"), DAMAGE)
def test_damage_is_found_and_named(store, damage, named):
    damage(store)

    with pytest.raises(DamagedStoreError, match=named) as caught:
        verify_store(store)

    assert caught.value.code == "damaged_store"
    assert str(caught.value).endswith(("Delete the store and ingest the slide again.", "Then verify it again."))


def test_swapped_folders_are_named(store, gemslide, tmp_path):
    """Both stores are intact, but do not belong to the slides their folders name."""
    store.rename(tmp_path / "slides/S-2.ome.zarr")

    with pytest.raises(WrongSlideError, match="holds slide 'S-1', but its folder is named after 'S-2'"):
        verify_store(tmp_path / "slides/S-2.ome.zarr")
    done = gemslide("verify", "--project", tmp_path, "--json")
    assert (done.code, json.loads(done.out)["status"]) == (1, "refused")


def test_a_flipped_bit_in_predictions_or_scores_is_found_and_the_slide_is_said_to_be_whole(store):
    add_overlays(store)
    for name in ("predictions/m-1/0/c/0/0/0", "quality/0/c/0/0/0"):
        data = (store / name).read_bytes()
        (store / name).write_bytes(bytes([data[0] ^ 1]) + data[1:])
        with pytest.raises(DamagedStoreError, match=f"{name}: the checksum .* The slide itself is intact"):
            verify_store(store)
        (store / name).write_bytes(data)

    (store / "predictions/m-1/0/zarr.json").write_text("{}")
    with pytest.raises(DamagedStoreError, match=r"predictions/m-1/0/zarr\.json: cannot be read"):
        verify_store(store)


def test_an_array_of_this_version_whose_chunks_have_no_checksums_is_damage(store):
    edit_json(store / "0/0/zarr.json", lambda a: a["codecs"][0]["configuration"]["codecs"].pop())

    with pytest.raises(DamagedStoreError, match="0/0: its chunks have no checksums"):
        verify_store(store)


def test_a_whole_store_is_said_to_be_whole(store, source):
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}

    assert verify_store(store, source=source, every_chunk=True) == (
        "all files as written, every chunk decoded, pixels equal the source's"
    )
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_a_store_of_another_slide_is_told_from_a_damaged_one(store, tmp_path):
    other = write_jpeg_pyramid(tmp_path / "b.tiff", halved(sample_image(1300, 900, 4), 1))

    with pytest.raises(ChangedSourceError, match=r"was made from .* b\.tiff has"):
        verify_store(store, source=other)


def forged(store, level, row, column, change):
    """Replace one chunk by other pixels, and make every checksum match."""
    array_dir = store / f"0/{level}"
    reader = StoreReader(store).levels[level]
    spec = reader.array.spec
    n, t = spec.shard_chunks, spec.chunk_px
    shard = array_dir / spec.shard_key(row // n, column // n)
    chunks = []
    for at in range(n * n):
        place = row // n * n + at // n, column // n * n + at % n
        is_inside = place[0] < spec.rows and place[1] < spec.columns
        chunks.append((ArrayReader(array_dir, spec).chunk(*place),) if is_inside else ())
    at = row % n * n + column % n
    chunks[at] = (change(bytes(chunks[at][0]), t),)
    write_shard(shard, chunks)
    entry = [sum_file(shard).bytes, f"{sum_file(shard).crc32c:08x}"]
    edit_json(store / CHECKSUMS, lambda c: c["files"].__setitem__(str(shard.relative_to(store)), entry))
    digest = hashlib.sha256((store / CHECKSUMS).read_bytes()).hexdigest()
    edit_json(
        store / "zarr.json", lambda r: r["attributes"]["gemslide"]["ingest"].__setitem__("checksums_sha256", digest)
    )


def test_a_forged_tile_is_found_by_the_source(store, source):
    """Its checksums are right: only the slide itself reveals it."""
    other = ArrayReader(store / "0/0", StoreReader(store).levels[0].array.spec).chunk(0, 1)
    forged(store, 0, 2, 3, lambda stored, t: bytes(other))

    assert verify_store(store)
    with pytest.raises(DamagedStoreError, match="level 0: pixels of the chunk in row 2, column 3 are not the source's"):
        verify_store(store, source=source)


def test_one_changed_pixel_of_a_built_level_is_found_by_the_source(store, source):
    def change(stored, t):
        pixels = decode_chunk("zstd", stored, t).copy()
        pixels[7, 9, 1] ^= 1
        return encode_zstd(pixels)

    forged(store, 2, 0, 0, change)

    assert verify_store(store)
    with pytest.raises(DamagedStoreError, match="level 2: the chunk in row 0, column 0 is not the mean of level 1"):
        verify_store(store, source=source)


def test_a_chunk_that_does_not_decode_is_found_although_its_checksum_is_right(store):
    forged(store, 0, 2, 3, lambda stored, t: b"\xff\xd8 no image \xff\xd9")

    with pytest.raises(DamagedStoreError, match="0/0: chunk in row 2, column 3"):
        verify_store(store, every_chunk=True)


def add_overlays(store):
    write_predictions(
        store, Predictions("m-1", ("a", "b"), np.full((2, 7, 10), 0.5, np.float16), 128, 128, {}), mpp0=0.5
    )
    scores = np.full((4, 7, 10), 0.1, np.float16)
    write_quality(store, Quality(SCORE_NAMES, scores, 128, {}), mpp0=0.5, summary={"verdict": "good"}, stain={})


def test_predictions_and_quality_added_later_do_not_disturb(store, source):
    before = read_checksums(store)
    add_overlays(store)

    assert verify_store(store, source=source)
    assert read_checksums(store) == before


def test_the_command_has_one_line_per_store_and_an_exit_code(store, source, gemslide, tmp_path):
    whole = gemslide("verify", "--project", tmp_path, "--source", source, "--json")
    flip_a_byte(store)
    damaged = gemslide("verify", "S-1", "--project", tmp_path, "--json")
    in_words = gemslide("verify", store)

    (line,) = map(json.loads, whole.out.splitlines())
    assert (whole.code, line["slide_id"], line["status"], line["code"]) == (0, "S-1", "done", None)
    assert line["message"] == "all files as written, 64 chunks per level decoded, pixels equal the source's"
    (line,) = map(json.loads, damaged.out.splitlines())
    assert (damaged.code, line["slide_id"], line["status"]) == (1, "S-1", "unreadable")
    assert (line["code"], SHARD in line["message"]) == ("damaged_store", True)
    assert in_words.code == 1
    assert "damaged_store" in in_words.err


def test_the_command_without_a_store_says_what_to_do(gemslide, tmp_path):
    empty, missing = gemslide("verify", "--project", tmp_path), gemslide("verify", "S-9", "--project", tmp_path)

    assert (empty.code, missing.code) == (1, 1)
    assert "Run `gemslide ingest` first" in empty.err
    assert "S-9" in missing.err


@pytest.mark.data
@pytest.mark.parametrize(
    "file",
    [
        "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs",
        "BhavyaKohli+MoNuSAC-Instance-Segmentation/code/sample_original/A9K0_1.svs",
    ],
)
def test_stores_of_real_slides_equal_them(real_slides, tmp_path, file):
    report = ingest(real_slides / file, tmp_path, mpp=0.5)

    assert "pixels equal the source's" in verify_store(report.store, source=real_slides / file, every_chunk=True)


def test_how_many_chunks_are_looked_at_is_a_number_or_all(store, gemslide):
    project = store.parents[1]
    every = gemslide("verify", "--project", project, "--sample-chunks", "all")
    wrong = gemslide("verify", "--project", project, "--sample-chunks", "-3")

    assert "every chunk decoded" in every.out
    assert (wrong.code, "a whole number from 1, or all" in wrong.err) == (1, True)


HOSTILE = {
    "OME/METADATA.ome.xml": '<?xml version="1.0" encoding="no-such"?><OME/>',
    "OME/zarr.json": '{"attributes": {"ome": {"series": 5}}}',
    "0/zarr.json": '{"attributes": {"ome": {"multiscales": [{"datasets": null}]}}}',
    "OME/checksums.json": '{"files": {"a": [1e999, "0"]}}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_metadata_that_cannot_be_are_damage_and_no_traceback(store, name):
    (store / name).write_text(HOSTILE[name])

    with pytest.raises(DamagedStoreError, match="cannot be read"):
        verify_store(store)


def test_xml_that_is_a_named_pipe_is_not_waited_for(store):
    (store / "OME/METADATA.ome.xml").unlink()
    os.mkfifo(store / "OME/METADATA.ome.xml")

    with pytest.raises(DamagedStoreError, match="not a regular file"):
        verify_store(store)


def test_a_folder_of_the_same_name_beside_the_user_is_not_taken_for_the_project_s_store(store, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "S-1").mkdir(parents=True)
    (elsewhere / "S-1/zarr.json").write_text("{}")
    monkeypatch.chdir(elsewhere)
    project = Project(store.parents[1])

    assert _stores([], project, None) == _stores(["S-1"], project, None) == [(store, None)]


def test_a_manifest_that_does_not_name_a_slide_is_said(store, tmp_path):
    manifest = tmp_path / "m.csv"
    manifest.write_text("path,slide_id\na.tiff,S-2\n")

    with pytest.raises(BadManifestError, match="has no slide S-1"):
        _stores(["S-1"], Project(store.parents[1]), manifest)


def test_one_oddly_named_folder_does_not_stop_the_others(store, gemslide):
    (store.parent / "S-1 copy.ome.zarr").mkdir()
    done = gemslide("verify", "--project", store.parents[1], "--sample-chunks", "1")

    assert done.code == 1
    assert "S-1: all files as written" in done.out
    assert "1 of 2 not done" in done.err
