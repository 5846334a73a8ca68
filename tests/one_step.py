"""A shipped recipe takes one real optimizer step through the whole workflow."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from pipeline.cohort.manifest import load_cohort
from pipeline.config import IngestConfig, TileConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.launch import TrainingResult
from pipeline.project import Project
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.make_large import make_large_cohort
from training.config import RECIPES_DIR, load_recipe


@dataclass(frozen=True)
class OneStep:
    """What it left behind."""

    record: dict[str, Any]
    state: dict[str, Tensor]

    @property
    def num_weights(self) -> int:
        return sum(v.numel() for name, v in self.state.items() if not re.search("running|num_batches", name))


Start = Callable[[Path, Path, int], TrainingResult]
"""`pipeline.launch.train`, or what stands for it."""


def take_one_step(name: str, folder: Path, tiles: TileConfig, start: Start, *, depth: int) -> OneStep:
    """Train a shipped recipe, of which only length and depth are changed, on tiles of scikit-image's tissue."""
    project = Project(folder)
    cohort = load_cohort(make_large_cohort(folder / "in"))
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    shipped = (RECIPES_DIR / name).read_text(encoding="utf-8")
    one_step, changes = re.subn(r"epochs = \d+", "steps = 1", shipped)
    one_step, more_changes = re.subn(r"\ndepth = \d+", f"\ndepth = {depth}", one_step)
    assert (changes, more_changes) == (1, 1)
    (folder / name).write_text(one_step, encoding="utf-8")
    recipe = load_recipe(folder / name)
    make_tile_table(project, recipe.data.tile_set, tiles, cohort=cohort)

    trained = start(folder / name, project.root, recipe.parallel.world_size)

    (path,) = project.runs_dir.glob("*.json")
    return OneStep(json.loads(path.read_text()), load_file(project.models_dir / trained.last / "model.safetensors"))
