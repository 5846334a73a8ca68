"""`gemslide doctor`. Imports nothing that may be missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import typer

from pipeline.doctor import examine
from pipeline.units import RESEARCH_USE


def run_doctor(project: Path, *, as_json: bool, report: Path | None = None, slide: Path | None = None) -> None:
    findings = examine(project)
    if report is not None or slide is not None:
        from pipeline.verbs.slide_report import write_slide_report  # its libraries may be missing

        write_slide_report(findings, report, slide)
    for finding in findings:
        if as_json:
            typer.echo(json.dumps(asdict(finding)))
            continue
        mark = "ok     " if finding.is_good else "MISSING" if finding.is_required else "absent "
        remedy = f"   → {finding.remedy}" if finding.remedy and not finding.is_good else ""
        typer.echo(f"{mark} {finding.name:<32} {finding.value}{remedy}")
    if not as_json:
        typer.echo(RESEARCH_USE)
    if any(finding.is_required and not finding.is_good for finding in findings):
        raise typer.Exit(1)
