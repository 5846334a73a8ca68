"""Streams with one to three hidden texts or labels each, really ingested: none of it reaches the store.

    python -m tests.attacks.leaks [--times 300] [--seed 0]

Each case takes a kind of tile, a container, and ways to hide (`leaky_streams`), puts them into some of the tiles and
ingests the file. A finding is a store that holds any of the hidden content, or whose shards differ from those of the
honest twin's store in any byte; or a refusal. The exit code is 1 on any finding or other error.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import numpy as np

from tests.attacks import leaky_streams as leaks
from tests.attacks.leaky_files import FAMILIES, TEXT, WORDS
from tests.pipeline.identity_scan import PIXEL_BYTES, STRIP_BYTES, Identity, Windows, _hashes, _is_telling, scan
from tests.pipeline.make import ingest
from training.foundation.errors import GemslideError

MAX_LEAKS = 3
FIRST = (leaks.adobe_fields, leaks.between_the_scans)
"""Ways to hide that expect segments where the encoder put them; they are applied first."""


@cache
def planted() -> Identity:
    """Planted identity that must not leak: words, and pieces of the label's encoded and decoded pixels."""
    label = leaks.label_jpeg()
    coded = _hashes(label[leaks.first_scan(label) :], STRIP_BYTES)
    rows = [_hashes(row.tobytes(), PIXEL_BYTES)[_is_telling(row)] for row in leaks.label_image()]
    return Identity(WORDS, Windows(coded, STRIP_BYTES), Windows(np.concatenate(rows), PIXEL_BYTES, step=8))


def shards(store: Path) -> dict[str, bytes]:
    """Every file of pixels in a store."""
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted((store / "0").glob("[0-9]*/c/**/*"))
            if path.is_file()}  # fmt: skip


def run(times: int, seed: int, folder: Path) -> list[str]:
    """Findings of this many cases, one line each. The folder of a case without findings is removed."""
    draw, findings = random.Random(seed), []
    honest: dict[tuple[str, str], dict[str, bytes]] = {}
    for number in range(times):
        kind, container = draw.choice(list(FAMILIES)), draw.choice(["tiff", "dicom"])
        family = FAMILIES[kind]
        suffix = {"tiff": "svs", "dicom": "dcm"}[container]
        if (kind, container) not in honest:
            path = getattr(family, container)(folder / f"{kind}.{suffix}", family.tiles())
            honest[kind, container] = shards(ingest(path, folder / f"honest-{kind}-{container}").store)
        chosen = draw.sample(family.leaks, draw.randrange(1, MAX_LEAKS + 1))
        chosen.sort(key=lambda leak: leak not in FIRST)
        tiles = [_with(tile, chosen, draw) if draw.random() < 0.7 else tile for tile in family.tiles()]
        case = folder / str(number)
        case.mkdir()
        path = getattr(family, container)(case / f"a.{suffix}", tiles)
        what = f"case {number} of seed {seed}: {kind} in {container}, {', '.join(leak.__name__ for leak in chosen)}"
        lines = _attempt(path, case / "project", honest[kind, container])
        findings += [f"{what}: {line}" for line in lines]
        if not lines:
            shutil.rmtree(case)
    return findings


def _with(tile: bytes, chosen: list[leaks.Leak], draw: random.Random) -> bytes:
    for leak in chosen:
        secret = TEXT * draw.choice([1, 1, 40])
        if leak is not leaks.adobe_fields and draw.random() < 0.5:
            secret += leaks.label_jpeg()
        tile = leak(tile, secret)
    return tile


def _attempt(path: Path, project: Path, honest: dict[str, bytes]) -> list[str]:
    try:
        store = ingest(path, project).store
    except GemslideError as error:
        return [f"{type(error).__name__}: {error}"]
    return scan(project, planted()) + (["other bytes than the honest twin's"] if shards(store) != honest else [])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("error")
    folder = Path(tempfile.mkdtemp(prefix="gemslide-leaks-"))
    findings = run(given.times, given.seed, folder)
    print("\n".join([*findings, f"{given.times} leaky slides, seed {given.seed}: {len(findings)} findings"]))
    if findings:
        print(f"kept in {folder}")
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
