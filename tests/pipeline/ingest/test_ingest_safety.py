"""A store is complete or absent: other bytes, other writers, killed processes, full disks, changing sources."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import ChangedSourceError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TissueConfig
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.ingest.store_bytes import left_in, tree
from tests.pipeline.make import halved, ingest, sample_image, write_jpeg_pyramid
from tests.small_disk import small_disk
from training.foundation.errors import DiskFullError, LockedError, UnreadableError
from training.foundation.progress import Advance

GEMSLIDE = Path(sys.executable).parent / "gemslide"
PYTHON_INGEST = """
import os, signal, sys
from pathlib import Path
from pipeline.settings.config import IngestConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from training.foundation.progress import Advance
from pipeline.project import Project

source, root, last_words = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
steps = 0


class Pausing(Advance):
    def __call__(self, _):
        global steps
        steps += 1
        if steps == last_words:
            print("here", flush=True)
            sys.stdin.readline()  # until killed, or told to go on


ingest_slide(IngestRequest(source, "S-1"), Project(root), IngestConfig(shard_px=512), advance=Pausing())
"""


@pytest.fixture
def source(tmp_path):
    """Slide with six shards of 512 px, two of them of the coarser level."""
    return write_jpeg_pyramid(tmp_path / "a.tiff", halved(sample_image(1300, 900), 1))


def start_ingest(source, root, *, pause_after_shard) -> subprocess.Popen[str]:
    """Start a real process that pauses once this many shards are written; return when it pauses."""
    command = [sys.executable, "-c", PYTHON_INGEST, str(source), str(root), str(pause_after_shard)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    return process


def test_the_same_slide_again_is_skipped_and_untouched(tmp_path, source):
    first = ingest(source, tmp_path)
    before = {p: p.stat().st_mtime_ns for p in first.store.rglob("*")}

    again = ingest(source, tmp_path)

    assert (first.skipped, again.skipped) == (False, True)
    assert (again.sha256, again.levels, again.tissue_fraction) == (
        first.sha256, first.levels, pytest.approx(first.tissue_fraction, abs=1e-6)
    )  # fmt: skip
    assert {p: p.stat().st_mtime_ns for p in first.store.rglob("*")} == before


def test_other_bytes_under_the_same_id_are_refused(tmp_path, source):
    store = ingest(source, tmp_path).store
    before = tree(store)
    other = write_jpeg_pyramid(tmp_path / "b.tiff", [sample_image(1300, 900, 2)])

    with pytest.raises(ChangedSourceError, match=r"slide S-1: the store .* was made from other bytes") as caught:
        ingest(other, tmp_path)

    assert caught.value.code == "changed_source"
    assert tree(store) == before


@pytest.mark.parametrize(("change", "named"), [({"shard_px": 1024}, "ingest"), ({"mpp": 0.4}, "mpp0")])
def test_other_settings_for_the_same_id_are_refused_and_named(tmp_path, source, change, named):
    ingest(source, tmp_path)

    with pytest.raises(ChangedSourceError, match=rf"made with other settings \({named}\)"):
        ingest(source, tmp_path, **change)


@pytest.mark.parametrize("damage", ['"mpp_source": 5, "x": 1, "mpp_source_was"', '"nothing"'])
def test_a_store_with_damaged_attributes_is_unreadable_and_kept(tmp_path, source, damage):
    store = ingest(source, tmp_path).store
    root = store / "zarr.json"
    root.write_text(root.read_text().replace('"mpp_source"', damage))

    with pytest.raises(UnreadableError, match="attributes are damaged"):
        ingest(source, tmp_path)

    assert store.exists()


def test_a_slide_that_another_process_ingests_is_locked_at_once(tmp_path, source):
    other = start_ingest(source, tmp_path / "p", pause_after_shard=2)
    try:
        with pytest.raises(LockedError, match="another process is writing it now") as caught:
            ingest(source, tmp_path / "p")
        assert caught.value.code == "locked"
        assert left_in(tmp_path / "p") == [".S-1.partial"]
    finally:
        other.communicate("go on\n", timeout=60)

    assert other.returncode == 0
    assert left_in(tmp_path / "p") == ["S-1.ome.zarr"]
    assert ingest_like_the_process(source, tmp_path / "p").skipped


def ingest_like_the_process(source, root):
    return ingest(source, root, tissue=TissueConfig())


def test_a_lock_held_by_anyone_counts(tmp_path, source):
    partial = tmp_path / "slides/.S-1.partial"
    partial.mkdir(parents=True)
    descriptor = os.open(partial, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        with pytest.raises(LockedError):
            ingest(source, tmp_path)
    finally:
        os.close(descriptor)

    assert not ingest(source, tmp_path).skipped


@pytest.mark.parametrize("shard", [1, 4, 8])
def test_a_killed_process_leaves_no_store_and_the_next_run_makes_the_same_bytes(tmp_path, source, shard):
    unbroken = ingest_like_the_process(source, tmp_path / "unbroken").store
    process = start_ingest(source, tmp_path / "p", pause_after_shard=shard)

    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL
    assert left_in(tmp_path / "p") == [".S-1.partial"]
    assert not (tmp_path / "p/slides/.S-1.partial/zarr.json").exists()  # not even the partial store looks finished
    report = ingest_like_the_process(source, tmp_path / "p")
    assert not report.skipped
    assert left_in(tmp_path / "p") == ["S-1.ome.zarr"]
    assert tree(report.store) == tree(unbroken)


@pytest.mark.parametrize("sign", ["0/labels/tissue/0", "0/zarr.json", "OME/zarr.json", "zarr.json"])
def test_a_process_killed_while_it_writes_the_last_files_leaves_a_whole_store_or_none(tmp_path, source, sign):
    """Killed as soon as a late file appears: before or after the store's rename, a deliberate race."""
    unbroken = ingest_like_the_process(source, tmp_path / "unbroken").store
    partial, final = tmp_path / "p/slides/.S-1.partial", tmp_path / "p/slides/S-1.ome.zarr"
    process = start_ingest(source, tmp_path / "p", pause_after_shard=8)
    process.stdin.write("go on\n")
    process.stdin.flush()

    while not (partial / sign).exists() and not final.exists():
        assert process.poll() in (None, 0)
    process.kill()
    process.communicate(timeout=60)

    assert not final.exists() or tree(final) == tree(unbroken)
    assert tree(ingest_like_the_process(source, tmp_path / "p").store) == tree(unbroken)


