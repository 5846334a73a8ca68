"""`gemslide check-invariance`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import typer

from pipeline.naming.models import find_package
from pipeline.naming.slides import find_store
from pipeline.project import open_project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import load_settings
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.progress import bar
from training.foundation.words.counts import counted


def run_check_invariance(
    model: str, slide: str, project_dir: Path, *, devices: str, max_tiles: int, as_json: bool
) -> None:
    project, start = open_project(project_dir), time.perf_counter()
    reporter = Reporter(as_json=as_json)
    with report_errors(as_json=as_json, name=slide):
        config = load_settings(project.settings_path).infer
        package, reader = find_package(model, project), StoreReader(find_store(slide, project))
        from pipeline.batches.devices import named_devices
        from pipeline.inference.invariance import check_invariance

        with bar("check-invariance") as advance:
            report = check_invariance(
                package, reader, config, named_devices(devices), max_tiles=max_tiles, advance=advance
            )
    if not as_json:
        typer.echo(f"{counted(report.num_tiles, 'tile')}, compared with `gemslide infer`:")
        for way in report.variations:
            changed = counted(way.num_changed, "tile")
            typer.echo(f"  {way.what:<32} largest difference {way.largest_difference:.2g}, {changed} changed")
    allowed = f"at most {report.tolerance:g}" if report.tolerance else "none, bit for bit ([infer] deterministic)"
    verdict = "results do not depend on how work is split" if report.holds else "results depend on how work is split"
    outcome = SlideOutcome(
        reader.slide_id,
        "done" if report.holds else "failed",
        code=None if report.holds else "insane_output",
        message=f"{verdict} (difference allowed: {allowed})",
        seconds=round(time.perf_counter() - start, 3),
    )
    reporter.add(outcome, variations=[asdict(way) for way in report.variations])
    reporter.finish()
