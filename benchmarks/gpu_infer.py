"""`benchmarks.infer` on a GPU: ResNet-110-v2 at 1024 px, ResNet-50 and ViT-L/16 (random weights) at 224 px.

    .venv/bin/python -m benchmarks.gpu_infer [--rounds 7] [--only WORD …]

Ends with a message if torch finds no GPU. Prints a JSON line per network, as `benchmarks.infer` does. Not run yet:
there is no file of results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

from benchmarks.infer_work import Work, measure, slide_of
from benchmarks.machine import circumstances
from benchmarks.networks import resnet50, resnet110, vit_large

WORKS = tuple(
    Work(f"{name}, {tile_px} px, {precision}", network, tile_px, slide_px, precision, "cuda:0")
    for name, network, tile_px, slide_px in (
        ("ResNet-110-v2", resnet110, 1024, 16_384),
        ("ResNet-50", resnet50, 224, 24_576),
        ("ViT-L/16", vit_large, 224, 24_576),
    )
    for precision in ("fp32", "bf16")
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="networks whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU here: nothing was measured")
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
        for work in WORKS:
            if not options.only or any(word in work.name for word in options.only):
                line = measure(work, slide_of(Path(folder), work.slide_px), options.rounds)
                gpu = torch.cuda.get_device_name(0)
                print(json.dumps({**line, "gpu": gpu, **circumstances("benchmarks.gpu_infer")}), flush=True)


if __name__ == "__main__":
    main()
