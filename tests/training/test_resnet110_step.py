"""The real recipe, as shipped, takes one real optimizer step: ResNet-110-v2, 1024 px tiles, two stages, bf16."""

import json
import re

import pytest
from safetensors.torch import load_file

from pipeline.config import IngestConfig, TileConfig
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.launch import train
from pipeline.manifest import load_cohort
from pipeline.project import Project
from pipeline.tiles.tile import make_tile_table
from tests.pipeline.make_large import make_large_cohort
from training.config import RECIPES_DIR


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_resnet_110_takes_an_optimizer_step_on_1024_px_tiles(tmp_path):
    project = Project(tmp_path)
    cohort = load_cohort(make_large_cohort(tmp_path / "in"))
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    make_tile_table(project, "tiles_1024", TileConfig(tile_px=1024, mpp=0.5), cohort=cohort)
    shipped = (RECIPES_DIR / "resnet110_1024.toml").read_text()
    one_step = re.sub(r"epochs = \d+", "steps = 1", shipped)
    assert one_step != shipped
    (tmp_path / "resnet110_1024.toml").write_text(one_step)

    trained = train(tmp_path / "resnet110_1024.toml", project.root, 2)

    (record,) = (json.loads(p.read_text()) for p in project.runs_dir.glob("*.json"))
    state = load_file(project.models_dir / trained.last / "model.safetensors")
    assert record["outcome"] == "done"
    assert sum(record["plan"]["blocks_per_stage"]) == 38
    assert sum(v.numel() for n, v in state.items() if not re.search("running|num_batches", n)) == 3_289_554
    assert record["epochs"][0]["train_loss"] == pytest.approx(0.69, abs=0.5)
    assert all(v.isfinite().all() for v in state.values())
