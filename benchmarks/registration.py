"""Error, refusals, time and memory of `gemslide register`.

    GEMSLIDE_TEST_DATA=DIR .venv/bin/python -m benchmarks.registration [--folder DIR] [--rounds 2] [--only pairs|large]

Pairs are made from real slides by known transforms (`registration_pairs.py`) and ingested; the error of a pair is the
median, over the made slide's tissue, of the distance between where the registration puts a place and where it is.
Unrelated pairs are all pairs of different real slides, as they are and with the second one re-stained and turned: each
must be refused. Time and peak memory are of the command line, on two slides of 100,000 × 100,000 px with the tissue of
a real one. Prints a JSON line per figure; the committed ones are in benchmarks/results/registration.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import tifffile

from benchmarks.machine import circumstances
from benchmarks.registration_large import measure_large
from benchmarks.registration_pairs import KINDS, Pair, Picture, make_pair, write_slide
from pipeline.errors import NoTissueError, NotRegisteredError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.registration import Affine, register_slides
from pipeline.settings.config import IngestConfig
from pipeline.store import StoreReader, read_tissue

MOSAICS = ("train_0", "train_1", "train_2", "test_10", "test_12")
POLYP = "kangyeolk+colorectal-cancer-segmentation/P2_0039_section1.tiff"
SKIN = "Dana-Farber-AIOS+pathml/tests/testdata/small_HE.svs"
NODES = "GoogleCloudPlatform+medical-imaging/pathology/dicom_proxy/testdata"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "gemslide-benchmarks")
    parser.add_argument("--rounds", type=int, default=2, help="Pairs of each kind from each slide.")
    parser.add_argument("--only", choices=("pairs", "large"))
    given = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"])
    conditions = circumstances("benchmarks.registration")
    folder = given.folder / "registration"
    folder.mkdir(parents=True, exist_ok=True)
    figures: list[Iterator[dict[str, Any]]] = []
    if given.only != "large":
        pictures = read_pictures(data, folder)
        figures += [related(pictures, folder, given.rounds), unrelated(pictures, folder)]
    if given.only != "pairs":
        figures.append(measure_large(data / POLYP, folder))
    for figure in itertools.chain(*figures):
        print(json.dumps({**figure, **conditions}, ensure_ascii=False), flush=True)


def read_pictures(data: Path, folder: Path) -> list[Picture]:
    """The real slides, each at a resolution at which it is quick to write."""
    pictures = []
    with tifffile.TiffFile(data / POLYP) as tiff:
        pixels = tiff.pages[1].asarray()
        half = cv2.resize(pixels, (pixels.shape[1] // 2, pixels.shape[0] // 2), interpolation=cv2.INTER_AREA)
        pictures.append(_picture("polyp", half, 4.0))
    with tifffile.TiffFile(data / SKIN) as tiff:
        pictures.append(_picture("skin", tiff.pages[0].asarray(), 0.499))
    for name in MOSAICS:
        with tifffile.TiffFile(data / "crc-mosaic" / f"{name}.tiff") as tiff:
            pictures.append(_picture(name, tiff.pages[1].asarray(), 1.0))
    project = Project(folder / "nodes")
    for kind in ("jpeg2000", "jpeg"):
        source = data / NODES / f"multi_frame_{kind}_camelyon_challenge_image.dcm"
        reader = _ingested(source, project, f"node-{kind}")
        width, height = reader.size_wh_px0
        pictures.append(_picture(f"node-{kind}", reader.read_at_mpp(0, 0, width, height, reader.mpp0), reader.mpp0))
    return pictures


def related(pictures: list[Picture], folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Errors by kind."""
    project = Project(folder / "related")
    for kind in KINDS:
        errors, stated, refused, seconds = [], [], [], []
        for picture, seed in itertools.product(pictures, range(rounds)):
            moving = _written(picture.pixels, picture.mpp, project, picture.name)
            pair = make_pair(picture, kind, seed)
            fixed = _written(pair.pixels, picture.mpp, project, f"{picture.name}-made")
            start = time.perf_counter()
            try:
                registered = register_slides(moving, fixed)
            except (NotRegisteredError, NoTissueError) as error:
                refused.append(f"{picture.name}, seed {seed}: {error}")
                continue
            finally:
                seconds.append(time.perf_counter() - start)
            errors.append(error_um(registered.transform, pair, fixed))
            stated.append(registered.error_um)
        yield {
            "figure": f"error of pairs: {kind}", "pairs": len(errors) + len(refused), "refused": refused,
            "median_um": _rounded(errors, statistics.median), "largest_um": _rounded(errors, max),
            "errors_um": [round(error, 1) for error in errors], "stated_um": [round(error, 1) for error in stated],
            "seconds_median": round(statistics.median(seconds), 2),
        }  # fmt: skip


