"""The whole road on labelled colorectal tissue: training slides and test slides come from different patients."""

import json

import pytest

from pipeline.config import EvaluateConfig, InferConfig, IngestConfig, TileConfig
from pipeline.evaluation.evaluate import THE_MODEL, evaluate_model
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.launch import train
from pipeline.manifest import load_cohort
from pipeline.project import Project
from pipeline.tiles.tile import make_tile_table

RECIPE = """
[data]
tile_set = "crc"
balance = true
[model]
depth = 11
num_classes = 5
[parallel]
strategy = "master"
num_stages = 2
num_microbatches = 2
microbatch_size = 8
[optim]
lr = 0.05
warmup_steps = 10
weight_decay = 5e-4
[train]
epochs = 12
[augment]
brightness = 0.05
contrast = 0.1
stain = 0.35
"""


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(900)
def test_a_short_recipe_beats_the_commonest_class_on_other_slides(real_slides, tmp_path):
    project, folder = Project(tmp_path), real_slides / "crc-mosaic"
    rows = ["path,slide_id,patient_id,annotations,split"]
    for path in sorted(folder.glob("*.tiff")):
        split = "test" if path.stem.startswith("test") else "val" if path.stem == "train_2" else "train"
        rows.append(f"{path},{path.stem},{path.stem},{path.with_suffix('.geojson')},{split}")
    (tmp_path / "cohort.csv").write_text("\n".join(rows) + "\n")
    cohort = load_cohort(tmp_path / "cohort.csv")
    for entry in cohort.included:
        ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
    make_tile_table(project, "crc", TileConfig(tile_px=56, mpp=2.0), cohort=cohort)
    (tmp_path / "crc.toml").write_text(RECIPE)

    trained = train(tmp_path / "crc.toml", project.root, 2)

    predictor = Predictor.load(project.models_dir / trained.best)
    for slide_id in ("test_10", "test_12"):
        infer_slide(slide_id, predictor, project, InferConfig())
    evaluation = evaluate_model(project, trained.best, "crc", EvaluateConfig(), with_baselines=False)
    metrics = evaluation.by_method[THE_MODEL]
    print(json.dumps(metrics), evaluation.confusion.tolist())
    assert metrics["tiles"] == 492
    assert metrics["accuracy"] >= 0.65
    assert metrics["balanced_accuracy"] >= 0.50
