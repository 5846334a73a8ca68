"""The verbs that plan, embed and learn from features, on one GPU, in less than five minutes.

    .venv/bin/python -m benchmarks.gpu_verbs [--only PART …] [--depth 110] [--side-px 1024]

    oracle      ResNet-110-v2 in fp32 with fast kernels and in bf16, `strategy = "auto"`: `gemslide plan --calibrate`,
                then `gemslide plan audit --sample 6`: seconds and bytes, predicted and measured
    encoder     an encoder of the kind `timm` (ResNet-18, random weights) by `gemslide encoder add`, `gemslide embed`
                and `gemslide check-invariance`: the features on the GPU beside those on the CPU
    slides      `gemslide train` of a slide-level model (ABMIL, transformer) twice on the GPU and once on the CPU:
                whether both runs on the GPU give the same weights, and how far those are from the CPU's

Every step is a command in a process of its own. A part that fails is reported, the exit code is 1, and the others still
run. Prints JSON lines; the committed ones are in benchmarks/results/gpu_verbs.jsonl.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from benchmarks.machine import circumstances
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.project import Project
from pipeline.settings.config import IngestConfig
from pipeline.store.layers.features import read_features
from tests.pipeline.slide_level.planted_cohort import SURVIVAL, plant, write_recipe
from tests.small_trained_project import make_slide

Line = dict[str, Any]
LIMIT_S = 150
RECIPE = """
[data]
tile_set = "none"
[model]
depth = {depth}
num_classes = 2
[parallel]
strategy = "auto"
num_microbatches = 4
[train]
steps = 1
{train}
"""
SETTINGS = {
    "fp32, fast kernels": "deterministic = false",
    "bf16, channels_last": 'precision = "bf16"\nchannels_last = true\ndeterministic = false',
}
ROW = """
kind = "timm"
source = "resnet18"
weights = "resnet18.safetensors"
sha256 = "{sha256}"
tile_px = 64
mpp = 0.5
mean = [0.485, 0.456, 0.406]
std = [0.229, 0.224, 0.225]
pool = "mean"
dims = 512
licence = "CC0-1.0"
citation = "Random weights"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], choices=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--depth", type=int, default=110)
    parser.add_argument("--side-px", type=int, default=1024)
    options = parser.parse_args()
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none: the program itself was tried"
    conditions = {"benchmark": "gpu_verbs", "gpu": gpu, **circumstances("benchmarks.gpu_verbs")}
    failed = False
    for name, part in PARTS.items():
        if options.only and name not in options.only:
            continue
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder:
            try:
                for line in part(Path(folder), options):
                    seconds = round(time.perf_counter() - start, 1)
                    print(
                        json.dumps({"part": name, **line, "seconds of the part so far": seconds, **conditions}),
                        flush=True,
                    )
            except subprocess.SubprocessError as error:
                failed = True
                said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or ""
                print(json.dumps({"part": name, "failed": f"{error!s:.500}", "said": str(said)[-3000:], **conditions}))
    sys.exit(1 if failed else 0)


def _oracle(folder: Path, options: argparse.Namespace) -> Iterator[Line]:
    for name, train in SETTINGS.items():
        recipe = folder / "recipe.toml"
        recipe.write_text(RECIPE.format(depth=options.depth, train=train), encoding="utf-8")
        asked = [recipe, "--project", folder, "--tile-px", options.side_px, "--world", 1, "--json"]
        rows = _gemslide("plan", *asked, "--calibrate")
        yield {"setting": name, "network": f"ResNet-{options.depth}-v2, {options.side_px} px", "chosen": rows[0]}
        for run in _gemslide("plan", "audit", *asked, "--sample", 6):
            yield {"setting": name, **run}


def _encoder(folder: Path, _: argparse.Namespace) -> Iterator[Line]:
    import timm

    torch.manual_seed(0)
    project = _with_slide(folder)
    weights = project.root / "encoders" / "resnet18.safetensors"
    weights.parent.mkdir()
    save_file(timm.create_model("resnet18", pretrained=False, num_classes=0).state_dict(), weights)
    row = folder / "random.toml"
    row.write_text(ROW.format(sha256=hashlib.sha256(weights.read_bytes()).hexdigest()), encoding="utf-8")
    added = _gemslide("encoder", "add", "random", "--from", row, "--project", project.root, "--json")
    yield {"added": added[-1]}
    encoder_id = added[-1]["encoder_id"]
    features = {}
    for device in ("cpu", _device()):
        (line,) = _gemslide("embed", "random", "S-1", "--project", project.root, "--devices", device, "--json")
        features[device] = read_features(project.store_path("S-1"), encoder_id).values_nd.astype(np.float64)
        yield {"embedded on": device, "tiles": len(features[device]), "report": line}
        if device == "cpu":
            (project.store_path("S-1") / "features" / encoder_id).rename(folder / "of the CPU")
    difference = np.abs(features["cpu"] - features[_device()]).max()
    yield {"largest difference of a feature": float(difference), "largest feature": float(features["cpu"].max())}
    yield {"invariance": _gemslide("check-invariance", "random", "S-1", "--project", project.root, "--json")}


def _slides(folder: Path, _: argparse.Namespace) -> Iterator[Line]:
    project = _with_slide(folder)
    for model in ("abmil", "transformer"):
        weights = {}
        for run, on_cpu in (("GPU", False), ("GPU again", False), ("CPU", True)):
            planted = plant(project.store_path("S-1"), folder / f"{model} {run}")
            recipe = write_recipe(planted.project.root, targets=SURVIVAL, model=model, epochs=5)
            start = time.perf_counter()
            (*_, done) = _gemslide("train", recipe, "--project", planted.project.root, "--json", on_cpu=on_cpu)
            last = re.findall(r"\S+-[0-9a-f]{8}", done["message"])[-1]
            seconds = round(time.perf_counter() - start, 1)
            weights[run] = load_file(planted.project.model_path(last) / "model.safetensors")
            yield {"model": model, "run": run, "seconds": seconds}
        equal = all(np.array_equal(weights["GPU"][name], weights["GPU again"][name]) for name in weights["GPU"])
        far = max(float(np.abs(weights["GPU"][name] - weights["CPU"][name]).max()) for name in weights["CPU"])
        yield {"model": model, "both runs on the GPU are equal": equal, "largest difference from the CPU": far}


def _with_slide(folder: Path) -> Project:
    project = Project(folder / "project")
    project.root.mkdir()
    make_slide(folder / "S-1.tiff", 1)
    ingest_slide(IngestRequest(folder / "S-1.tiff", "S-1"), project, IngestConfig())
    return project


def _device() -> str:
    return "cuda:0" if torch.cuda.is_available() else "cpu"


def _gemslide(*arguments: object, on_cpu: bool = False) -> list[Line]:
    """The JSON lines of a command.

    Raises:
        subprocess.SubprocessError: it failed, or took too long.
    """
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *map(str, arguments)]
    env = {**os.environ, **({"CUDA_VISIBLE_DEVICES": ""} if on_cpu else {})}
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=env, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, f"{done.stderr}\n{done.stdout}")
    return [json.loads(line) for line in done.stdout.splitlines()]


PARTS = {"oracle": _oracle, "encoder": _encoder, "slides": _slides}


if __name__ == "__main__":
    main()
