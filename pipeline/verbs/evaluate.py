"""`gemslide evaluate`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import load_settings
from pipeline.names import check_tile_set, find_package
from pipeline.progress import bar
from pipeline.project import open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from training.foundation.settings import replace

if TYPE_CHECKING:
    from pipeline.evaluation.evaluate import Evaluation

NOT_ITS_SPLIT = (
    "note: the model was trained on another tile set or split than this one. Whether it has seen these patients before "
    "cannot be told from here; if it has, these numbers are too good."
)


def run_evaluate(
    model: str, project_dir: Path, *, tile_set: str, split: str | None, baselines: bool, as_json: bool
) -> None:
    project = open_project(project_dir)
    start = time.perf_counter()
    with report_errors(as_json=as_json, name=model):
        model = find_package(model, project).name
        check_tile_set(project.tile_table_path(tile_set))
        config = replace(load_settings(project.settings_path).evaluate, split=split)
        # torch takes long to import: only when the names are known to be right
        from pipeline.evaluation.evaluate import evaluate_model
        from pipeline.evaluation.report import write_report

        record = RunRecord("evaluate", {"evaluate": config.model_dump(), "model": model, "tile_set": tile_set})
        with recorded(record, project.runs_dir), record.phase("evaluate"), bar("evaluate") as advance:
            evaluation = evaluate_model(project, model, tile_set, config, with_baselines=baselines, advance=advance)
            report = write_report(project, evaluation)
            record.outputs.append(str(report.relative_to(project.root)))
    if not as_json:
        typer.echo(metrics_table(evaluation))
    if not evaluation.trained_on_this_split:
        typer.echo(NOT_ITS_SPLIT, err=True)
    seconds = round(time.perf_counter() - start, 1)
    outcome = SlideOutcome(model, "done", message=in_one_line(evaluation), output=str(report), seconds=seconds)
    Reporter(as_json=as_json).add(outcome, metrics=evaluation.by_method)


def in_one_line(evaluation: Evaluation) -> str:
    """How good the model is, and on what."""
    metrics = next(iter(evaluation.by_method.values()))
    auc = "none (a class does not occur)" if metrics["auc"] is None else f"{metrics['auc']:.3f}"
    return (
        f"balanced accuracy {metrics['balanced_accuracy']:.3f}, accuracy {metrics['accuracy']:.3f}, AUC {auc} on "
        f"{metrics['tiles']} tiles of split {evaluation.split}"
    )


def metrics_table(evaluation: Evaluation) -> str:
    """One line per method."""
    lines = [f"{'on split ' + evaluation.split:<36}{'tiles':>7}{'accuracy':>10}{'balanced':>10}{'AUC':>8}"]
    for name, m in evaluation.by_method.items():
        auc = "–" if m["auc"] is None else f"{m['auc']:.3f}"
        lines.append(f"{name:<36}{m['tiles']:>7}{m['accuracy']:>10.3f}{m['balanced_accuracy']:>10.3f}{auc:>8}")
    return "\n".join(lines)
