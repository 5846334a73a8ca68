"""How soon a linked slide can be viewed, and what its tiles cost, beside a full store.

    .venv/bin/python -m benchmarks.link [--folder DIR] [--side-px 100000 270000] [--rounds 5]

The slides are made by `benchmarks.make_slide` (4:2:2; 270,000 px are 10 GB). In every round `gemslide ingest --link`
is started as typed by a user, while the web app serves the project: counted are the seconds until the store is there,
until the app sends its first tile, and until the store is verified. Then tiles at random places are read in turns from
the linked store and from a full one, the tiles' bytes in the page cache for both, by one thread; and the linked store
is made full, and its chunks compared with those of the direct ingest. Only the first is done for the larger slides.
Prints a JSON line for each; the committed ones are in benchmarks/results/link.jsonl.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ingest import ingest_seconds, made, settle, store_of, verb_seconds
from benchmarks.machine import circumstances, compile_bytecode
from pipeline.project import Project
from pipeline.settings.site import SLIDES_VARIABLE
from pipeline.store.format.metadata import read_json
from pipeline.store.reading.reader import StoreReader
from tests.pathology_app.started_app import started_app

NUM_TILES = 2000
GEMSLIDE = str(Path(sys.executable).with_name("gemslide"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--side-px", type=int, nargs="+", default=[100_000, 270_000])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    compile_bytecode()
    for index, side_px in enumerate(given.side_px):
        slide = made(given.folder, "ycbcr", side_px)
        project = Project(given.folder / "linked")
        line = {"side_px": side_px, "slide bytes": slide.stat().st_size, **_appearances(slide, project, given.rounds)}
        if index == 0:
            line |= _beside_full(slide, project, given.folder, given.rounds)
        print(json.dumps({**line, **circumstances("benchmarks.link")}, ensure_ascii=False), flush=True)


def _appearances(slide: Path, project: Project, rounds: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"there": [], "first tile": [], "verified": []}
    store = project.store_path(slide.stem)
    for _ in range(rounds):
        shutil.rmtree(project.root, ignore_errors=True)
        project.slides_dir.mkdir(parents=True)
        with _app(project, slide.parent) as url:
            settle()
            first = _appearance(slide, project, store, f"{url}/tiles/{slide.stem}")
        for name, value in first.items():
            seconds[name].append(value)
    files = [path for path in store.rglob("*") if path.is_file()]
    return {
        **{f"{name} s": round(statistics.median(values), 2) for name, values in seconds.items()},
        "there s, each": [round(value, 2) for value in seconds["there"]],
        "store bytes": sum(path.stat().st_size for path in files),
        "store files": len(files),
        "tiles": sum(level.rows * level.columns for level in StoreReader(store).levels),
    }


@contextmanager
def _app(project: Project, allowed: Path) -> Iterator[str]:
    log = project.root.parent / "app.log"
    with started_app(project.root, log, environment={SLIDES_VARIABLE: str(allowed)}) as app:
        yield app.url


def _appearance(slide: Path, project: Project, store: Path, tiles: str) -> dict[str, float]:
    """Seconds from the command to each sight of the slide."""
    command = [GEMSLIDE, "ingest", "--link", str(slide), "--project", str(project.root)]
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            if "there" not in seconds and (store / "zarr.json").exists():
                seconds["there"] = time.perf_counter() - start
            if "there" in seconds and "first tile" not in seconds and _is_sent(f"{tiles}/0/3_5"):
                seconds["first tile"] = time.perf_counter() - start
            time.sleep(0.002)  # leaves the cores to the command
    seconds["verified"] = time.perf_counter() - start
    link = read_json(store / "zarr.json")["attributes"]["gemslide"]["link"]
    if process.returncode or link["state"] != "verified" or len(seconds) != 3:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}, {link['state']}, {seconds}")
    return seconds


def _is_sent(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bool(answer.status == 200 and answer.read())


def _beside_full(slide: Path, linked: Project, folder: Path, rounds: int) -> dict[str, Any]:
    ingest_seconds(slide, folder / "ingested")
    full, store = store_of(folder, slide), linked.store_path(slide.stem)
    ratios = []
    for number in range(rounds + 1):
        by_link, by_copy = (_tile_seconds(path, number) for path in (store, full))
        ratios.append(by_link / by_copy)
    filled, _ = verb_seconds("ingest", str(slide), "--project", str(linked.root))
    return {
        "tile, linked ÷ full": round(statistics.median(ratios[1:]), 3),
        "ratios": [round(ratio, 3) for ratio in sorted(ratios[1:])],
        "filled s": round(filled, 2),
        **_compared(store, full),
    }


def _tile_seconds(store: Path, seed: int) -> float:
    array = StoreReader(store).levels[0].array
    rng = np.random.default_rng(seed)
    places = list(
        zip(*(rng.integers(0, n, NUM_TILES).tolist() for n in (array.spec.rows, array.spec.columns)), strict=True)
    )
    for place in places:
        array.chunk(*place)  # shards' indexes and bytes, for both
    start = time.perf_counter()
    for place in places:
        array.decoded_chunk(*place)
    return time.perf_counter() - start


def _compared(store: Path, full: Path) -> dict[str, Any]:
    """Files of the filled store that are not those of the direct ingest; their roots tell times."""
    names = {str(path.relative_to(of)) for of in (store, full) for path in of.rglob("*") if path.is_file()}
    _, unlike, missing = filecmp.cmpfiles(store, full, names - {"zarr.json"}, shallow=False)
    return {"files": len(names), "files unlike": len(unlike) + len(missing)}


if __name__ == "__main__":
    main()
