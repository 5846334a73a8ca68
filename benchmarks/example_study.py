"""A whole study as an example: train, ingest, check, predict, read, report, sign, anchor, export, verify.

    GEMSLIDE_TEST_DATA=… .venv/bin/python -m benchmarks.example_study [--folder DIR] [--epochs 8]

A small ResNet-v2 is trained on the mosaics `train_0` to `train_2`. The study's slides are blocks of 6 × 5 cells cut
from `test_10` and `test_12`, with the mosaics' outlines; in addition a file that is no slide, a slide of bare glass,
and one to be excluded. A block is labelled AC (adenocarcinoma) if a tenth of it is AC, otherwise by its most frequent
class. The two readers are simulated: they see the label with random errors, fewer with assistance. Nothing here is
clinical evidence, and the report says so at the top.

Prints the paths of all outputs, and the results as a JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from shapely import affinity
from shapely.geometry import box, mapping, shape

from benchmarks.machine import circumstances
from pipeline.cohort.manifest import load_cohort
from pipeline.ledger import open_ledger
from pipeline.models.launch import train
from pipeline.project import Project
from pipeline.settings.config import TileConfig
from pipeline.study import (
    Meaning,
    Readings,
    SigningKey,
    Study,
    begun_study,
    countersign,
    make_anchor,
    new_key,
    open_key,
    sign_report,
)
from pipeline.study.reading.order import lay_out
from pipeline.tiles.tile import make_tile_table
from tests.crc_project import make_tile_set
from tests.pipeline.make import halved, write_jpeg_pyramid

CELL_PX, COLUMNS, ROWS = 224, 6, 5
MOSAICS = ("test_10", "test_12")
CLASSES = ("AC", "H", "S", "T", "V")
STUDY = "example"
SHARE_OF_TUMOUR = 0.1
RECIPE = """
[data]
tile_set = "train"
balance = true
[model]
depth = 11
num_classes = 5
[parallel]
strategy = "single"
num_stages = 1
num_microbatches = 1
microbatch_size = 16
[optim]
lr = 0.05
warmup_steps = 40
weight_decay = 5e-4
[train]
epochs = {epochs}
threads = 2
[augment]
brightness = 0.1
contrast = 0.2
stain = 0.2
"""
PROTOCOL = """
[infer]
views = "flips"

[patience]
lease_s = 30
backoff_s = 1

[analysis]
slide_score = "top_decile"
cost_per_hour = 0.4

[[endpoints]]
name = "tumour by slide"
measure = "auc"
level = "slide"
model = "{model}"
class_name = "AC"
at_least = 0.7
kind = "primary"

[[endpoints]]
name = "sensitivity for tumour"
measure = "sensitivity"
level = "slide"
model = "{model}"
class_name = "AC"

[[endpoints]]
name = "tissue by tile"
measure = "balanced_accuracy"
level = "tile"
tile_set = "blocks"
model = "{model}"
at_least = 0.5

[reading]
readers = ["reader-1", "reader-2"]
arms = ["unassisted", "assisted"]
washout_days = 0
adjudicators = ["reader-3"]
note = "The readers are simulated, and blocks of two mosaics stand for patients. An example, and no clinical evidence."

[[reading.questions]]
name = "tumour"
ask = "Is there adenocarcinoma on the slide?"
kind = "yes_no"
class_name = "AC"

[[reading.questions]]
name = "certainty"
ask = "How certain are you that there is? (0 to 100)"
kind = "score"
class_name = "AC"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="keep everything there")
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    data = Path(os.environ["GEMSLIDE_TEST_DATA"]) / "crc-mosaic"
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gemslide-example-study-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(json.dumps({**carry_out(folder, data, options.epochs), **circumstances("benchmarks.example_study")}))


