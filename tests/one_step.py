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
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.models.launch import TrainingResult
from pipeline.project import Project
from pipeline.settings.config import IngestConfig, TileConfig
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.make_large import make_large_cohort
from training.foundation.recipe_file import RECIPES_DIR
from training.recipe.config import load_recipe


@dataclass(frozen=True)
class OneStep:
    """Record and weights of a training run of one step."""

    record: dict[str, Any]
    state: dict[str, Tensor]

    @property
    def num_weights(self) -> int:
        return sum(v.numel() for name, v in self.state.items() if not re.search("running|num_batches", name))


Start = Callable[[Path, Path, int], TrainingResult]
"""`pipeline.models.launch.train`, or a stand-in for it."""


def take_one_step(name: str, folder: Path, tiles: TileConfig, start: Start, *, depth: int) -> OneStep:
    """Train a shipped recipe, changed only in length and depth, on tiles of scikit-image's tissue."""
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
