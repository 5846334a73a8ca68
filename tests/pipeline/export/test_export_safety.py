"""A copy is complete or absent, replaces nothing, and needs little memory whatever the slide's size."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys

import numpy as np
import pytest

from pipeline.errors import CorruptTileError
from pipeline.export.export import ExportRequest, export_slide, kind_of
from tests.pipeline.export.make_store import jfif, jpeg_level, make_store, zstd_level
from tests.pipeline.make import ingest, sample_image, write_jpeg_pyramid
from training.foundation.errors import BadRecipeError, DiskFullError, LockedError, UnreadableError
from training.foundation.progress import Advance

NAMES = {
    "ngff-0.5": "c.zarr",
    "ngff-0.4": "c.zarr",
    "ome-tiff": "c.ome.tiff",
    "tiff": "c.tiff",
    "dicom": "c",
    "ozx": "c.ozx",
}
MEASURED = """
import json, resource, sys
from pathlib import Path
from pipeline.export.export import ExportRequest, export_slide
store, out, kind = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
import pipeline.export.tiff.writer, pipeline.export.ngff.writer, pipeline.export.dicom.slide
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = export_slide(ExportRequest(store, out, kind))
print(json.dumps([before / 1024, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, report.seconds]))
"""
LIMITED = """
import resource, signal, sys
from pathlib import Path
from training.foundation.errors import DiskFullError
from pipeline.export.export import ExportRequest, export_slide
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
try:
    export_slide(ExportRequest(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
except DiskFullError as error:
    print(error)
"""


@pytest.fixture(params=NAMES)
def kind(request):
    return request.param


def test_what_is_there_is_not_replaced(tmp_path, mixed_store, kind):
    (tmp_path / NAMES[kind]).write_text("mine")

    with pytest.raises(BadRecipeError, match="already exists"):
        export_slide(ExportRequest(mixed_store, tmp_path / NAMES[kind], kind))

    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(NAMES[kind], "mine")]


def test_what_appears_during_the_export_is_not_replaced(tmp_path, mixed_store, kind):
    class Appears(Advance):
        def __call__(self, steps):
            (tmp_path / NAMES[kind]).write_text("mine")

    with pytest.raises(BadRecipeError, match="already exists"):
        export_slide(ExportRequest(mixed_store, tmp_path / NAMES[kind], kind), advance=Appears())

    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(NAMES[kind], "mine")]


def test_a_copy_into_the_store_itself_is_refused(mixed_store, kind):
    with pytest.raises(BadRecipeError, match="inside the store"):
        export_slide(ExportRequest(mixed_store, mixed_store / NAMES[kind], kind))


def test_a_file_size_limit_is_one_clear_error_and_leaves_nothing(tmp_path, mixed_store, kind):
    out = tmp_path / NAMES[kind]
    command = [sys.executable, "-c", LIMITED, str(mixed_store), str(out), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "cannot be written (File too large" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_chunk_stops_the_copy_and_leaves_nothing(tmp_path, kind):
    store = make_store(tmp_path / "S.ome.zarr", [jpeg_level(sample_image(500, 300), 256, jfif("420"))])
    shard = store / "0/0/c/0/0/0"
    content = bytearray(shard.read_bytes())
    content[600:-68] = bytes(len(content) - 668)  # the chunks; the index at the end stays intact
    shard.write_bytes(content)
    (tmp_path / "out").mkdir()

    if kind in ("tiff", "ome-tiff"):  # tiles are copied as stored: only `gemslide verify` looks inside
        with pytest.raises(CorruptTileError):
            export_slide(ExportRequest(store, tmp_path / "out" / NAMES[kind], kind))
    else:
        with pytest.raises(CorruptTileError, match="row 0, column"):
            export_slide(ExportRequest(store, tmp_path / "out" / NAMES[kind], kind))

    assert list((tmp_path / "out").iterdir()) == []


def test_a_copy_that_another_process_writes_is_locked_at_once(tmp_path, mixed_store):
    with (tmp_path / ".c.tiff.partial").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        with pytest.raises(LockedError, match="another process is writing it now"):
            export_slide(ExportRequest(mixed_store, tmp_path / "c.tiff", "tiff"))

    export_slide(ExportRequest(mixed_store, tmp_path / "c.tiff", "tiff"))
    assert [p.name for p in tmp_path.iterdir()] == ["c.tiff"]


def test_a_target_that_cannot_be_written_is_one_clear_error(tmp_path, mixed_store, kind):
    (tmp_path / "file").write_text("not a folder")

    with pytest.raises(DiskFullError, match="cannot be written"):
        export_slide(ExportRequest(mixed_store, tmp_path / "file" / NAMES[kind], kind))


def test_a_slide_file_is_no_store(tmp_path):
    with pytest.raises(UnreadableError, match="no slide store there"):
        export_slide(ExportRequest(tmp_path / "a.svs", tmp_path / "c.zarr", "ngff-0.5"))


@pytest.mark.parametrize(
    ("to", "name", "says"), [(None, "a.png", "implies no format"), ("png", "a.tiff", "unknown format")]
)
def test_an_unknown_format_names_those_that_are_known(tmp_path, to, name, says):
    with pytest.raises(BadRecipeError, match=rf"{says}.*ngff-0\.5, ngff-0\.4, ozx, ome-tiff, tiff, dicom"):
        kind_of(to, tmp_path / name)


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    """Store of one gigapixel with one chunk in 36 present, and a small lossless level below it."""
    tile = sample_image(512, 512)
    encoded = jfif("420")(tile)
    side_px = 32_768
    # A view of one row: the pixels are never all in memory.
    wide = np.broadcast_to(tile[:1, :1], (side_px, side_px, 3))
    sparse = {(row, column) for row in range(64) for column in range(64) if row % 6 or column % 6}
    small = zstd_level(sample_image(1024, 1024), 256)
    levels = [jpeg_level(wide, 512, lambda _: encoded, sparse=sparse), small]
    return make_store(tmp_path_factory.mktemp("large") / "L.ome.zarr", levels)


def test_memory_stays_small_for_a_gigapixel(tmp_path, large_store, kind):
    command = [sys.executable, "-c", MEASURED, str(large_store), str(tmp_path / NAMES[kind]), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before_mib, peak_mib, _ = json.loads(done.stdout)

    assert peak_mib - before_mib < 200  # the pixels are 3 GiB


def test_the_command_exports_by_slide_id_and_by_store_and_records_no_place(gemslide, mixed_store, tmp_path):
    project = mixed_store.parent.parent
    by_id = gemslide("export", "M-1", tmp_path / "Doe.ome.tiff", "--project", project, "--json")
    by_path = gemslide("export", mixed_store, tmp_path / "Doe.zarr", "--to", "ngff-0.4", "--project", tmp_path)
    again = gemslide("export", mixed_store, tmp_path / "Doe.zarr", "--project", tmp_path)
    missing = gemslide("export", "M-2", tmp_path / "Roe.zarr", "--project", project, "--json")

    assert (by_id.code, by_path.code, again.code, missing.code) == (0, 0, 1, 1), by_id.err + by_path.err
    line = json.loads(by_id.out)
    assert (line["slide_id"], line["status"], line["output"]) == ("M-1", "done", None)
    assert "0 JPEG tiles as stored" in line["message"]
    assert "already exists" in again.err
    assert json.loads(missing.out)["code"] == "unreadable"
    records = [path.read_text() for path in (project / "runs").glob("*.json")]
    assert len(records) == 3
    assert not any("Doe" in record or str(tmp_path) in record for record in records)
    assert {json.loads(record)["verb"] for record in records} == {"export"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["Doe.ome.tiff", "Doe.zarr"]


@pytest.mark.parametrize("to", ["ngff-0.5", "ngff-0.4"])
@pytest.mark.parametrize("group", ["0", "0/labels", "0/labels/tissue"])
@pytest.mark.parametrize(
    "text", ["{", '{"attributes": {"ome": null}}', '{"attributes": {"ome": {"multiscales": [1]}}}']
)
def test_metadata_that_cannot_be_are_one_clear_error_and_leave_nothing(tmp_path, group, text, to):
    source = write_jpeg_pyramid(tmp_path / "a.tiff", [sample_image(300, 200)], tile_px=128)
    store = ingest(source, tmp_path, smallest_level_px=300).store
    (store / group / "zarr.json").write_text(text)

    with pytest.raises(UnreadableError, match="cannot be read"):
        export_slide(ExportRequest(store, tmp_path / "c.zarr", to))
    assert not (tmp_path / "c.zarr").exists()