def unrelated(pictures: list[Picture], folder: Path) -> Iterator[dict[str, Any]]:
    """Accepted pairs of different slides: there must be none."""
    project, accepted, tried = Project(folder / "unrelated"), [], 0
    for index, (one, other) in enumerate(itertools.permutations(pictures, 2)):
        moving = _written(one.pixels, one.mpp, project, one.name)
        for kind in (None, "re-stained and turned"):
            pixels = other.pixels if kind is None else make_pair(other, kind, index).pixels
            fixed = _written(pixels, other.mpp, project, f"{other.name}-other")
            tried += 1
            try:
                registered = register_slides(moving, fixed)
            except (NotRegisteredError, NoTissueError):
                continue
            accepted.append(f"{one.name} and {other.name}, {kind}: {registered}")
    yield {"figure": "unrelated pairs accepted", "pairs": tried, "accepted": len(accepted), "which": accepted}


def error_um(transform: Affine, pair: Pair, fixed: StoreReader) -> float:
    """Median distance, over the made slide's tissue, from where the transform puts a place to where it is."""
    mask_yx, mask_mpp = read_tissue(fixed.path)
    rows, columns = np.nonzero(mask_yx)
    at = (np.column_stack([columns, rows]) + 0.5) * mask_mpp / fixed.mpp0 - 0.5
    x, y = (np.clip(np.rint(at[:, axis]).astype(int), 0, pair.pixels.shape[1 - axis] - 1) for axis in (0, 1))
    at = np.column_stack([x, y]).astype(np.float64)
    source = np.column_stack([pair.source_x[y, x], pair.source_y[y, x]]).astype(np.float64)
    known = np.abs(source).max(1) < 1e5
    # Pixel centres: a pixel's centre is half a pixel from the corner that level-0 pixels are counted from.
    off = transform.moved(source[known] + 0.5) - (at[known] + 0.5)
    return float(np.median(np.linalg.norm(off, axis=1)) * fixed.mpp0)


def _picture(name: str, pixels: Any, mpp: float) -> Picture:
    glass = np.median(pixels[pixels.min(-1) > 200].reshape(-1, 3), axis=0)
    glass = np.full(3, 242.0) if np.isnan(glass).any() else glass
    return Picture(name, np.ascontiguousarray(pixels), mpp, (int(glass[0]), int(glass[1]), int(glass[2])))


def _written(pixels: Any, mpp: float, project: Project, slide_id: str) -> StoreReader:
    path = project.root / f"{slide_id}.tiff"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_slide(path, pixels, mpp)
    return _ingested(path, project, slide_id)


def _ingested(source: Path, project: Project, slide_id: str) -> StoreReader:
    store = project.store_path(slide_id)
    shutil.rmtree(store, ignore_errors=True)
    ingest_slide(IngestRequest(source, slide_id), project, IngestConfig())
    return StoreReader(store)


def _rounded(values: list[float], of: Any) -> float | None:
    return round(of(values), 1) if values else None


if __name__ == "__main__":
    main()