@pytest.mark.parametrize("size", ["16k", "100k", "300k"])
def test_a_full_disk_is_said_and_nothing_half_written_is_kept(tmp_path, source, size):
    with small_disk(tmp_path / "small", f"size={size}") as disk:
        with pytest.raises(DiskFullError, match="no space left while writing") as caught:
            ingest(source, disk / "p")

        assert caught.value.code == "disk_full"
        assert str(disk / "p/slides/S-1.ome.zarr") in str(caught.value)
        assert left_in(disk / "p") == []
    assert not ingest(source, tmp_path / "p").skipped


def test_a_disk_that_is_full_when_a_killed_run_goes_on_is_said_and_cleared(tmp_path, source):
    unbroken = ingest_like_the_process(source, tmp_path / "unbroken").store
    with small_disk(tmp_path / "small", "size=3m") as disk:
        process = start_ingest(source, disk / "p", pause_after_shard=4)
        process.kill()
        process.communicate(timeout=60)
        with (disk / "junk").open("wb", buffering=0) as junk, contextlib.suppress(OSError):
            while junk.write(bytes(4096)):
                pass

        with pytest.raises(DiskFullError, match="no space left while writing"):
            ingest_like_the_process(source, disk / "p")

        assert left_in(disk / "p") == []
        (disk / "junk").unlink()
        assert tree(ingest_like_the_process(source, disk / "p").store) == tree(unbroken)


