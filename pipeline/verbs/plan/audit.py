"""`gemslide plan audit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pipeline.models.launch import AuditRequest, audit
from pipeline.project import open_project
from pipeline.verbs.cli_output import report_errors
from pipeline.verbs.plan.sizes import bytes_of
from pipeline.verbs.plan.tables import check_place, table

HEADINGS = (
    "strategy", "S", "D", "N", "recompute", "predicted s", "measured s", "accuracy", "predicted GB", "counted GB",
)  # fmt: skip


@dataclass(frozen=True)
class AuditOptions:
    """What is asked for, as on the command line."""

    sample: int
    tile_px: int | None
    world: int | None
    memory: str | None
    trace: Path | None


def run_plan_audit(recipe: Path, project: Path, options: AuditOptions, *, as_json: bool) -> None:
    with report_errors(as_json=as_json, name=recipe.stem):
        cap_bytes = None if options.memory is None else bytes_of(options.memory)
        request = AuditRequest(options.sample, options.tile_px, options.world, cap_bytes, options.trace)
        if request.trace:
            check_place("--trace", request.trace)
        typer.echo("Training some steps under several plans; do nothing else on this machine meanwhile.", err=True)
        outcome = audit(recipe, open_project(project).root, request)
    lines = (json.dumps(row) for row in (*outcome["runs"], outcome["summary"])) if as_json else _explain(outcome)
    typer.echo("\n".join(lines))
    if request.trace:
        typer.echo(f"trace: {request.trace} (open it in chrome://tracing or Perfetto)", err=True)


def _explain(outcome: dict[str, Any]) -> Iterator[str]:
    rows = [HEADINGS]
    for run in outcome["runs"]:
        numbers = (str(run[name]) for name in ("num_stages", "data_parallel", "num_microbatches"))
        seconds = (f"{run[name]:.3g}" for name in ("predicted_s", "measured_s"))
        sizes = (f"{run[name] / 1e9:.4f}" for name in ("predicted_bytes", "measured_bytes"))
        rows.append((run["strategy"], *numbers, run["recompute"], *seconds, f"{run['accuracy']:.1%}", *sizes))
    yield from table(rows, left=(0, 4))
    summary = outcome["summary"]
    yield ""
    yield f"accuracy       {summary['mean_accuracy']:.1%} on average, {summary['worst_accuracy']:.1%} at worst"
    yield f"fastest        {summary['best_measured']}"
    slower = f" ({summary['picked_by_best']:.3f} of the fastest's time)"
    yield f"picked         {summary['best_picked']}{slower if summary['picked_by_best'] > 1 else ''}"
    yield "Accuracy is 1 - |predicted - measured| / measured. Bytes are the activations of the fullest rank."
