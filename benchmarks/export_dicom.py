"""A slide's store as DICOM, beside a plain copy of the store and wsidicomizer's conversion of the slide.

    .venv/bin/python -m benchmarks.others              # once: wsidicomizer, in an environment of its own
    .venv/bin/python -m benchmarks.export_dicom [--folder DIR] [--side-px 100000] [--rounds 5]

The slide is made by `benchmarks.make_slide` (4:2:2) and ingested, once. In every round take turns: `cp -r` of the store
with an fsync of every file, and `gemslide export --to dicom` as typed by a user; the store is in the page cache for
both. wsidicomizer converts the slide file itself, twice. Then every frame is compared with the store's chunk; regions
at random places with those that OpenSlide and wsidicom show; and every file is given to dciodvfy. Prints a JSON line;
the committed one is in benchmarks/results/export_dicom.jsonl.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import openslide
from wsidicom import WsiDicom

from benchmarks import others
from benchmarks.ingest import ingest_seconds, made, settle, store_of, verb_seconds
from benchmarks.machine import circumstances, compile_bytecode
from pipeline.box import Box
from pipeline.slides.common.slide import NotCopied
from pipeline.slides.registry import open_slide
from pipeline.store.reading.reader import StoreReader

NUM_REGIONS, REGION_PX = 40, 700
REGIONS_OF_LEVEL = 10
"""Of those that wsidicom is asked for."""
CONVERSIONS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    compile_bytecode()
    slide = made(given.folder, "ycbcr", given.side_px)
    ingest_seconds(slide, given.folder / "ingested")
    store, out = store_of(given.folder, slide), given.folder / "exported"
    copied, exported, peaks_mib = [], [], []
    for _ in range(given.rounds):
        copied.append(_copied(store, given.folder / "copy"))
        seconds, peak_mib = _exported(store, out)
        exported.append(seconds)
        peaks_mib.append(peak_mib)
    ratios = [ours / plain for ours, plain in zip(exported, copied, strict=True)]
    line = {
        "side_px": given.side_px,
        "export ÷ cp + fsync": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in sorted(ratios)],
        "export s": round(statistics.median(exported), 2),
        "copy s": round(statistics.median(copied), 2),
        "peak MiB": round(max(peaks_mib)),
        "bytes ÷ store's": round(_bytes(out) / _bytes(store), 4),
        **_compared(store, out),
        "wsidicomizer": _by_wsidicomizer(slide, given.folder / "converted"),
    }
    print(json.dumps({**line, **circumstances("benchmarks.export_dicom")}, ensure_ascii=False), flush=True)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _copied(store: Path, target: Path) -> float:
    shutil.rmtree(target, ignore_errors=True)
    settle()
    start = time.perf_counter()
    subprocess.run(["cp", "-r", "--reflink=never", str(store), str(target)], check=True)
    files = [str(path) for path in target.rglob("*") if path.is_file()]
    subprocess.run(["sync", *files], check=True)
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


def _exported(store: Path, out: Path) -> tuple[float, float]:
    """Wall time of the command, and its peak memory in MiB."""
    shutil.rmtree(out, ignore_errors=True)
    return verb_seconds("export", str(store), str(out), "--to", "dicom", "--project", str(store.parents[1]))


def _compared(store: Path, out: Path) -> dict[str, object]:
    """Frames and regions that differ, and what the validator calls errors."""
    reader = StoreReader(store)
    frames = different = 0
    with open_slide(out) as again:
        for level in reader.levels:
            own = again.encoded_level(level.level)
            assert not isinstance(own, NotCopied), own.reason
            if level.codec != own.codec:  # encoded as lossless JPEG 2000
                continue
            for row in range(level.rows):
                chunks = level.array.chunks(row, range(level.columns))
                for chunk, stream in zip(chunks, own.streams(row, range(level.columns)), strict=True):
                    frames += 1
                    different += chunk is not None and b"".join(stream) != chunk
    errors = sum(_errors(path) for path in sorted(out.glob("*.dcm")))
    unlike = {"OpenSlide": _unlike_openslide(reader, out), "wsidicom": _unlike_wsidicom(reader, out)}
    return {
        "frames": frames,
        "frames unlike the store's": different,
        f"regions of {NUM_REGIONS} unlike": unlike,
        "errors of dciodvfy": errors,
    }


def _errors(path: Path) -> int:
    done = subprocess.run(["dciodvfy", str(path)], capture_output=True, text=True, check=False)
    return sum(line.startswith("Error") for line in (done.stdout + done.stderr).splitlines())


def _places(reader: StoreReader, level: int) -> list[Box]:
    random, own = np.random.default_rng(level), reader.levels[level]
    side = min(REGION_PX, own.width_px, own.height_px)
    corners = random.integers(0, (own.width_px - side + 1, own.height_px - side + 1), (NUM_REGIONS, 2))
    return [Box(int(x), int(y), side, side) for x, y in corners]


def _unlike_openslide(reader: StoreReader, out: Path) -> int:
    """At level 0: elsewhere OpenSlide reads only from whole positions."""
    with openslide.OpenSlide(out / "level-0.dcm") as slide:
        shown = ((box, slide.read_region((box.x_px, box.y_px), 0, box.size_wh_px)) for box in _places(reader, 0))
        return sum(not np.array_equal(np.asarray(image)[..., :3], reader.read_region(0, box)) for box, image in shown)


def _unlike_wsidicom(reader: StoreReader, out: Path) -> int:
    with WsiDicom.open(out) as slide:
        numbers = {level.size.width: level.level for level in slide.levels}
        places = [(own, box) for own in reader.levels for box in _places(reader, own.level)[:REGIONS_OF_LEVEL]]
        unlike = 0
        for own, box in places[:NUM_REGIONS]:
            image = slide.read_region((box.x_px, box.y_px), numbers[own.width_px], box.size_wh_px)
            unlike += not np.array_equal(np.asarray(image), reader.read_region(own.level, box))
        return unlike


def _by_wsidicomizer(slide: Path, target: Path) -> dict[str, object] | str:
    lines = []
    for _ in range(CONVERSIONS):
        shutil.rmtree(target, ignore_errors=True)
        settle()
        line = others.convert(slide, target)
        if isinstance(line, str):
            return line
        lines.append(line)
    shutil.rmtree(target, ignore_errors=True)
    return {**lines[-1], "seconds": round(statistics.median(line["seconds"] for line in lines), 2)}


if __name__ == "__main__":
    main()
