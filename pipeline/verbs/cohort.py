"""`gemslide cohort init`, `gemslide cohort check` and `gemslide cohort pseudonymize`."""

from __future__ import annotations

from pathlib import Path

import typer

from pipeline.cohort.duplicates import find_changes
from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alike_patients
from pipeline.cohort.manifest import Cohort, init_cohort, load_cohort
from pipeline.cohort.pseudonyms import Keepable, pseudonymize_cohort
from pipeline.cohort.split import assign_splits
from pipeline.ingest.cohort_check import check_entries
from pipeline.naming.models import find_package
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import SlideOutcome
from pipeline.settings.config import load_settings
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.progress import bar
from training.foundation.words.counts import counted


def run_init(folder: Path, out: Path) -> None:
    with report_errors():
        cohort = init_cohort(folder, out)
    annotated = sum(entry.annotations is not None for entry in cohort.entries)
    typer.echo(f"{out}: {counted(len(cohort.entries), 'slide')}, {annotated:,} with annotations beside them.")
    typer.echo(
        "Fill in `patient_id` (and `split`, or let `gemslide tile` assign it), then run `gemslide cohort check`."
    )


def run_check(manifest: Path, project: Path, models: list[str], *, as_json: bool) -> None:
    reporter = Reporter(as_json=as_json, sources=SourceNames(manifest, project=Project(project)))
    with report_errors(as_json=as_json, name="cohort", reporter=reporter):
        cohort = load_cohort(manifest)
        reporter.say_notes(cohort.notes)
        settings = load_settings(open_project(project).settings_path)
        assign_splits(cohort.included, settings.tile.split)
        for unknown in _check_leakage(cohort, Project(project), models):
            typer.echo(f"warning: {unknown}", err=True)
        changes = look_alike_patients(cohort.included) | find_changes(cohort, Project(project))
    with bar("cohort check", total=len(cohort.included)) as advance:
        for outcome in check_entries(cohort, settings.ingest.keep_associated, settings.tile):
            change = changes.get(outcome.slide_id) if outcome.is_good else None
            reporter.add(SlideOutcome.from_error(outcome.slide_id, change, outcome.seconds) if change else outcome)
            advance(1)
    reporter.finish()


def _check_leakage(cohort: Cohort, project: Project, models: list[str]) -> list[str]:
    if not models:
        return []
    from pipeline.study.leakage import check_leakage

    return check_leakage(cohort, {model: find_package(model, project) for model in models}, project)


def run_pseudonymize(
    manifest: Path, map_path: Path, out: Path, project: Path | None, *, keep_site: bool, keep_block: bool
) -> None:
    options: dict[Keepable, bool] = {"site": keep_site, "block": keep_block}
    keep = [column for column, is_kept in options.items() if is_kept]
    with report_errors():
        done = pseudonymize_cohort(manifest, map_path, out, project=project, keep=keep)
    slides, patients = counted(done.num_slides, "slide"), counted(done.num_patients, "patient")
    typer.echo(f"{out}: {slides}, {patients}; {counted(done.num_new, 'new pseudonym')}.")
    for group in done.look_alikes:
        named = ", ".join(map(repr, group))
        typer.echo(f"warning: patients {named} look like one, but got different pseudonyms. {WHAT_TO_DO}.", err=True)
    typer.echo(f"{map_path} is the only way back to the names. Keep it separate from the project, and keep a copy.")