def carry_out(folder: Path, data: Path, epochs: int) -> dict[str, Any]:
    """Carry out the study from its model to its export."""
    project = Project(folder / "project")
    manifest = cut_blocks(folder / "slides", data)
    model_id = trained(project, data, epochs)
    gemslide("study", "init", STUDY, "--cohort", manifest, "--model", model_id, "--project", project.root,
             "--title", "Tumour on colorectal tissue: an example study",
             "--question", "Does the model tell blocks with adenocarcinoma from the others?")  # fmt: skip
    protocol = project.root / "studies" / STUDY / "study.toml"
    protocol.write_text(completed(protocol.read_text(), model_id))
    gemslide("study", "run", STUDY, "--project", project.root, may_fail=True)  # one file is not a slide
    make_tile_table(project, "blocks", blocks_config(), cohort=load_cohort(manifest.with_name("outlined.csv")))
    with open_ledger(project) as ledger:
        study = begun_study(project, STUDY, ledger)
        read(study)
        report = json.loads(gemslide("study", "report", STUDY, "--project", project.root, "--json"))
        sign(study, Path(report["pdf"]), folder / "keys")
    gemslide("study", "export", STUDY, "--out", folder / "export", "--key", folder / "keys/pseudonyms",
             "--result", "predictions.csv", "--project", project.root)  # fmt: skip
    anchors = ["--anchor", folder / "anchors", "--trust", folder / "keys/ada.pub", "--trust", folder / "keys/bob.pub"]
    gemslide("study", "verify", STUDY, "--project", project.root, *anchors)
    gemslide("study", "reproduce", STUDY, "--slides", "10%", "--project", project.root)
    return {
        "benchmark": "example_study",
        "report": report["pdf"],
        "export": str(folder / "export"),
        "status": status(project),
    }


def completed(text: str, model_id: str) -> str:
    """Complete the protocol written by `init` with the study's questions; our sections replace its own."""
    kept = text.partition("[infer]")[0] if "[infer]" in text else text
    return kept + PROTOCOL.format(model=model_id)


def gemslide(*arguments: object, may_fail: bool = False) -> str:
    """Run a command as typed by a user. Return its output."""
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *map(str, arguments)]
    print(f"gemslide {' '.join(map(str, arguments))}", file=sys.stderr)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=not may_fail)
    print(done.stdout, file=sys.stderr)
    return done.stdout


def status(project: Project) -> dict[str, int]:
    status_json = json.loads(gemslide("study", "status", STUDY, "--project", project.root, "--json"))
    return {state: number for state, number in status_json["slides"].items() if number}


def trained(project: Project, data: Path, epochs: int) -> str:
    """Train a model on the mosaics, with the epoch chosen on `train_2`, or reuse an existing one. Return its id."""
    if project.models_dir.is_dir():
        return sorted(path.name for path in project.models_dir.iterdir() if path.name[0] != ".")[0]
    mosaics = sorted(data.glob("train_*.tiff"))
    tiles = TileConfig(tile_px=56, mpp=2.0, overlap_px=28, min_label_fraction=0.9, classes=CLASSES)
    make_tile_set(project, "train", mosaics, lambda slide_id: "val" if slide_id == "train_2" else "train", tiles)
    recipe = project.root / "recipe.toml"
    recipe.write_text(RECIPE.format(epochs=epochs))
    return train(recipe, project.root, 1).best


def blocks_config() -> TileConfig:
    return TileConfig(tile_px=56, mpp=2.0, min_label_fraction=0.9, classes=CLASSES)


