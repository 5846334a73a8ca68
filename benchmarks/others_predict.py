"""A slide through TIAToolbox's PatchPredictor, timed. Runs under TIAToolbox's own Python (see others.py).

    FOLDER/tiatoolbox/bin/python -I benchmarks/others_predict.py SLIDE WEIGHTS.pt OUT.npz [--workers N] [--pixels]

WEIGHTS.pt is the state dict of torchvision's ResNet-18 with two classes. It is loaded into TIAToolbox's own class for
such networks; tiles are normalised by the mean and standard deviation of ImageNet, as by torchvision's transforms. The
slide is predicted at its full resolution, in tiles of 224 px that do not overlap, without a mask, on the CPU;
TIAToolbox computes in float32 whatever the model is cast to. `seconds` starts before the slide is opened and ends when
the results, including probabilities, are on disk as zarr, the minimum that TIAToolbox writes for a slide.
`import_seconds` and `build_seconds` (the network with its weights) come before it.

TIAToolbox also predicts tiles that extend beyond the right and bottom edge, padded with white.

No torchvision is built for torch 2.13 without CUDA, so its compiled operators are missing here. Importing it looks up
one of them, `nms`, by name; it is declared without code, since nothing here ever calls it.

Writes `corners_xy` (level 0) and `probabilities` of all tiles into OUT.npz, with --pixels also a `crc32` of each tile's
pixels. Prints one JSON line: `name`, `version`, `tiles`, `seconds`, `import_seconds`, `build_seconds`, `workers`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import zlib
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

TILE_PX, BATCH_SIZE, CLASSES = 224, 32, 2
DECLARED: list[Any] = []
"""Declared operators, which torch drops together with the library that declared them."""
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
PACKAGES = ("tiatoolbox", "torch", "torchvision", "openslide-python", "openslide-bin", "numpy", "zarr", "dask")


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        import_engine()
        return
    options = _options()
    clock = [time.perf_counter()]
    import_engine()
    clock.append(time.perf_counter())
    engine = build(options.weights, options.workers)
    clock.append(time.perf_counter())
    with tempfile.TemporaryDirectory() as folder:
        results = predict(engine, options.slide, Path(folder) / "results")
        clock.append(time.perf_counter())
        results_read = read_results(results)
    if options.pixels:
        results_read["crc32"] = checksums(engine)
    np.savez(options.out, **results_read)
    seconds = [round(end - start, 3) for start, end in pairwise(clock)]
    line = {
        "name": "tiatoolbox",
        "version": version("tiatoolbox"),
        "tiles": len(results_read["probabilities"]),
        "seconds": seconds[2],
        "import_seconds": seconds[0],
        "build_seconds": seconds[1],
        "workers": options.workers,
        "batch": BATCH_SIZE,
        "cores": len(os.sched_getaffinity(0)),
        "peak_mib": peak_mib(),
        "versions": {package: version(package) for package in PACKAGES},
    }
    print(json.dumps(line))


def import_engine() -> None:
    """Import everything that is needed, so that no later step imports anything large."""
    import torch

    operators: Any = torch.library
    library = operators.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    DECLARED.append(library)

    import tiatoolbox.models.engine.patch_predictor  # noqa: F401
    import torchvision.models  # noqa: F401


def build(weights: Path, workers: int) -> Any:
    """Build the engine with the network."""
    import torch
    import torchvision
    from tiatoolbox.models.architecture.vanilla import CNNModel
    from tiatoolbox.models.dataset.classification import _TorchPreprocCaller
    from tiatoolbox.models.engine.patch_predictor import PatchPredictor
    from torchvision import transforms

    whole = torchvision.models.resnet18(num_classes=CLASSES)
    whole.load_state_dict(torch.load(weights))
    model = CNNModel("resnet18", num_classes=CLASSES)
    model.feat_extract.load_state_dict(torch.nn.Sequential(*list(whole.children())[:-2]).state_dict())
    model.classifier.load_state_dict(whole.fc.state_dict())
    model.preproc_func = _TorchPreprocCaller([transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    return PatchPredictor(model, batch_size=BATCH_SIZE, num_workers=workers, device="cpu", verbose=False)


def predict(engine: Any, slide: Path, folder: Path) -> Path:
    """Predict a slide; return the path of its results."""
    from tiatoolbox.models.engine.io_config import IOPatchPredictorConfig

    ioconfig = IOPatchPredictorConfig(
        patch_input_shape=[TILE_PX, TILE_PX],
        stride_shape=[TILE_PX, TILE_PX],
        input_resolutions=[{"resolution": 1.0, "units": "baseline"}],
    )
    written: dict[Path, Path] = engine.run(
        [slide],
        patch_mode=False,
        ioconfig=ioconfig,
        auto_get_mask=False,
        return_probabilities=True,
        output_type="zarr",
        save_dir=folder,
    )
    return written[slide]


def read_results(results: Path) -> dict[str, Any]:
    """Corners and probabilities of all tiles."""
    import zarr

    group: Any = zarr.open(results, mode="r")
    return {"corners_xy": group["coordinates"][:, :2].astype(np.int64), "probabilities": group["probabilities"][:]}


def checksums(engine: Any) -> Any:
    """CRC-32 of every tile as its loader reads it, in the order of the results."""
    tiles = engine.dataloader.dataset
    tiles.preproc_func = None
    return np.array([zlib.crc32(tiles[index]["image"].tobytes()) for index in range(len(tiles))])


def peak_mib() -> int | None:
    """Peak memory of this process without its loader workers. Not ru_maxrss, which starts at the parent's value."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("slide", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pixels", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