def test_a_disk_that_became_read_only_when_a_killed_run_goes_on_keeps_what_was_finished(tmp_path, source):
    unbroken = ingest_like_the_process(source, tmp_path / "unbroken").store
    with small_disk(tmp_path / "small", "size=3m") as disk:
        process = start_ingest(source, disk / "p", pause_after_shard=4)
        process.kill()
        process.communicate(timeout=60)
        remount = ["mount", "-o", "remount,{}", str(disk)]
        subprocess.run([word.format("ro") for word in remount], check=True)

        with pytest.raises(DiskFullError, match="cannot be written"):
            ingest_like_the_process(source, disk / "p")

        subprocess.run([word.format("rw") for word in remount], check=True)
        assert left_in(disk / "p") == [".S-1.partial"]
        assert tree(ingest_like_the_process(source, disk / "p").store) == tree(unbroken)


def test_a_disk_without_room_for_another_file_is_said_too(tmp_path, source):
    with small_disk(tmp_path / "small", "nr_inodes=2") as disk, pytest.raises(DiskFullError, match=r"S-1\.ome\.zarr"):
        ingest(source, disk)


def test_a_read_only_disk_is_one_clear_error(tmp_path, source):
    with small_disk(tmp_path / "small", "size=64k,ro") as disk, pytest.raises(DiskFullError) as caught:
        ingest(source, disk / "p")

    assert "cannot be written (Read-only file system" in str(caught.value)
    assert "choose another --project" in str(caught.value)


def test_a_project_that_is_a_file_is_one_clear_error(tmp_path, source):
    (tmp_path / "p").write_text("not a folder")

    with pytest.raises(DiskFullError, match="cannot be written"):
        ingest(source, tmp_path / "p")


def test_a_limit_on_file_sizes_is_one_clear_error(tmp_path, source):
    """Run in a separate process, because the limit cannot be raised again."""
    script = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "from pathlib import Path\nfrom training.foundation.errors import DiskFullError\n"
        "from tests.pipeline.make import ingest\n"
        "try:\n    ingest(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except DiskFullError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(source), str(tmp_path / "p")], capture_output=True, text=True, check=True
    )

    assert "cannot be written (File too large" in done.stdout
    assert left_in(tmp_path / "p") == []


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, source):
    process = start_ingest(source, tmp_path / "p", pause_after_shard=3)
    with source.open("ab") as stream:
        stream.write(b"more of the file arrives")

    process.communicate("go on\n", timeout=60)

    assert process.returncode == 1
    assert left_in(tmp_path / "p") == []


def test_the_message_about_a_changing_source_says_what_to_do(tmp_path, source):
    class Touching(Advance):
        def __call__(self, _):
            os.utime(source, ns=(1, 1))

    with pytest.raises(ChangedSourceError, match=r"a\.tiff changed while it was read\. Wait until it is fully copied"):
        ingest_slide(IngestRequest(source, "S-1"), Project(tmp_path / "p"), IngestConfig(), advance=Touching())

    assert left_in(tmp_path / "p") == []


def test_what_a_crashed_run_left_is_cleared_and_replaced(tmp_path, source):
    partial = tmp_path / "slides/.S-1.partial"
    (partial / "0/9/c").mkdir(parents=True)
    (partial / "0/9/c/junk").write_bytes(b"old")
    (partial / "zarr.json").write_text("{}")

    store = ingest(source, tmp_path).store

    assert left_in(tmp_path) == ["S-1.ome.zarr"]
    assert not (store / "0/9").exists()
    shutil.rmtree(store)


def test_the_command_says_what_happened_in_one_line_per_slide_and_an_exit_code(tmp_path, source):
    def run(*arguments):
        command = [str(GEMSLIDE), "ingest", *map(str, arguments), "--project", str(tmp_path / "p"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    (tmp_path / "b.tiff").write_bytes(b"")

    mixed, lines = run(source, tmp_path / "b.tiff")
    again, skipped = run(source)

    lines = sorted(lines, key=lambda line: line["slide_id"])  # in order of completion
    assert (mixed, [(x["slide_id"], x["status"], x["code"]) for x in lines]) == (
        1,
        [("a", "done", None), ("b", "unreadable", "unreadable")],
    )
    assert (again, [(x["status"], x["code"]) for x in skipped]) == (0, [("skipped", None)])
    assert StoreReader(Path(lines[0]["output"])).slide_id == "a"
