"""`gemslide encoder add | check | list`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from pipeline.embedding import add_encoder, check_own_encoder, list_encoders
from pipeline.naming.sources import SourceNames
from pipeline.project import open_project
from pipeline.run_record import RunRecord, recorded
from pipeline.units import RESEARCH_USE
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.tile_read import described_read


def run_add(name: str, project_dir: Path, *, source: Path | None, untrained: bool, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="encoder", reporter=reporter):
        record = RunRecord("encoder add", {"encoder": name, "shipped": source is None, "untrained": untrained})
        with recorded(record, project.runs_dir), record.phase("check"):
            report = add_encoder(name, project, source, untrained=untrained)
            record.inputs.append({"id": report["encoder_id"], "sha256": report["row"]["sha256"]})
            record.outputs.append(f"encoders/{report['name']}.toml")
    _print_checked(report, reporter, as_json=as_json)


def run_check(name: str, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="encoder", reporter=reporter):
        report = check_own_encoder(name, project)
    _print_checked(report, reporter, as_json=as_json)


def run_list(project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="encoder", reporter=reporter):
        encoders = list_encoders(project)
    for encoder in encoders:
        row = encoder["row"] or {}
        if as_json:
            shown = {key: row.get(key) for key in ("kind", "dims", "tile_px", "mpp", "licence")}
            reporter.print_json({key: encoder[key] for key in ("name", "encoder_id", "own", "present")} | shown)
            continue
        place = "in the project" if encoder["own"] else "comes with gemslide"
        state = "weights are here" if encoder["present"] else f"cannot be used: {encoder['missing']}"
        facts = f"{row['kind']}, {row['dims']:,} numbers per tile, {row['licence']}; " if row else ""
        typer.echo(f"{encoder['encoder_id'] or encoder['name']}: {facts}{place}; {state}")


def _print_checked(report: dict[str, Any], reporter: Reporter, *, as_json: bool) -> None:
    """Print a report; JSON without the weights' file, as lines that are passed on name no files."""
    if as_json:
        reporter.print_json({key: value for key, value in report.items() if key != "weights"})
        return
    for heading, value in _facts(report):
        typer.echo(f"{heading:<12} {value}")
    typer.echo(RESEARCH_USE)


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    row = report["row"]
    pooled = "" if row["pool"] == "none" else f", pooled: {row['pool']}"
    there = " (already in the project)" if report.get("already_there") else ""
    return [
        ("encoder", f"{report['encoder_id']}{there}"),
        ("weights", report["weights"]),
        ("SHA-256", row["sha256"]),
        ("run by", f"{row['kind']} in {row['precision']}" + (", with random weights" if row["untrained"] else "")),
        ("returns", f"{row['dims']:,} numbers per tile{pooled}"),
        ("tiles", f"{row['tile_px']} px at {row['mpp']:g} µm/px, {described_read(row['read'])}"),
        ("licence", row["licence"]),
        ("citation", row["citation"]),
        ("checked", ", ".join(report["checked"])),
    ]
