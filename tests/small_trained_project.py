"""A project small enough for every test run: real files, all stages, seconds.

Slides are not square and every tile differs. "warm" tissue is red-brown, "cold" tissue blue-violet, on light glass.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import tifffile

from pipeline.cohort.manifest import load_cohort
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.models.launch import train
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TileConfig, TissueConfig
from pipeline.tiles.tile import make_tile_table

SIZE_WH_PX0 = (1100, 820)
CELL_PX0 = 64
MPP0 = 0.5
WARM, COLD = (170, 90, 60), (110, 100, 180)
TISSUE = TissueConfig(mpp=4.0, close_um=0, max_speck_um2=0, min_object_um2=0, max_hole_um2=0)
TISSUE_TOML = "\n".join(["[ingest.tissue]", *(f"{key} = {value}" for key, value in TISSUE), ""])
"""The same as TOML, for a project's settings."""
TILES = TileConfig(tile_px=32, mpp=1.0, classes=("cold", "warm"), note="Labels derive from colour.")
RECIPE = """
[data]
tile_set = "small"
classes = ["cold", "warm"]
[model]
depth = 11
num_classes = 2
[parallel]
strategy = "{strategy}"
num_stages = {num_stages}
num_microbatches = {num_microbatches}
microbatch_size = 4
data_parallel = {data_parallel}
{more}
timeout_s = 120.0
[optim]
lr = 0.05
[train]
steps = {steps}
"""


@dataclass(frozen=True)
class SmallProject:
    """Paths and model id of the small project."""

    project: Project
    cohort: Path
    model_id: str

    @property
    def test_slide(self) -> str:
        return "small-test"


@dataclass(frozen=True)
class Way:
    """Distribution of a run over ranks."""

    strategy: str = "single"
    num_stages: int = 1
    num_microbatches: int = 2
    data_parallel: int = 1
    more: str = ""
    """Further lines of `[parallel]`."""
    parts: int = 1
    """Ranks of each stage, if `more` says so."""

    @property
    def num_ranks(self) -> int:
        return self.data_parallel * self.num_stages * self.parts

    def write(self, path: Path, *, steps: int) -> Path:
        path.write_text(RECIPE.format(**asdict(self), steps=steps), encoding="utf-8")
        return path


def write_recipe(path: Path, *, strategy: str = "single", num_stages: int = 1, steps: int = 4) -> Path:
    return Way(strategy, num_stages).write(path, steps=steps)


def share_tiles(project: Project, folder: Path) -> None:
    """Make `folder` a separate project that shares slides and tiles with another."""
    folder.mkdir(exist_ok=True)
    for shared in (project.slides_dir, project.tiles_dir):
        (folder / shared.name).symlink_to(shared)


def make_slide(path: Path, seed: int) -> None:
    """A tiled JPEG pyramid of two levels: left half warm, right half cold, glass around."""
    random = np.random.default_rng(seed)
    width, height = SIZE_WH_PX0
    pixels = np.full((height, width, 3), 242, np.uint8)
    for row in range(1, height // CELL_PX0 - 1):
        for column in range(1, width // CELL_PX0 - 1):
            colour = WARM if column < width // CELL_PX0 // 2 else COLD
            y, x = row * CELL_PX0, column * CELL_PX0
            cell = np.asarray(colour) + random.integers(-25, 25, 3) + random.integers(-30, 30, (CELL_PX0, CELL_PX0, 1))
            pixels[y : y + CELL_PX0, x : x + CELL_PX0] = np.clip(cell, 0, 255)
    with tifffile.TiffWriter(path) as tiff:
        for level, image in enumerate((pixels, pixels[::2, ::2])):
            per_cm = 1e4 / (MPP0 * 2**level)
            tiff.write(
                image, tile=(256, 256), photometric="rgb", compression="jpeg", resolution=(per_cm, per_cm),
                resolutionunit="CENTIMETER", subfiletype=1 if level else 0, metadata=None,
            )  # fmt: skip


def write_annotations(path: Path) -> None:
    width, height = SIZE_WH_PX0
    columns, rows = width // CELL_PX0, height // CELL_PX0
    edges = (CELL_PX0, columns // 2 * CELL_PX0, (columns - 1) * CELL_PX0)
    top, bottom = CELL_PX0, (rows - 1) * CELL_PX0
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": [_ring(x0, x1, top, bottom)]},
            "properties": {"objectType": "annotation", "classification": {"name": name, "color": [1, 2, 3]}},
        }
        for name, x0, x1 in (("warm", edges[0], edges[1]), ("cold", edges[1], edges[2]))
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")


def _ring(x0: int, x1: int, top: int, bottom: int) -> list[list[int]]:
    return [[x0, top], [x1, top], [x1, bottom], [x0, bottom], [x0, top]]


def make_sources(folder: Path) -> Path:
    """Three slides with annotations and the manifest. Returns the manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["path,slide_id,patient_id,annotations,split"]
    for seed, split in enumerate(("train", "val", "test")):
        make_slide(folder / f"file-{split}.tiff", seed)
        write_annotations(folder / f"file-{split}.geojson")
        rows.append(f"file-{split}.tiff,small-{split},patient-{seed},file-{split}.geojson,{split}")
    manifest = folder / "cohort.csv"
    manifest.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return manifest


def make_small_project(folder: Path) -> SmallProject:
    project = Project(folder / "project")
    manifest = make_sources(folder / "sources")
    cohort = load_cohort(manifest)
    for entry in cohort.included:
        request = IngestRequest(cohort.slide_path(entry), entry.slide_id)
        ingest_slide(request, project, IngestConfig(shard_px=512, tissue=TISSUE))
    make_tile_table(project, "small", TILES, cohort=cohort)
    trained = train(write_recipe(folder / "small.toml"), project.root, 1)
    return _project_in(folder, trained.best)


def shared_small_project(folder: Path) -> SmallProject:
    """The small project in `folder`, made by the first process that needs it while the others wait."""
    folder.mkdir(exist_ok=True)
    made = folder / "made.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder / "small_project", ignore_errors=True)  # left by a process that failed half-way
            small_project = make_small_project(folder / "small_project")
            made.write_text(
                json.dumps({"model_id": small_project.model_id, "files": sha256_by_file(folder / "small_project")})
            )
    return _project_in(folder / "small_project", json.loads(made.read_text())["model_id"])


def changes_of_shared_project(folder: Path) -> list[str]:
    """Files of the shared project that a test has written, replaced or removed since it was made."""
    before = json.loads((folder / "made.json").read_text())["files"]
    now = sha256_by_file(folder / "small_project")
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def copy_small_project(small_project: SmallProject, folder: Path) -> SmallProject:
    """Make a writable copy of four megabytes."""
    shutil.copytree(small_project.project.root.parent, folder, dirs_exist_ok=True)
    return _project_in(folder, small_project.model_id)


def sha256_by_file(folder: Path) -> dict[str, str]:
    """Checksum of every file below a folder, by relative path; folders are listed with an empty checksum."""
    return {
        str(path.relative_to(folder)): "" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
    }


def _project_in(folder: Path, model_id: str) -> SmallProject:
    return SmallProject(Project(folder / "project"), folder / "sources" / "cohort.csv", model_id)
