"""Damaged slide files through ingest: a complete store with the right pixels, or one clear error, nothing else.

`make fuzz` or `python -m tests.pipeline.slides.fuzz --seed N --cases M`. Cases run in batches in
separate processes; a crash, hang, other exception, excessive memory or leftover is a finding, and gives exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import select
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from pipeline.box import Box
from pipeline.ingest.ingest import IngestReport
from pipeline.ingest.source_comparison import verify_store
from pipeline.slides.openslide.reader import VendorSlide
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader
from tests.pipeline.ingest.store_bytes import left_in
from tests.pipeline.make import (
    APERIO,
    Pixels,
    halved,
    ingest,
    sample_image,
    write_aperio_j2k,
    write_jpeg_pyramid,
    write_pyramid,
)
from tests.pipeline.slides import make_dicom
from tests.pipeline.slides.make_ndpi import write_ndpi, write_ndpi_stack
from tests.pipeline.slides.mutate import anatomy_of, damaged
from training.foundation.errors import GemslideError, UnreadableError

CASES_PER_PROCESS = 25
TIME_LIMIT_S = 20.0
STARTS_WITHIN_S = 120.0
MEMORY_LIMIT_BYTES = 1536 * 2**20
"""Memory limit above the process's use before the case."""
ADDRESS_LIMIT_BYTES = 24 * 2**30
"""Address space limit, so that a runaway case does not take the machine down."""
SMALL_REAL = (
    "openslide+openslide-python/tests/fixtures/small.svs",
    "image-rs+image-tiff/tests/images/bigtiff/BigTIFFMotorola.tif",
    "image-rs+image-tiff/tests/libtiffpic/quad-tile.tif",
    "ImagingDataCommons+highdicom/data/test_files/sm_image.dcm",
)


