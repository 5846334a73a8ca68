"""`gemslide demo`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from pipeline.demo.demo import run_demo, summary
from pipeline.project import open_project
from pipeline.run_record import SlideOutcome
from pipeline.verbs.cli_output import Reporter, report_errors
from pipeline.verbs.evaluate import in_one_line


def run(project_dir: Path, *, as_json: bool) -> None:
    start = time.perf_counter()
    with report_errors(as_json=as_json, name="demo"):
        result = run_demo(open_project(project_dir), say=lambda text: typer.echo(text, err=True))
    seconds = round(time.perf_counter() - start, 1)
    if as_json:
        message = in_one_line(result.evaluation)
        outcome = SlideOutcome("demo", "done", message=message, output=str(result.report), seconds=seconds)
        if result.no_probe:
            typer.echo(f"note: no probe of an encoder's features: {result.no_probe}", err=True)
        probe = asdict(result.probe) if result.probe else None
        Reporter(as_json=True).add(outcome, metrics=result.evaluation.by_method, probe=probe)
    else:
        typer.echo(summary(result))
        typer.echo(f"took {seconds:.0f} s")
