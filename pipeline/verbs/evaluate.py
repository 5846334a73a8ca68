"""`gemslide evaluate`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from pipeline.cohort.manifest import load_cohort
from pipeline.naming.models import check_tile_set, find_package
from pipeline.project import open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.settings.config import load_settings
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError
from training.foundation.progress import bar
from training.foundation.settings import replace
from training.foundation.words.counts import counted

if TYPE_CHECKING:
    from pipeline.evaluation.result import Evaluation
    from pipeline.evaluation.statistics.bootstrap import Estimate

NOT_ITS_SPLIT = (
    "note: the model was trained on a different tile set or split. It may have seen these patients before; if so, "
    "these numbers are too good."
)


class Labelled(NamedTuple):
    """Labels that a model is compared with: one split of a tile set, and the manifest it was made from; for slide-level
    models a manifest, and the clinical table with their targets."""

    tile_set: str
    split: str | None
    manifest: Path | None
    table: Path | None = None
    covariates: str | None = None


def run_evaluate(
    model: str, project_dir: Path, labelled: Labelled, *, against: str | None, baselines: bool, as_json: bool
) -> None:
    project = open_project(project_dir)
    tile_set, split, manifest, *_ = labelled
    start = time.perf_counter()
    with report_errors(as_json=as_json, name=model):
        model = find_package(model, project).name
        if labelled.table or labelled.covariates:
            raise BadRecipeError(f"model {model} predicts tiles: --table and --covariates are for slide-level models.")
        against = find_package(against, project).name if against is not None else None
        check_tile_set(project.tile_table_path(tile_set))
        config = replace(load_settings(project.settings_path).evaluate, split=split)
        cohort = load_cohort(manifest) if manifest else None
        # torch is slow to import: only once the names are known to be right
        from pipeline.evaluation.evaluate import evaluate_model
        from pipeline.evaluation.report import write_report

        settings = {"evaluate": config.model_dump(), "model": model, "tile_set": tile_set, "against": against}
        record = RunRecord("evaluate", settings)
        with recorded(record, project.runs_dir), record.phase("evaluate"), bar("evaluate") as advance:
            evaluation = evaluate_model(
                project,
                model,
                tile_set,
                config,
                cohort=cohort,
                against=against,
                baselines=advance if baselines else None,
            )
            report = write_report(project, evaluation)
            record.outputs.append(str(report.relative_to(project.root)))
    if not as_json:
        typer.echo(metrics_table(evaluation))
        if evaluation.baseline_note:
            typer.echo(f"note: {evaluation.baseline_note}", err=True)
    for outdated in evaluation.outdated:
        typer.echo(f"warning: {outdated}", err=True)
    if not evaluation.trained_on_this_split:
        typer.echo(NOT_ITS_SPLIT, err=True)
    seconds = round(time.perf_counter() - start, 1)
    outcome = SlideOutcome(model, "done", message=in_one_line(evaluation), output=str(report), seconds=seconds)
    Reporter(as_json=as_json).add(outcome, metrics=evaluation.by_method)


def in_one_line(evaluation: Evaluation) -> str:
    """Summary of the model's metrics, and of the tiles they were measured on."""
    metrics = next(iter(evaluation.by_method.values()))
    auc = "none (a class does not occur)" if metrics["auc"] is None else f"{metrics['auc']:.3f}"
    return (
        f"balanced accuracy {metrics['balanced_accuracy']:.3f}, accuracy {metrics['accuracy']:.3f}, AUC {auc} on "
        f"{counted(int(metrics['tiles'] or 0), 'tile')} of split {evaluation.split}"
    )


def metrics_table(evaluation: Evaluation) -> str:
    """One line per method, then one per class of slides and lesions."""
    lines = [f"{'on split ' + evaluation.split:<36}{'accuracy':>22}{'balanced accuracy':>24}{'AUROC':>24}"]
    for name, measures in evaluation.methods.items():
        cells = [with_interval(measures[key]) for key in ("accuracy", "balanced accuracy", "AUROC")]
        lines.append(f"{name:<36}{cells[0]:>22}{cells[1]:>24}{cells[2]:>24}")
    for level in evaluation.levels[1:]:
        for result in level.classes:
            cell = with_interval(result.measures["AUROC"])
            lines.append(f"{level.items} {level.name}s: {result.class_name}: AUROC {cell}")
    for froc in evaluation.froc:
        lines.append(f"{froc.lesions} lesions of {froc.class_name}: FROC score {with_interval(froc.score)}")
    if evaluation.staging:
        lines.append(f"pN stages: kappa {with_interval(evaluation.staging.kappa)}")
    for row in evaluation.differences:
        cell = with_interval(row.bootstrap)
        lines.append(f"against {evaluation.against}, {row.level}s, {row.class_name}: AUROC difference {cell}")
    return "\n".join(lines)


def with_interval(measured: Estimate) -> str:
    """Text such as 0.912 (0.871–0.944); a dash if there is no value."""
    if measured.value is None:
        return "–"
    if measured.low is None or measured.high is None:
        return f"{measured.value:.3f}"
    return f"{measured.value:.3f} ({measured.low:.3f}–{measured.high:.3f})"
