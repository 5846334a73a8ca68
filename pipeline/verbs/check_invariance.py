"""`gemslide check-invariance`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from pipeline.errors import BadManifestError
from pipeline.naming.models import find_package
from pipeline.naming.slides import find_slide_id, find_store
from pipeline.project import Project, open_project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import Settings, load_settings
from pipeline.slide_level.package_level import is_slide_model
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import UnreadableError
from training.foundation.progress import bar
from training.foundation.words.counts import counted

if TYPE_CHECKING:
    from pipeline.batches.invariance import InvarianceReport


def run_check_invariance(
    name: str, slide: str, project_dir: Path, *, devices: str, max_tiles: int, as_json: bool
) -> None:
    """Check a model of tiles or of slides, or else the encoder of that name."""
    project, start = open_project(project_dir), time.perf_counter()
    reporter = Reporter(as_json=as_json)
    with report_errors(as_json=as_json, name=slide):
        settings = load_settings(project.settings_path)
        verb, path = _find(name, project)
        reader = StoreReader(find_store(slide, project))
        if verb == "infer" and is_slide_model(path):
            report = _of_slide_model(path, find_slide_id(slide, project), project, settings, devices, max_tiles)
        else:
            report = _report(verb, path, reader, settings, devices, max_tiles)
    if not as_json:
        typer.echo(f"{counted(report.num_tiles, 'tile')}, compared with `gemslide {verb}`:")
        for way in report.variations:
            changed = counted(way.num_changed, report.counts)
            typer.echo(f"  {way.what:<32} largest difference {way.largest_difference:.2g}, {changed} changed")
    allowed = f"at most {report.tolerance:g}" if report.tolerance else f"none, bit for bit ([{verb}] deterministic)"
    verdict = "results do not depend on how work is split" if report.holds else "results depend on how work is split"
    outcome = SlideOutcome(
        reader.slide_id,
        "done" if report.holds else "failed",
        code=None if report.holds else "insane_output",
        message=f"{verdict} (difference allowed: {allowed}{'; ' if report.note else ''}{report.note})",
        seconds=round(time.perf_counter() - start, 3),
    )
    reporter.add(outcome, variations=[asdict(way) for way in report.variations])
    reporter.finish()


def _find(name: str, project: Project) -> tuple[str, Path]:
    """The verb that uses what has this name, and a model's package or an encoder's row.

    Raises:
        UnreadableError: the project has neither. BadManifestError: the folder's name is not a model id.
    """
    try:
        return "infer", find_package(name, project)
    except UnreadableError as no_model:
        from pipeline.embedding.rows import find_encoder

        try:
            return "embed", find_encoder(name, project)
        except BadManifestError:  # a folder's path, which names no encoder
            raise no_model from None
        except UnreadableError as no_encoder:
            raise UnreadableError(f"{no_model} Nor is it an encoder: {no_encoder}") from no_encoder


def _report(
    verb: str, path: Path, reader: StoreReader, settings: Settings, devices: str, max_tiles: int
) -> InvarianceReport:
    from pipeline.batches.devices import named_devices

    names = named_devices(devices)
    with bar("check-invariance") as advance:
        if verb == "embed":
            from pipeline.embedding.invariance import check_encoder_invariance

            return check_encoder_invariance(path, reader, settings.embed, names, max_tiles=max_tiles, advance=advance)
        from pipeline.inference.invariance import check_invariance

        return check_invariance(path, reader, settings.infer, names, max_tiles=max_tiles, advance=advance)


def _of_slide_model(
    package: Path, slide_id: str, project: Project, settings: Settings, devices: str, max_tiles: int
) -> InvarianceReport:
    from pipeline.slide_level.invariance import check_slide_invariance
    from pipeline.slide_level.stage import only_device

    device = only_device(devices)
    with bar("check-invariance") as advance:
        return check_slide_invariance(
            package, slide_id, project, settings.embed, device, max_tiles=max_tiles, advance=advance
        )
