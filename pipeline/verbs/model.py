"""`gemslide model export | import | check | card`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import typer

from pipeline.models.packages import ImportRequest, check_model, export_model, import_model, read_card
from pipeline.naming.models import find_package
from pipeline.naming.slides import find_slide_ids
from pipeline.naming.sources import SourceNames
from pipeline.project import open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.units import RESEARCH_USE
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import UnreadableError
from training.foundation.tile_read import described_read
from training.foundation.words.counts import counted


def run_export(
    model: str,
    project_dir: Path,
    *,
    to: str,
    out: Path,
    slides: list[str],
    allow_reading_difference: bool,
    as_json: bool,
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        if not out.absolute().parent.is_dir():
            raise UnreadableError(
                f"--out {out}: there is no folder {out.absolute().parent}. Create it first, or choose another."
            )
        package = find_package(model, project)
        slide_ids = find_slide_ids(slides, project) if slides else project.slide_ids()
        record = RunRecord("model export", {"format": to})
        with recorded(record, project.runs_dir), record.phase("export"):
            report = export_model(
                package, project, to=to, out=out, slide_ids=slide_ids,
                allow_reading_difference=allow_reading_difference,
            )  # fmt: skip
            record.inputs.append({"id": report["model_id"], "sha256": report["weights_sha256"]})
            recorded_keys = ("file", "sha256", "largest_difference", "tolerance", "tiles", "wsinfer_reading")
            record.extra |= {key: report[key] for key in recorded_keys}
    if as_json:
        reporter.print_json(report)
        return
    typer.echo(f"{out}: {report['file']} ({to}) of model {report['model_id']}")
    typer.echo(
        f"largest output difference on {counted(report['tiles'], 'real tile')}, "
        f"{counted(len(report['batch_sizes']), 'batch size')}: {report['largest_difference']:.2g} (at most "
        f"{report['tolerance']:g} is allowed)"
    )
    if report["wsinfer_reading"]:
        typer.echo(report["wsinfer_reading_text"])
    typer.echo(f"SHA-256 {report['sha256']}")


def run_import(request: ImportRequest, project_dir: Path, *, as_json: bool) -> None:
    start = time.perf_counter()
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(request.source, project=project))
    with report_errors(as_json=as_json, name="model", reporter=reporter):
        record = RunRecord("model import", {"entry_point": request.entry_point, "outputs": request.outputs})
        record.extra["trust"] = request.trust
        with recorded(record, project.runs_dir), record.phase("import"):
            report = import_model(request, project)
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
    there = "already imported: " if report["already_there"] else ""
    code = " (runs code that you trust)" if report["trust"] else ""
    classes = ", ".join(report["class_names"][:8]) + (" …" if len(report["class_names"]) > 8 else "")
    return (
        f"{there}{report['runtime']}{code}, outputs {report['outputs']}, "
        f"{counted(len(report['class_names']), 'class', 'classes')} ({classes}), tiles of "
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
    metrics = ", ".join(f"{name} {value:.3f}" for name, value in report["metrics"].items())
    runs = report["entry_point"] or {"torch": "gemslide"}.get(report["runtime"], report["runtime"])
    known = [word for word in ("hues", "focus") if report[f"knows_{word}"]]
    return [
        ("model", report["model_id"]),
        ("SHA-256", report["sha256"]),
        ("run by", f"{runs}{'; runs its own code, trusted by you' if report['trust'] else ''}"),
        ("outputs", f"{report['outputs']} of {', '.join(report['class_names'])}"),
        (
            "tiles",
            f"{report['tile_px']} px at {report['mpp']:g} µm/px, {described_read(report['read'])}, "
            f"stain {report['stain'] or 'as scanned'}",
        ),
        ("records", f"{' and '.join(known) or 'neither hues nor focus'} of its training tiles"),
        ("metrics", f"{metrics} (validation tiles)" if metrics else "none included"),
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