def cut_blocks(folder: Path, data: Path) -> Path:
    """Cut slides of blocks of cells, each with its outlines and its label. Return the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path,slide_id,patient_id,site,scanner,annotations,label,exclude"]
    for scanner, mosaic in enumerate(MOSAICS, start=1):
        rgb = tifffile.imread(data / f"{mosaic}.tiff", key=0)
        outlines = json.loads((data / f"{mosaic}.geojson").read_text())["features"]
        for number, (x_px0, y_px0) in enumerate(corners(rgb), start=1):
            name = f"block-{scanner}{number:02d}"
            label = write_block(folder / f"{name}.tiff", rgb, outlines, x_px0, y_px0)
            site = "A" if number % 2 else "B"
            rows.append(f"{name}.tiff,{name},patient-{name},{site},Scanner {scanner},{name}.geojson,{label},")
    (folder / "outlined.csv").write_text("\n".join(rows) + "\n")
    write_jpeg_pyramid(folder / "glass.tiff", halved(np.full((1120, 1344, 3), 242, np.uint8), 1))
    (folder / "cut-off.tiff").write_bytes((folder / "block-101.tiff").read_bytes()[:3000])
    rows.append("glass.tiff,glass,patient-glass,A,Scanner 1,,H,")
    rows.append("cut-off.tiff,cut-off,patient-cut-off,B,Scanner 2,,H,")
    rows.append("block-101.tiff,scanned-again,patient-block-101,A,Scanner 1,,AC,the same glass was scanned twice")
    (folder / "cohort.csv").write_text("\n".join(rows) + "\n")
    return folder / "cohort.csv"


def corners(rgb: NDArray[np.uint8]) -> list[tuple[int, int]]:
    width, height = COLUMNS * CELL_PX, ROWS * CELL_PX
    return [
        (x_px0, y_px0)
        for y_px0 in range(0, rgb.shape[0] - height + 1, height)
        for x_px0 in range(0, rgb.shape[1] - width + 1, width)
    ]


def write_block(path: Path, rgb: NDArray[np.uint8], outlines: list[dict[str, Any]], x_px0: int, y_px0: int) -> str:
    """Write a block as a slide, with the part of the outlines inside it. Return its label."""
    width, height = COLUMNS * CELL_PX, ROWS * CELL_PX
    write_jpeg_pyramid(path, halved(rgb[y_px0 : y_px0 + height, x_px0 : x_px0 + width], 1))
    frame = box(x_px0, y_px0, x_px0 + width, y_px0 + height)
    features, areas = [], dict.fromkeys(CLASSES, 0.0)
    for feature in outlines:
        inside = shape(feature["geometry"]).intersection(frame)
        if inside.area <= 0:
            continue
        areas[feature["properties"]["classification"]["name"]] += inside.area
        moved = affinity.translate(inside, -x_px0, -y_px0)
        features.append({**feature, "geometry": mapping(moved)})
    path.with_suffix(".geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    if areas["AC"] >= SHARE_OF_TUMOUR * frame.area:
        return "AC"
    return max(areas, key=lambda name: areas[name])


def read(study: Study) -> None:
    """Let two simulated readers read every slide that is done, with and without assistance."""
    config = study.protocol.reading
    assert config is not None
    readings = Readings(study.ledger, STUDY, config)
    done = [row.slide_id for row in study.ledger.slides(STUDY, state="done", limit=1000)]
    manifest = study.folder / study.protocol.study.cohort
    labels = {entry.slide_id: entry.label for entry in load_cohort(manifest).entries}
    readings.begin(lay_out(config, done, study.protocol.study.seed), actor="example")
    drawn = np.random.default_rng(1)
    for reader in config.readers:
        while row := readings.next_of(reader):
            at = (reader, row.session, row.position)
            noise = 22.0 if row.arm == "assisted" else 34.0
            score = float(np.clip(drawn.normal(70 if labels[row.slide_id] == "AC" else 30, noise), 0, 100).round(1))
            readings.start(*at)
            readings.give(*at, "tumour", score >= 50)
            readings.give(*at, "certainty", score)
            readings.sign(*at, seconds=float(drawn.uniform(20, 90)))
    for arm in config.arms:
        readings.adjudicate("tumour", arm, actor="example")


def sign(study: Study, report: Path, keys: Path) -> None:
    """Sign the report with two people, and make an anchor of the log."""
    keys.mkdir(parents=True, exist_ok=True)
    ada, bob = (_key(keys / name) for name in ("ada", "bob"))
    meanings: list[tuple[SigningKey, Meaning, str]] = [
        (ada, "authored", "Ada Example"),
        (bob, "approved", "Bob Example"),
    ]
    for key, meaning, name in meanings:
        sign_report(study.ledger, STUDY, report, key, meaning=meaning, name=name, actor="example")
    anchor = make_anchor(study.ledger, STUDY, ada, keys.parent / "anchors", actor="example")
    countersign(study.ledger, anchor, bob)


def _key(path: Path) -> SigningKey:
    passphrase = f"example passphrase of {path.name}"
    if not path.exists():
        new_key(path, passphrase)
    return open_key(path, passphrase)


if __name__ == "__main__":
    main()
