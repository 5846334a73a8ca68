"""`gemslide study report`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from pipeline.ledger.opening import actor_here
from pipeline.study.work.study import begun_study
from pipeline.verbs.study.study import opened


def run_report(study_id: str, project_dir: Path, out: Path | None, *, as_json: bool) -> None:
    from pipeline.study.report.publish import write_report

    with opened(project_dir, as_json=as_json) as (project, ledger):
        report = write_report(begun_study(project, study_id, ledger), actor=actor_here(), out=out)
    if as_json:
        typer.echo(json.dumps({"html": str(report.html), "pdf": str(report.pdf), "findings": list(report.findings)}))
    else:
        typer.echo(f"{report.html}\n{report.pdf}\n{report.folder}: sign one with `gemslide study sign {study_id}`.")
    for finding in report.findings:
        typer.echo(f"the log does not verify: {finding}", err=True)
    if report.findings:
        raise typer.Exit(1)
