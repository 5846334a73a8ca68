"""The whole workflow on the demonstration's slides: make, ingest, tile, train, infer, evaluate, probe an encoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pipeline.cohort.manifest import load_cohort
from pipeline.demo.make_slides import SLIDES, make_demo_cohort
from pipeline.demo.probe import ENCODER, ProbeResult, missing_encoder, probe_encoder
from pipeline.embedding.rows import row_path
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
    probe: ProbeResult | None
    no_probe: str
    """Why there is no probe, and what to install; empty if there is one."""


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
    missing = missing_encoder(project)
    probe = None if missing else probe_encoder(project, cohort, trained.best, TILES, say=say)
    return DemoResult(project, trained.best, evaluation, report, probe, missing or "")


def _shipped(recipe: str) -> Path:
    """A recipe shipped with training, whatever is in the current folder. Finds the package without importing it."""
    spec = find_spec("training")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "recipes" / recipe


def _figures(heading: str, by_method: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    """A small table, after an empty line."""
    lines = ["", f"{heading:<36}{'accuracy':>9}{'AUC':>8}"]
    for name, metrics in by_method.items():
        auc = "–" if metrics["auc"] is None else f"{metrics['auc']:.3f}"  # a class does not occur
        lines.append(f"{name:<36}{metrics['accuracy']:>9.3f}{auc:>8}")
    return lines


def summary(result: DemoResult) -> str:
    """Closing summary for a newcomer."""
    project, evaluation = result.project, result.evaluation
    tiles = next(iter(evaluation.by_method.values()))["tiles"]
    lines = _figures(f"on {tiles} tiles of the test slides", evaluation.by_method)
    if result.probe is None:
        lines += ["", f"no probe of an encoder's features: {result.no_probe}"]
    else:
        larger = f"on {result.probe.tiles} larger tiles ({result.probe.tile_um:g} µm)"
        lines += _figures(larger, result.probe.by_method)
    slide_id = SLIDES[2].slide_id
    files = project.result_dir(slide_id, result.model_id)
    lines += [
        "",
        f"store     {project.store_path(slide_id)}",
        f"model     {project.model_path(result.model_id)}",
        f"heatmap   {files / 'heatmap_positive.png'}",
        f"GeoJSON   {files / 'predictions.geojson'}",
        f"report    {result.report}",
        *([f"encoder   {row_path(ENCODER, project)}"] if result.probe else []),
        "",
        NOTE,
        RESEARCH_USE,
        "",
        f"open it:  gemslide app --project {project.root}    (or: make app)",
    ]
    return "\n".join(lines)
