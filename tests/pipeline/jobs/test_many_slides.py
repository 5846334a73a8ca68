"""Several slides at a time: the same stores, one line per slide; a crash loses one slide, an interrupt no shard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pipeline.ingest.chaos import wait_for_group_to_end
from tests.pipeline.ingest.store_bytes import left_in, tree
from tests.pipeline.make import halved, sample_image, write_jpeg_pyramid

GEMSLIDE = Path(sys.executable).parent / "gemslide"
SETTINGS = "[ingest]\nshard_px = 256\nsmallest_level_px = 200\n"
WITHIN_S = 60


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two small slides and, in the middle, one that takes a while."""
    folder = tmp_path_factory.mktemp("sources")
    sizes = {"A": (700, 500), "slow": (4000, 2600), "B": (500, 700)}
    for seed, (name, size) in enumerate(sizes.items()):
        write_jpeg_pyramid(folder / f"{name}.tiff", halved(sample_image(*size, seed), 1), tile_px=128)
    (folder / "slides.csv").write_text("path,slide_id\n" + "".join(f"{name}.tiff,{name}\n" for name in sizes))
    return folder


@pytest.fixture(scope="module")
def one_at_a_time(sources, tmp_path_factory):
    """Stores of all slides, made one after the other."""
    project = new_project(tmp_path_factory.mktemp("one"))
    assert finish(start(sources / "slides.csv", project, workers=1))[0] == 0
    return {name: tree(project / f"slides/{name}.ome.zarr") for name in ("A", "slow", "B")}


def new_project(root):
    (root / "gemslide.toml").write_text(SETTINGS)
    return root


def start(source, project, *, workers):
    command = [str(GEMSLIDE), "ingest", str(source), "--project", str(project), "--workers", str(workers), "--json"]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip


def finish(process):
    """Exit code, JSON lines by slide, and other output."""
    out, err = process.communicate(timeout=300)
    return process.returncode, {line["slide_id"]: line for line in map(json.loads, out.splitlines())}, err


def wait_until(condition, process):
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def has_shards(project, name, count=10):
    """Whether a slide is being written, and has some finished shards."""
    shards = (project / f"slides/.{name}.partial/0/0/c").rglob("[0-9]*")
    return sum(path.is_file() for path in shards) >= count


def process_that_writes(folder):
    """Id of the process that holds the lock of a folder (proc(5), locks)."""
    inode = folder.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and fields[5].rsplit(":", 1)[1] == str(inode):
            return int(fields[4])
    raise AssertionError(f"nobody holds the lock of {folder}")


def test_two_at_a_time_make_the_same_bytes_and_a_line_each(sources, one_at_a_time, tmp_path):
    project = new_project(tmp_path)

    code, lines, _ = finish(start(sources / "slides.csv", project, workers=2))

    assert (code, {name: line["status"] for name, line in lines.items()}) == (0, dict.fromkeys(one_at_a_time, "done"))
    assert left_in(project) == sorted(f"{name}.ome.zarr" for name in one_at_a_time)
    assert {name: tree(project / f"slides/{name}.ome.zarr") for name in one_at_a_time} == one_at_a_time
    (record,) = (project / "runs").glob("*.json")
    assert sorted(slide["slide_id"] for slide in json.loads(record.read_text())["slides"]) == ["A", "B", "slow"]


def test_a_slide_whose_reader_crashes_fails_alone_and_goes_on_the_next_time(sources, one_at_a_time, tmp_path):
    project = new_project(tmp_path)
    process = start(sources / "slides.csv", project, workers=2)
    wait_until(lambda: has_shards(project, "slow"), process)
    victim = process_that_writes(project / "slides/.slow.partial")
    assert victim != process.pid

    os.kill(victim, signal.SIGSEGV)
    code, lines, err = finish(process)

    assert (code, {name: line["status"] for name, line in lines.items()}) == (
        1, {"A": "done", "B": "done", "slow": "unreadable"}
    )  # fmt: skip
    assert "the process that read (name left out) crashed or was stopped (exit code -11)" in lines["slow"]["message"]
    assert "Traceback" not in err
    code, lines, _ = finish(start(sources / "slides.csv", project, workers=2))
    assert (code, {name: line["status"] for name, line in lines.items()}) == (
        0, {"A": "skipped", "B": "skipped", "slow": "done"}
    )  # fmt: skip
    assert tree(project / "slides/slow.ome.zarr") == one_at_a_time["slow"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("whom", ["parent", "group"])
def test_an_interrupted_run_ends_at_once_and_the_next_one_goes_on(sources, one_at_a_time, tmp_path, workers, whom):
    """Ctrl-C in a terminal goes to the whole group of processes, `kill -INT` to one."""
    project = new_project(tmp_path)
    process = start(sources / "slides.csv", project, workers=workers)
    wait_until(lambda: has_shards(project, "slow"), process)

    (os.kill if whom == "parent" else os.killpg)(process.pid, signal.SIGINT)
    code, _, err = finish(process)

    assert code not in (0, None)
    assert "Traceback" not in err
    wait_for_group_to_end(process.pid)
    assert ".slow.partial" in left_in(project)
    shards = {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in (project / "slides/.slow.partial/0/0/c").rglob("[0-9]*")
        if path.is_file()
    }
    assert len(shards) >= 10
    code, lines, _ = finish(start(sources / "slow.tiff", project, workers=1))
    assert (code, lines["slow"]["status"]) == (0, "done")
    assert tree(project / "slides/slow.ome.zarr") == one_at_a_time["slow"]
    final = project / "slides/slow.ome.zarr"
    for path, was in shards.items():
        stat = (final / path.relative_to(project / "slides/.slow.partial")).stat()
        assert (stat.st_ino, stat.st_mtime_ns) == was