@dataclass
class Findings:
    """Outcomes of the fuzzed cases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return ", ".join(f"{outcome}: {times}" for outcome, times in sorted(self.outcomes.items()))


def write_originals(folder: Path) -> list[Path]:
    """Write small files of every structure that is read tile by tile, and copy small real ones if available."""
    folder.mkdir(parents=True, exist_ok=True)
    levels, size = halved(sample_image(200, 140), 1), {"width": 200, "height": 140}
    aperio = {"description": APERIO.format(**size), "photometric": "rgb"}
    originals = [
        write_jpeg_pyramid(folder / "ycc.tiff", levels, tile_px=64),
        write_jpeg_pyramid(folder / "aperio.svs", levels, tile_px=64, **aperio),
        write_jpeg_pyramid(folder / "alone.tiff", levels, tile_px=64, shared_tables=False, stream="ycbcr"),
        _with_header(folder / "big.tiff", levels, bigtiff=True),
        write_aperio_j2k(folder / "j2k.svs", sample_image(300, 280), compression=33005),
        *(write_pyramid(folder / f"{c}.tiff", levels, tile_px=64, compression=c) for c in ("lzw", "deflate", "zstd")),
        write_pyramid(folder / "strips.tiff", levels[:1], tile_px=None, compression="lzw"),
        _with_header(folder / "motorola.tiff", levels, byteorder=">"),
        write_ndpi(folder / "a.ndpi", halved(sample_image(240, 144), 1), interval_mcus=5).path,
    ]
    tile_kinds: list[dict[str, Any]] = [
        {}, {"sparse": [5, 3, 0], "offsets": "none"}, {"offsets": "extended"},
        {"syntax": make_dicom.JPEG_2000_LOSSLESS, "encode": make_dicom.jpeg_2000, "photometric": "YBR_RCT"},
        {"syntax": make_dicom.NATIVE, "encode": make_dicom.native, "photometric": "RGB"},
    ]  # fmt: skip
    originals += [
        make_dicom.write_dicom(folder / f"{i}.dcm", levels[0], change=_with_the_same_name, **kind)
        for i, kind in enumerate(tile_kinds)
    ]
    planes = {height: sample_image(200, 140, seed) for seed, height in enumerate((0.0, 1.5))}
    scanned = {1000 * seed: [sample_image(240, 144, seed)] for seed in range(2)}
    write_ndpi_stack(folder / "stack.ndpi", scanned, interval_mcus=5)
    originals.append(folder / "stack.ndpi")
    for is_full in (True, False):
        path = folder / f"stack-{is_full}.dcm"
        make_dicom.write_dicom_stack(path, planes, is_full=is_full, change=_with_the_same_name)
        originals.append(path)
    data = os.environ.get("GEMSLIDE_TEST_DATA")
    return originals + ([Path(data) / name for name in SMALL_REAL] if data else [])


def _with_the_same_name(ds: Any) -> None:
    """Set a fixed UID, so that the same seed makes the same file."""
    ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4.5.6"


def _with_header(path: Path, levels: list[Pixels], **header: Any) -> Path:
    """Write with another byte order or kind of TIFF."""
    with tifffile.TiffWriter(path, **header) as tiff:
        for level, pixels in enumerate(levels):
            tiff.write(
                pixels, tile=(64, 64), photometric="rgb", compression="jpeg", subfiletype=1 if level else 0,
                metadata=None, resolution=(20000 / 2**level,) * 2, resolutionunit="CENTIMETER",
            )  # fmt: skip
    return path


# --- one case, inside a worker -------------------------------------------------------------------------------------


def try_case(path: Path, project: Path) -> tuple[str, str | None]:
    """Ingest a damaged file. Return the outcome, and anything wrong with it."""
    memory = Memory()
    wrong: str | None = None
    try:
        report = ingest(path, project, mpp=0.5, shard_px=256, smallest_level_px=64)
        outcome, wrong = "done", _wrong_with_store(report, path)
    except GemslideError as error:
        outcome = error.code
        left = left_in(project)
        if len(str(error)) < 30:
            wrong = f"message says too little: {error}"
        elif left:
            wrong = f"{error}, but left behind {left}"
    if memory.taken() > MEMORY_LIMIT_BYTES:
        wrong = f"took {memory.taken() / 2**20:.0f} MiB of memory ({outcome})"
    return outcome, wrong


class Memory:
    """Peak memory since this object was made, by the kernel's count (proc(5), clear_refs and status)."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._highest()

    def taken(self) -> int:
        return self._highest() - self._before

    def _highest(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def _wrong_with_store(report: IngestReport, path: Path) -> str | None:
    """Fault of a store that does not verify or match any reference decoder of the damaged file; None if sound."""
    try:
        verify_store(report.store, source=path, every_chunk=True)
    except GemslideError as error:
        return f"a store that does not verify: {error}"
    reader = StoreReader(report.store)
    for level, level_report in enumerate(report.levels):
        if level_report.route == "built" or level_report.rebuilt:
            continue
        size = reader.levels[level]
        pixels_read = reader.read_region(level, Box(0, 0, size.width_px, size.height_px))
        seen = list(_references(path, level, pixels_read.shape))
        if seen and not any(np.array_equal(pixels_read, pixels) for pixels in seen):
            worst = [int(np.abs(pixels_read.astype(int) - pixels).max()) for pixels in seen]
            return f"level {level} ({level_report.route}) differs from all {len(seen)} reference decoders, by {worst}"
    return None


def _references(path: Path, level: int, shape: tuple[int, ...]) -> Iterator[Pixels]:
    """Pixels that OpenSlide and tifffile read, if they have a level of that size."""
    with open_slide(path) as own:
        openslide_file = own.openslide_file
    try:
        if openslide_file is None:  # OpenSlide would be misled, or crash
            raise UnreadableError(path.name)
        with VendorSlide(openslide_file, every_level=True) as slide:
            sizes = [(size.height_px, size.width_px, 3) for size in slide.info.levels]
            if shape in sizes:
                yield slide.read_region(sizes.index(shape), Box(0, 0, shape[1], shape[0]))
    except GemslideError:
        pass
    try:
        with tifffile.TiffFile(path) as tiff:
            for number in range(len(tiff.pages)):  # a circular chain of pages ends only here
                page = tiff.pages[number]
                if page.shape == shape:
                    yield _white_where_left_out(page)
    except Exception:  # noqa: BLE001, S110 - tifffile on a damaged file raises whatever it likes
        pass


def _white_where_left_out(page: tifffile.TiffPage) -> Pixels:
    """Pixels of a page with omitted tiles white: tifffile shows black for a tile without bytes or offset."""
    pixels = page.asarray().copy()
    if page.is_tiled:
        columns = -(-page.imagewidth // page.tilewidth)
        for index, place in enumerate(zip(page.dataoffsets, page.databytecounts, strict=False)):
            if 0 in place:
                y, x = index // columns * page.tilelength, index % columns * page.tilewidth
                pixels[y : y + page.tilelength, x : x + page.tilewidth] = 255
    return pixels


def work(originals: Path, folder: Path, seed: int, first: int, last: int) -> None:
    """Run cases in this process; print a line when a case starts and one when it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_LIMIT_BYTES, ADDRESS_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("error")
    anatomies = [(path, anatomy_of(path)) for path in _listed(originals)]
    with open_slide(anatomies[0][0]):  # imports do not count towards a case's time and memory
        pass
    for number in range(first, last):
        draw = random.Random(f"{seed}/{number}")
        original, anatomy = draw.choice(anatomies)
        content, done = damaged(anatomy, draw)
        path = folder / f"case{number}{original.suffix}"
        path.write_bytes(content)
        what = f"--seed {seed} --only {number}: {original.name}, {done}"
        print(json.dumps({"number": number, "what": what}), flush=True)
        try:
            outcome, wrong = try_case(path, folder / "project")
        except Exception as error:  # noqa: BLE001 - whatever else comes out is what we look for
            outcome, wrong = "exception", f"{type(error).__name__}: {error}"
        print(json.dumps({"number": number, "outcome": outcome, "wrong": wrong}), flush=True)
        path.unlink()
        shutil.rmtree(folder / "project", ignore_errors=True)


def _listed(originals: Path) -> list[Path]:
    return [Path(line) for line in (originals / "list.txt").read_text().splitlines()]


# --- the parent ----------------------------------------------------------------------------------------------------


def run(folder: Path, seed: int, cases: int, *, first: int = 0, say: bool = False) -> Findings:
    """Run cases in separate processes."""
    findings, number, last = Findings(), first, first + cases
    originals = folder / "originals"
    (originals / "list.txt").write_text("\n".join(map(str, write_originals(originals))))
    while number < last:
        known = len(findings.wrong)
        number = _run_some(originals, folder, seed, number, min(last, number + CASES_PER_PROCESS), findings)
        if say:
            print(f"{number - first} cases: {findings}", *findings.wrong[known:], sep="\n  ", flush=True)
    return findings


def _run_some(originals: Path, folder: Path, seed: int, first: int, last: int, findings: Findings) -> int:
    """Run cases in one process until it ends or must be killed. Return the number of the next case."""
    work_folder = Path(tempfile.mkdtemp(dir=folder))
    arguments = [str(originals), str(work_folder), str(seed), str(first), str(last)]
    with (work_folder / "stderr.txt").open("w+") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.slides.fuzz", "--work", *arguments],
            stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
        number, what, is_running = first, "start", False
        for line in _lines(process):
            message = json.loads(line)
            number, is_running = message["number"], "what" in message
            if is_running:
                what = message["what"]
                continue
            findings.outcomes[message["outcome"]] += 1
            if message["wrong"]:
                findings.wrong.append(f"{what}: {message['wrong']}")
        stderr.seek(0)
        last_words = stderr.read()[-1500:]
    shutil.rmtree(work_folder)
    if is_running or process.returncode:
        findings.outcomes["crash"] += 1
        findings.wrong.append(f"{what}: crash or hang, exit code {process.returncode}: {last_words}")
    return number + 1


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines of a worker, which is killed when none comes in time."""
    assert process.stdout is not None
    limit_s = STARTS_WITHIN_S
    while True:
        # A line is written at once, so a pipe with something in it has a whole line.
        readable, _, _ = select.select([process.stdout], [], [], limit_s)
        line = process.stdout.readline() if readable else ""
        if not line:
            if not readable:
                process.kill()
            process.communicate()
            return
        limit_s = 2 * TIME_LIMIT_S if '"what"' in line else STARTS_WITHIN_S
        yield line


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        originals, folder, *numbers = sys.argv[2:]
        work(Path(originals), Path(folder), *map(int, numbers))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--only", type=int, help="one case, by its number")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="gemslide-fuzz-") as folder:
        first, cases = (0, options.cases) if options.only is None else (options.only, 1)
        findings = run(Path(folder), options.seed, cases, first=first, say=True)
    print(f"{time.perf_counter() - start:.0f} s; {len(findings.wrong)} findings; {findings}")
    num_read = findings.outcomes["done"]
    if options.only is None and not options.cases // 10 < num_read < options.cases:
        sys.exit(f"proves little: {num_read} of {options.cases} damaged files were read as slides")
    sys.exit(bool(findings.wrong))


if __name__ == "__main__":
    main()
