"""`gemslide model export | import | check | card`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import typer

from pipeline.cli_output import Reporter, report_errors
from pipeline.errors import UnreadableError
from pipeline.model_packages import check_model, export_model, import_model, read_card
from pipeline.names import find_package
from pipeline.project import open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.slide_names import find_slide_ids
from pipeline.source_names import SourceNames
from pipeline.units import RESEARCH_USE


def run_export(model: str, project_dir: Path, *, to: str, out: Path, slides: list[str], as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        if not out.absolute().parent.is_dir():
            raise UnreadableError(
                f"--out {out}: there is no folder {out.absolute().parent}. Make it first, or name another."
            )
        package = find_package(model, project)
        slide_ids = find_slide_ids(slides, project) if slides else project.slide_ids()
        record = RunRecord("model export", {"format": to})
        with recorded(record, project.runs_dir), record.phase("export"):
            report = export_model(package, project, to=to, out=out, slide_ids=slide_ids)
            record.inputs.append({"id": report["model_id"], "sha256": report["weights_sha256"]})
            record.extra |= {key: report[key] for key in ("file", "sha256", "largest_difference", "tolerance", "tiles")}
    if as_json:
        reporter.print_json(report)
        return
    typer.echo(f"{out}: {report['file']} ({to}) of model {report['model_id']}")
    typer.echo(
        f"largest difference of an output on {report['tiles']} real tiles, {len(report['batch_sizes'])} batch sizes: "
        f"{report['largest_difference']:.2g} (at most {report['tolerance']:g} is allowed)"
    )
    typer.echo(f"SHA-256 {report['sha256']}")


def run_import(
    source: Path,
    project_dir: Path,
    *,
    config: Path | None,
    name: str | None,
    trust: str | None,
    entry_point: str | None,
    outputs: str | None,
    as_json: bool,
) -> None:
    start = time.perf_counter()
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(source, project=project))
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        record = RunRecord("model import", {"entry_point": entry_point, "outputs": outputs})
        record.extra["trust"] = trust
        with recorded(record, project.runs_dir), record.phase("import"):
            report = import_model(
                source, project, config=config, name=name, trust=trust, entry_point=entry_point, outputs=outputs
            )
            record.inputs.append({"id": report["model_id"], "sha256": report["sha256"]})
            record.outputs.append(f"models/{report['model_id']}")
            record.extra |= {"runtime": report["runtime"], "trust": report["trust"]}
    reporter.sources.keep(report["model_id"])
    reporter.add(
        SlideOutcome(
            report["model_id"], "skipped" if report["already_there"] else "done", message=_imported(report),
            output=str(project.model_path(report["model_id"])), seconds=round(time.perf_counter() - start, 1),
        ),
        runtime=report["runtime"], outputs=report["outputs"], trust=report["trust"],
    )  # fmt: skip


def _imported(report: dict[str, Any]) -> str:
    there = "is there already: " if report["already_there"] else ""
    code = " (it runs code; you trust it)" if report["trust"] else ""
    classes = ", ".join(report["class_names"][:8]) + (" …" if len(report["class_names"]) > 8 else "")
    return (
        f"{there}{report['runtime']}{code}, gives {report['outputs']}, {len(report['class_names'])} classes "
        f"({classes}), tiles of "
        f"{report['tile_px']} px at {report['mpp']:g} µm/px"
    )


def run_check(model: str, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        report = check_model(find_package(model, project))
    if as_json:
        reporter.print_json(report)
        return
    for heading, value in _facts(report):
        typer.echo(f"{heading:<12} {value}")
    typer.echo(RESEARCH_USE)


def _facts(report: dict[str, Any]) -> list[tuple[str, str]]:
    figures = ", ".join(f"{name} {value:.3f}" for name, value in report["metrics"].items())
    runs = report["entry_point"] or {"torch": "gemslide"}.get(report["runtime"], report["runtime"])
    known = [word for word in ("hues", "focus") if report[f"knows_{word}"]]
    return [
        ("model", report["model_id"]),
        ("SHA-256", report["sha256"]),
        ("run by", f"{runs}{'; runs code of its own, trusted by you' if report['trust'] else ''}"),
        ("gives", f"{report['outputs']} of {', '.join(report['class_names'])}"),
        ("tiles", f"{report['tile_px']} px at {report['mpp']:g} µm/px, stain {report['stain'] or 'as scanned'}"),
        ("knows", f"{' and '.join(known) or 'neither hues nor focus'} of its training tiles"),
        ("figures", f"{figures} (validation tiles)" if figures else "none came with it"),
        ("checked", ", ".join(report["checked"])),
    ]


def run_card(model: str, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        package = find_package(model, project)
        text = read_card(package)
    if as_json:
        typer.echo(json.dumps({"model_id": package.name, "card": text}))
    else:
        typer.echo(text.rstrip())
