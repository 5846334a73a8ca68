"""Cost and yield of `[ingest] damaged = "mask"`: `python -m benchmarks.damaged_tiles DATA`.

DATA is the folder of real slides. Three parts, a JSON line each into results/damaged_tiles.jsonl:

- difference of reduced levels of intact tissue from level 0 in a cell, by the way in which they were made;
- share of tiles damaged by a few bytes that libjpeg's warnings find, and that the comparison of levels finds;
- processor time and seconds of ingest with and without the search, whole slide, warm page cache.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from benchmarks.machine import circumstances
from pipeline.box import Box
from pipeline.codecs.images import decode_jpeg
from pipeline.codecs.strict import eighth_of_jpeg
from pipeline.codecs.types import DecodeError, Pixels
from pipeline.ingest.damage.comparison import CELL_PX, MAX_DIFFERENCE
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.slides.common.slide import NotCopied, one_stream
from pipeline.slides.registry import open_slide

WHOLE = "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff"
SLIDES = (WHOLE, "crc-mosaic/test_10.tiff", "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs")
WAYS = ("mean", "nearest", "middle pixel", "bilinear", "shifted by a pixel", "shifted by two pixels", "sharpened")
RATIOS = (2, 4, 8, 16)
DAMAGES = {
    "1 bit": 0,
    "3 zeros": 3,
    "20 zeros": 20,
    "300 zeros": 300,
    "4 random": 4,
    "20 random": 20,
    "300 random": 300,
}
TILES, TRIES = 60, 5
RESULTS = Path(__file__).parent / "results" / "damaged_tiles.jsonl"


def sample(path: Path, side_px: int) -> Pixels:
    """Region from the middle of a slide's level 0."""
    with open_slide(path) as slide:
        size = slide.info.levels[0]
        wide, high = min(side_px, size.width_px), min(side_px, size.height_px)
        return slide.read_region(0, Box((size.width_px - wide) // 2, (size.height_px - high) // 2, wide, high))


def reduced(pixels: Pixels, ratio: int, way: str) -> Pixels:
    """Reduced copy as a scanner's program may make it."""
    width, height = pixels.shape[1] // ratio, pixels.shape[0] // ratio
    pixels = pixels[: height * ratio, : width * ratio]
    if way in ("nearest", "middle pixel"):
        first = ratio // 2 if way == "middle pixel" else 0
        return np.ascontiguousarray(pixels[first::ratio, first::ratio])
    if way == "bilinear":
        return np.asarray(cv2.resize(pixels, (width, height)), np.uint8)
    mean = np.asarray(cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    if way == "sharpened":
        edges = mean.astype(np.float32) - cv2.GaussianBlur(mean, (0, 0), 1.5)
        return np.clip(mean + edges, 0, 255).astype(np.uint8)
    shift = {"mean": 0, "shifted by a pixel": 1, "shifted by two pixels": 2}[way]
    return np.pad(mean, ((shift, 0), (shift, 0), (0, 0)), mode="edge")[:height, :width]


def differences(pixels: Pixels, copy: Pixels, ratio: int) -> np.ndarray:
    """Differences of the cells' means, as computed by `level_comparison`."""
    columns, rows = copy.shape[1] // CELL_PX, copy.shape[0] // CELL_PX
    fine = pixels[: rows * CELL_PX * ratio, : columns * CELL_PX * ratio]
    coarse = copy[: rows * CELL_PX, : columns * CELL_PX]
    means = [cv2.resize(image, (columns, rows), interpolation=cv2.INTER_AREA).astype(int) for image in (fine, coarse)]
    return np.abs(means[0] - means[1]).max(-1)


def by_way(data: Path) -> dict[str, object]:
    """Largest difference in any cell of the three slides, by way and ratio."""
    parts = [sample(data / name, 4096) for name in SLIDES]
    largest = {
        way: {
            ratio: max(int(differences(p, reduced(p, ratio, way), ratio).max()) for p in parts if min(p.shape[:2]) >= 1)
            for ratio in RATIOS
        }
        for way in WAYS
    }
    return {"part": "whole tissue", "largest_difference": largest, "threshold": MAX_DIFFERENCE}


def by_damage(data: Path) -> dict[str, object]:
    """Shares of visibly damaged tiles found by the decoder, otherwise by the levels, or by neither."""
    random = np.random.default_rng(0)
    with open_slide(data / WHOLE) as slide:
        encoded = slide.encoded_level(0)
        assert not isinstance(encoded, NotCopied)
        largest = np.argsort(encoded.byte_counts().ravel())[-TILES:]
        streams = [one_stream(encoded, *divmod(int(at), encoded.columns)) or b"" for at in largest]
    shares_by_name = {}
    for name in DAMAGES:
        verdicts = [how for stream in streams for _ in range(TRIES) if (how := _told(stream, name, random))]
        shares = {how: round(verdicts.count(how) / len(verdicts), 3) for how in ("decoder", "levels", "nobody")}
        shares_by_name[name] = {"tiles": len(verdicts), **shares}
    return {"part": "damage", "tiles": TILES, "tries": TRIES, "found": shares_by_name}


def _told(stream: bytes, name: str, random: np.random.Generator) -> str | None:
    """Damage a stream; name the check that finds it: "decoder", "levels" or "nobody"; None if no pixel changed."""
    damaged, before = _damaged(stream, name, random), decode_jpeg(stream).astype(np.float32)
    try:
        after = decode_jpeg(damaged).astype(np.float32)
        if np.array_equal(before, after):
            return None
        eighth_of_jpeg(damaged, len(before))
    except DecodeError:
        return "decoder"
    # Cells under a level four times as coarse.
    means = [cv2.resize(image, None, fx=1 / 64, fy=1 / 64, interpolation=cv2.INTER_AREA) for image in (before, after)]
    return "levels" if np.abs(means[0] - means[1]).max() > MAX_DIFFERENCE else "nobody"


def _damaged(stream: bytes, name: str, random: np.random.Generator) -> bytes:
    length, kind = int(name.split()[0]), name.split()[1]
    at = int(random.integers(stream.index(b"\xff\xda") + 14, len(stream) - 2 - length))
    if kind == "bit":
        junk = bytes([stream[at] ^ (1 << int(random.integers(8)))])
    else:
        junk = bytes(length) if kind == "zeros" else random.integers(0, 256, length, np.uint8).tobytes()
    return stream[:at] + junk + stream[at + length :]


def cost(data: Path) -> dict[str, object]:
    """Ingest the whole slide three times in turn; return the fastest times."""
    best: dict[str, tuple[float, float]] = {}
    for _ in range(3):
        for how in ("refuse", "mask"):
            folder = Path(tempfile.mkdtemp())
            before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
            ingest_slide(IngestRequest(data / WHOLE, "S", mpp_option=0.5), Project(folder), IngestConfig(damaged=how))
            seconds = time.perf_counter() - start
            after = resource.getrusage(resource.RUSAGE_SELF)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[how] = min(best.get(how, (9e9, 9e9)), (round(cpu_s, 2), round(seconds, 2)))
            shutil.rmtree(folder)
    return {"part": "cost", "slide": WHOLE, "cpu_s_and_seconds": best}


def main() -> None:
    data = Path(sys.argv[1])
    with RESULTS.open("a", encoding="utf-8") as stream:
        for measure in (by_way, by_damage, cost):
            line = json.dumps({**circumstances("benchmarks.damaged_tiles"), **measure(data)})
            print(line, flush=True)
            stream.write(line + "\n")


if __name__ == "__main__":
    main()
