"""Prediction of a slide by us and by TIAToolbox's PatchPredictor, end to end, on the CPU, in turns.

    .venv/bin/python -m benchmarks.others              # once: TIAToolbox, in its own environment
    .venv/bin/python -m benchmarks.infer_tiatoolbox [--rounds 7] [--slide-px 12288] [--workers N …]

The same ResNet-18 with the same weights predicts all tiles of 224 px of the same slide file, 32 at a time. Each round
runs TIAToolbox, us in fp32 and us in bf16 in fresh processes and varying order; a ratio is the median over rounds of
the ratios of tiles per second. Their time is from the slide file to probabilities on disk (others_predict.py). Ours is
`infer_slide`, from a store to published results; "with ingest" adds the slide file's ingest, since TIAToolbox reads the
file itself. Importing and building the network are excluded on both sides, and reported. TIAToolbox has no bf16. It
runs with the number of loader workers that was fastest in a first trial.

The network has random weights, normalisation statistics from the slide's tiles, as after training, and a head along the
direction in which the tiles' features differ most. Probabilities are compared tile by tile, as float32 before we store
them with 16 bits. The line gives the number of tiles on which both decoded the same pixels; only those are compared.
TIAToolbox also predicts tiles that reach over the slide's edge; they count for its tiles per second, and are not
compared.

Prints one JSON line; the committed ones are in benchmarks/results/infer_tiatoolbox.jsonl.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import others
from benchmarks.infer import slide_of
from benchmarks.ingest import settle
from benchmarks.machine import circumstances
from benchmarks.networks import MEAN, STD, resnet18, torchvision_name
from pipeline.grid import tile_grid
from pipeline.store.reading.reader import StoreReader
from training.data.augment import to_input

TILE_PX, CLASSES = 224, 2
SEED, SEEN_TILES, SPREAD = 0, 192, 2.0
"""Seed; tiles for the network's statistics; standard deviation of the difference of its two logits."""
WORKERS = (0, 1, 2)
OURS = ("fp32", "bf16")
THEIRS = "TIAToolbox"
ROOT = Path(__file__).parents[1]
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16")
"""Linux's names of processor features for bf16; the last one is for ARM."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slide-px", type=int, default=12_288)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS), help="loader workers for TIAToolbox")
    parser.add_argument("--others", type=Path, default=others.FOLDER, help="where benchmarks.others installed it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        work = Work(Path(folder), options.slide_px, options.others)
        by_workers = work.by_workers(options.workers)
        workers = min(by_workers, key=lambda number: min(by_workers[number]))
        rounds = [work.round(number, workers) for number in range(options.rounds)]
        line = {
            "benchmark": "infer_tiatoolbox",
            "work": "ResNet-18, 224 px",
            "device": "cpu",
            "slide_px": options.slide_px,
            **figures(rounds),
            **work.agreement(),
            "TIAToolbox's loader workers": workers,
            "TIAToolbox's seconds by loader workers": by_workers,
            "rounds": options.rounds,
            "bf16 of the processor": bf16_flags(),
        }
    print(json.dumps({**line, **circumstances("benchmarks.infer_tiatoolbox")}), flush=True)


class Work:
    """A slide, a network, and its contenders."""

    def __init__(self, folder: Path, slide_px: int, others_folder: Path) -> None:
        self._folder, self._others = folder, others_folder
        project = slide_of(folder, slide_px)
        self._slide, self._weights = project.root / "slide.svs", folder / "weights.pt"
        self._reader = StoreReader(project.store_path("S-1"))
        grid = tile_grid(self._reader.size_wh_px0, self._reader.mpp0, tile_px=TILE_PX, mpp=self._reader.mpp0)
        self._corners_xy = grid.corners_xy0
        state = network_of(self._some_tiles()).state_dict()
        torch.save({torchvision_name(key): value for key, value in state.items()}, self._weights)
        self._furthest: dict[str, float] = {}
        self._probabilities: NDArray[np.float32] | None = None
        self._same_pixels: NDArray[np.bool_] | None = None

    def by_workers(self, candidates: list[int]) -> dict[int, list[float]]:
        """TIAToolbox's seconds per number of loader workers, twice if there is a choice. The first run is a warm-up."""
        self._theirs(candidates[-1], pixels=True)
        self._same_pixels = self._compare_pixels()
        turns = [candidates, candidates[::-1]] if len(candidates) > 1 else [candidates]
        seconds: dict[int, list[float]] = {number: [] for number in candidates}
        for number in (number for turn in turns for number in turn):
            seconds[number].append(self._theirs(number)["seconds"])
        return seconds

    def round(self, number: int, workers: int) -> dict[str, dict[str, Any]]:
        """Figures of the three contenders by name; compares their results."""
        turns: dict[str, Callable[[], dict[str, Any]]] = {
            THEIRS: lambda: self._theirs(workers),
            "fp32": lambda: self._ours("fp32"),
            "bf16": lambda: self._ours("bf16"),
        }
        names = list(turns)
        order = names[number % 3 :] + names[: number % 3]
        results = {name: turns[name]() for name in (order if number % 2 == 0 else order[::-1])}
        theirs = self._load(THEIRS)
        for precision in OURS:
            apart = np.abs(self._load(precision) - theirs)[self._same_pixels]
            self._furthest[precision] = max(float(apart.max()), self._furthest.get(precision, 0.0))
        self._probabilities = theirs[:, 1]
        seconds = {name: result["seconds"] for name, result in results.items()}
        print(f"round {number + 1}: seconds {seconds}", file=sys.stderr, flush=True)
        return results

    def agreement(self) -> dict[str, Any]:
        """Differences between probabilities, in the worst round."""
        assert self._probabilities is not None
        assert self._same_pixels is not None
        apart = {name: float(f"{furthest:.3g}") for name, furthest in self._furthest.items()}
        shares = np.quantile(self._probabilities, (0, 0.1, 0.25, 0.5, 0.75, 0.9, 1))
        return {
            "largest difference of probabilities": apart,
            "tiles compared": int(self._same_pixels.sum()),
            "tiles of other pixels": int((~self._same_pixels).sum()),
            "probabilities, 0, 10, 25, 50, 75, 90, 100 %": [round(float(share), 3) for share in shares],
        }

    def _theirs(self, workers: int, *, pixels: bool = False) -> dict[str, Any]:
        settle()
        out = self._file(THEIRS)
        result = others.predict(
            self._slide, self._weights, out, loader_workers=workers, pixels=pixels, folder=self._others
        )
        if isinstance(result, str):
            raise SystemExit(f"TIAToolbox: {result}")
        return result

    def _ours(self, precision: str) -> dict[str, Any]:
        settle()
        words = [
            self._slide,
            self._weights,
            self._file(precision),
            "--mpp",
            self._reader.mpp0,
            "--precision",
            precision,
        ]
        command = [sys.executable, "-m", "benchmarks.infer_tiatoolbox_worker", *map(str, words)]
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        result: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
        return result

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.npz"

    def _load(self, name: str, key: str = "probabilities") -> NDArray[Any]:
        """Results of one contender for our tiles, in the order of the grid.

        Raises:
            SystemExit: a tile is missing, or a tile is neither ours nor at the edge.
        """
        with np.load(self._file(name)) as stored:
            at = {(int(x), int(y)): index for index, (x, y) in enumerate(stored["corners_xy"])}
            values = stored[key]
        ours = [(int(x), int(y)) for x, y in self._corners_xy]
        width, height = self._reader.size_wh_px0
        more = [xy for xy in at.keys() - set(ours) if xy[0] + TILE_PX <= width and xy[1] + TILE_PX <= height]
        if more or set(ours) - at.keys():
            raise SystemExit(f"{name}: other tiles. Missing {sorted(set(ours) - at.keys())[:3]}, more {more[:3]}.")
        return np.asarray(values[[at[xy] for xy in ours]])

    def _compare_pixels(self) -> NDArray[np.bool_]:
        theirs = self._load(THEIRS, "crc32")
        ours = (self._reader.read_square(0, int(x), int(y), TILE_PX, TILE_PX) for x, y in self._corners_xy)
        return np.asarray(np.array([zlib.crc32(tile.tobytes()) for tile in ours]) == theirs)

    def _some_tiles(self) -> torch.Tensor:
        chosen = self._corners_xy[:: max(1, len(self._corners_xy) // SEEN_TILES)]
        tiles = [self._reader.read_square(0, int(x), int(y), TILE_PX, TILE_PX) for x, y in chosen]
        return to_input(np.stack(tiles), MEAN, STD)


def network_of(tiles_nchw: torch.Tensor) -> nn.Sequential:
    """ResNet-18 that tells these tiles apart, with probabilities spread between 0 and 1."""
    torch.manual_seed(SEED)
    network = resnet18(CLASSES)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    with torch.no_grad():
        for norm in norms:
            norm.weight.uniform_(0.5, 1.5)
            norm.bias.normal_(0, 0.2)
            norm.momentum = None  # the mean of all batches
        network.train()
        for batch in torch.split(tiles_nchw[torch.randperm(len(tiles_nchw))], 64):
            network(batch)
        network.eval()
        before_last = nn.Sequential(*list(network)[:-1], *list(network[-1].children())[:-1])
        features = torch.cat([before_last(batch) for batch in torch.split(tiles_nchw, 64)])
        centred = features - features.mean(0)
        direction = torch.linalg.svd(centred, full_matrices=False).Vh[0]
        along = SPREAD / 2 * direction / (centred @ direction).std()
        last = network.get_submodule("9.2")
        assert isinstance(last, nn.Linear)
        last.weight.copy_(torch.stack([-along, along]))
        last.bias.copy_(-last.weight @ features.mean(0))
    return network


def figures(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Medians over rounds, and the values of each round."""
    ratios: dict[str, list[float]] = {}
    speeds: dict[str, list[float]] = {}
    for round_results in rounds:
        theirs = round_results[THEIRS]["tiles"] / round_results[THEIRS]["seconds"]
        speeds.setdefault(THEIRS, []).append(theirs)
        for precision in OURS:
            ours = round_results[precision]
            for more, seconds in (("", 0.0), (" with ingest", ours["ingest_seconds"])):
                speed = ours["tiles"] / (ours["seconds"] + seconds)
                speeds.setdefault(precision + more, []).append(speed)
                ratios.setdefault(f"ours in {precision}{more} / TIAToolbox", []).append(speed / theirs)
    names = (THEIRS, *OURS)
    return {
        **{name: round(statistics.median(values), 3) for name, values in ratios.items()},
        "tiles/s": {name: round(statistics.median(values), 1) for name, values in speeds.items()},
        "ratios, all rounds": {name: [round(value, 3) for value in values] for name, values in ratios.items()},
        "tiles/s, all rounds": {name: [round(value, 1) for value in values] for name, values in speeds.items()},
        "tiles": {name: rounds[0][name]["tiles"] for name in names},
        "seconds": _medians(rounds, names, "seconds"),
        "seconds of ingest": _medians(rounds, OURS, "ingest_seconds"),
        "seconds of importing": _medians(rounds, names, "import_seconds"),
        "seconds of building the network": _medians(rounds, names, "build_seconds"),
        "peak memory of the process, MiB": {name: rounds[-1][name]["peak_mib"] for name in names},
        "parts of our seconds, last round": {name: rounds[-1][name]["parts"] for name in OURS},
        "TIAToolbox's versions": rounds[0][THEIRS]["versions"],
    }


def _medians(rounds: list[dict[str, dict[str, Any]]], names: tuple[str, ...], key: str) -> dict[str, float]:
    return {name: round(statistics.median(round_results[name][key] for round_results in rounds), 2) for name in names}


def bf16_flags() -> list[str]:
    """Processor flags for bf16 of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    flags = next((line.split(":")[1].split() for line in lines if line.lower().startswith(("flags", "features"))), [])
    return [flag for flag in BF16_FLAGS if flag in flags]


if __name__ == "__main__":
    main()
