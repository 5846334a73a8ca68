"""The whole workflow on the demonstration's slides: make, ingest, tile, train, infer, evaluate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pipeline.cohort.manifest import load_cohort
from pipeline.demo.make_slides import SLIDES, make_demo_cohort
from pipeline.evaluation.evaluate import evaluate_model
from pipeline.evaluation.report import write_report
from pipeline.evaluation.result import Evaluation
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.inference.results.slide_report import About
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.models.launch import train
from pipeline.project import Project
from pipeline.settings.config import EvaluateConfig, InferConfig, IngestConfig, TileConfig
from pipeline.tiles.tile import make_tile_table
from training.foundation.progress import bar
from training.foundation.words.counts import counted
from training.foundation.words.research_use import RESEARCH_USE

RECIPE = "demo.toml"
NUM_RANKS = 2
TILE_SET = "demo"
NOTE = (
    "The labels here are based on colour: they come from colour deconvolution of the stain, so a method that only "
    "measures brown can be as good as a network. This demonstration proves that the workflow works, from slide file "
    "to report. It says nothing about diagnosis."
)
TILES = TileConfig(tile_px=128, mpp=0.5, classes=("negative", "positive"), note=NOTE)


@dataclass(frozen=True)
class DemoResult:
    """Outcome of the demonstration."""

    project: Project
    model_id: str
    evaluation: Evaluation
    report: Path


def run_demo(project: Project, say: Callable[[str], None]) -> DemoResult:
    """Run everything; finished slides and stores are kept, training runs again.

    Raises:
        GemslideError: from any stage.
    """
    with bar("making four slides", len(SLIDES)) as advance:
        manifest = make_demo_cohort(project.root / "sources", advance=advance)
    cohort = load_cohort(manifest)
    with bar("ingest", len(cohort.included)) as advance:
        for entry in cohort.included:
            ingest_slide(IngestRequest(cohort.slide_path(entry), entry.slide_id), project, IngestConfig())
            advance(1)
    with bar("tiles") as advance:
        table = make_tile_table(project, TILE_SET, TILES, cohort=cohort, advance=advance)
    say(f"{counted(len(table.frame), 'tile')}; training GEMS-MASTER on {NUM_RANKS} gloo ranks (recipe {RECIPE})")
    trained = train(_shipped(RECIPE), project.root, NUM_RANKS)
    package = project.model_path(trained.best)
    predictor = Predictor.load(package)
    for slide in (s for s in SLIDES if s.split == "test"):
        with bar(f"infer {slide.slide_id}") as advance:
            infer_slide(slide.slide_id, predictor, project, InferConfig(), about=About(package), advance=advance)
    with bar("evaluate (untrained baseline)") as advance:
        evaluation = evaluate_model(project, trained.best, TILE_SET, EvaluateConfig(), cohort=cohort, baselines=advance)
    report = write_report(project, evaluation)
    return DemoResult(project, trained.best, evaluation, report)


def _shipped(recipe: str) -> Path:
    """A recipe shipped with training, whatever is in the current folder. Finds the package without importing it."""
    spec = find_spec("training")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "recipes" / recipe


def summary(result: DemoResult) -> str:
    """Closing summary for a newcomer."""
    project, evaluation = result.project, result.evaluation
    lines = ["", f"{'on the two test slides':<36}{'accuracy':>9}{'AUC':>8}"]
    for name, metrics in evaluation.by_method.items():
        lines.append(f"{name:<36}{metrics['accuracy']:>9.3f}{metrics['auc']:>8.3f}")
    slide_id = SLIDES[2].slide_id
    files = project.result_dir(slide_id, result.model_id)
    lines += [
        "",
        f"store     {project.store_path(slide_id)}",
        f"model     {project.model_path(result.model_id)}",
        f"heatmap   {files / 'heatmap_positive.png'}",
        f"GeoJSON   {files / 'predictions.geojson'}",
        f"report    {result.report}",
        "",
        NOTE,
        RESEARCH_USE,
        "",
        f"open it:  gemslide app --project {project.root}    (or: make app)",
    ]
    return "\n".join(lines)
