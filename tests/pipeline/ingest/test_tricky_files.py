"""The 26 malformed and tricky files of our collection, through the installed command.

`tricky_files.csv` gives the expected outcome per file: `pixels`, equal to those of an independent decoder, or an error
code. None may crash, hang, use excessive memory or leave something that looks finished. One process takes them all, one
after the other: its limits (memory, time, no traceback) hold for every file, and a crash would fail the rest.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import openslide
import pytest
from PIL import Image, ImageSequence

from pipeline.box import Box
from pipeline.slides.suffixes import slide_id_from
from pipeline.store.reading.reader import StoreReader

GEMSLIDE = Path(sys.executable).parent / "gemslide"
LAUNCHER = """
import os, signal, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
signal.alarm(int(sys.argv[1]))
_, status, usage = os.wait4(pid, 0)
print("launched:", os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024, file=sys.stderr)
"""
"""Linux counts a parent's memory in the peak of its child, so a small parent starts the command."""

MAX_SECONDS = 20
MAX_BYTES = 2**30

with (Path(__file__).with_name("tricky_files.csv")).open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))

pytestmark = [pytest.mark.data, pytest.mark.xdist_group("tricky")]  # they are ingested once


@dataclass(frozen=True)
class Run:
    """Exit code, peak memory and output of the process."""

    code: int
    peak_bytes: int
    lines: dict[str, dict[str, str]]
    err: str
    project: Path


@pytest.fixture(scope="module")
def run(real_slides, tmp_path_factory) -> Run:
    """Ingest all files in one process, for at most MAX_SECONDS; the kernel reports its peak memory."""
    project = tmp_path_factory.mktemp("tricky") / "project"
    sources = [str(real_slides / row["file"]) for row in ROWS]
    command = [str(GEMSLIDE), "ingest", *sources, "--project", str(project), "--mpp", "0.5", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, str(MAX_SECONDS), *command], capture_output=True, text=True, check=True
    )
    code, peak_bytes = map(int, done.stderr.rsplit("launched:", 1)[1].split())
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    by_id = {line["slide_id"]: line for line in lines}
    assert len(by_id) == len(lines)
    return Run(code, peak_bytes, by_id, done.stderr, project)


def slide_id(row: dict[str, str]) -> str:
    return slide_id_from(Path(row["file"]))


def decoded(path: Path, decoder: str) -> list[np.ndarray]:
    """Levels by a decoder that ingest does not use for this file."""
    if decoder == "pil":
        with Image.open(path) as pages:
            return [np.asarray(page) for page in ImageSequence.Iterator(pages)]
    if decoder == "opencv":
        return [np.ascontiguousarray(cv2.imread(str(path), cv2.IMREAD_UNCHANGED)[..., ::-1])]
    with openslide.OpenSlide(path) as slide:
        whole = [n for n, size in enumerate(slide.level_downsamples) if size == round(size)]
        return [np.asarray(slide.read_region((0, 0), n, slide.level_dimensions[n]))[..., :3] for n in whole]


def ids(rows):
    return [Path(row["file"]).name for row in rows]


def test_the_table_lists_every_tricky_file_of_the_collection(real_slides):
    index = (real_slides / "INDEX.md").read_text(encoding="utf-8")
    section = index.split("## malformed / tricky")[1].split("\n## ")[0]

    listed = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]

    assert [row["file"] for row in ROWS] == listed
    assert len(listed) == 26


def test_none_crashes_hangs_swells_or_stops_the_others(run):
    assert run.code == 1  # -9 after a timeout
    assert "Traceback" not in run.err
    assert run.peak_bytes < MAX_BYTES
    assert sorted(run.lines) == sorted(slide_id(row) for row in ROWS)  # two at a time, in order of completion


def test_only_what_was_read_is_there(run):
    finished = sorted(path.name for path in (run.project / "slides").iterdir())

    assert finished == sorted(f"{slide_id(row)}.ome.zarr" for row in ROWS if row["outcome"] == "pixels")


REFUSED = [row for row in ROWS if row["outcome"] != "pixels"]
READ = [row for row in ROWS if row["outcome"] == "pixels"]


@pytest.mark.parametrize("row", REFUSED, ids=ids(REFUSED))
def test_what_cannot_be_read_right_is_refused_with_its_code(run, row):
    line = run.lines[slide_id(row)]

    status = "unreadable" if row["outcome"] in ("unreadable", "corrupt_tile") else "refused"
    assert (line["status"], line["code"], line["output"]) == (status, row["outcome"], None)
    assert line["message"].startswith("(name left out)")  # the message on the terminal says it


@pytest.mark.parametrize("row", READ, ids=ids(READ))
def test_what_is_read_has_the_pixels_of_another_decoder(run, real_slides, row):
    line = run.lines[slide_id(row)]
    assert line["status"] == "done"

    reader = StoreReader(line["output"])

    for level, wanted in enumerate(decoded(real_slides / row["file"], row["decoder"])):
        height, width = wanted.shape[:2]
        assert (reader.levels[level].width_px, reader.levels[level].height_px) == (width, height)
        np.testing.assert_array_equal(reader.read_region(level, Box(0, 0, width, height)), wanted)
