"""`gemslide study`: begin, work, look, pause, retry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cli_output import report_errors
from pipeline.errors import BadManifestError
from pipeline.project import Project, open_project
from pipeline.study.amendments import amend
from pipeline.study.failures import failures_of
from pipeline.study.ledger import Ledger
from pipeline.study.progress import Progress, progress_of
from pipeline.study.protocol import AboutStudy, new_protocol
from pipeline.study.remedies import remedies_of
from pipeline.study.retries import MAY_BE_RETRIED, retry
from pipeline.study.study import Study, actor_here, begin_study, begun_study, open_ledger, open_study
from pipeline.units import RESEARCH_USE

MAX_SHOWN = 50
"""Slides without a result, in a table for people."""


def run_init(
    study_id: str, project_dir: Path, cohort: Path, models: list[str], *, title: str, question: str, seed: int
) -> None:
    with report_errors():
        about = AboutStudy(title=title, question=question, cohort=str(cohort), seed=seed)
        path = new_protocol(open_project(project_dir), study_id, about, models)
    typer.echo(f"{path}: complete it, then `gemslide study run {study_id}` freezes it and begins.")


@contextmanager
def opened(project_dir: Path, *, as_json: bool = False) -> Iterator[tuple[Project, Ledger]]:
    """A project and its ledger, for one verb; what is wrong with them is said in one message."""
    with report_errors(as_json=as_json):
        project = open_project(project_dir)
        with open_ledger(project) as ledger:
            yield project, ledger


def run_study(study_id: str, project_dir: Path, *, workers: int | None, devices: str, as_json: bool) -> None:
    from pipeline.study.local_pool import LocalPool, worker_command, workers_that_fit

    with opened(project_dir, as_json=as_json) as (project, ledger):
        study = _begun(project, study_id, ledger)
        counts = ledger.counts(study_id)
        if ledger.study(study_id).state == "paused":
            raise BadManifestError(f"study {study_id}: is paused. Let it go on with `gemslide study resume`.")
        command = worker_command(study_id, str(project.root), devices)
        number = min(workers or workers_that_fit(), max(1, counts.slides["pending"]))

        def is_over() -> bool:
            return ledger.counts(study_id).is_over or ledger.study(study_id).state == "paused"

        if not counts.is_over:
            LocalPool(command, number, is_over).run()
        progress = progress_of(ledger, study.study_id)
        _print(progress, ledger, study_id, as_json=as_json)
    if any(number for state, number in progress.counts.slides.items() if state not in ("done", "excluded")):
        raise typer.Exit(1)


def _begun(project: Project, study_id: str, ledger: Ledger) -> Study:
    if study_id in ledger.study_ids():
        return open_study(project, study_id, ledger)
    return begin_study(
        project, study_id, ledger, actor=actor_here(), warn=lambda said: typer.echo(f"warning: {said}", err=True)
    )


def run_work(study_id: str, project_dir: Path, *, devices: str) -> None:
    with opened(project_dir) as (project, ledger):
        study = open_study(project, study_id, ledger)
        from pipeline.inference.devices import named_devices
        from pipeline.inference.stage import close_devices
        from pipeline.study.study import work_on

        try:
            done = work_on(
                study,
                devices=named_devices(devices),
                said=lambda lease, ended: typer.echo(
                    f"{lease.slide_id}: {lease.stage}: {ended.message or ended.state} ({ended.seconds:.1f} s)", err=True
                ),
            )
        finally:
            close_devices()
    typer.echo(f"{done} tasks done here.", err=True)


def run_status(study_id: str, project_dir: Path, *, as_json: bool) -> None:
    with opened(project_dir, as_json=as_json) as (_, ledger):
        _print(progress_of(ledger, study_id), ledger, study_id, as_json=as_json)


def run_set_state(study_id: str, project_dir: Path, state: str, why: str) -> None:
    with opened(project_dir) as (_, ledger):
        has_changed = ledger.set_state(study_id, state, actor=actor_here(), why=why)
    typer.echo(f"study {study_id}: {state}{'' if has_changed else ' already'}.")


def run_amend(study_id: str, project_dir: Path, why: str) -> None:
    with opened(project_dir) as (project, ledger):
        before = begun_study(project, study_id, ledger)
        amend(before, actor=actor_here(), why=why)
        counts = ledger.counts(study_id)
        version = ledger.study(study_id).version
    typer.echo(f"study {study_id}: version {version}; {counts.slides['pending']} slides are to be done.")


def run_retry(study_id: str, project_dir: Path, slides: list[str], state: str | None, why: str) -> None:
    with opened(project_dir) as (_, ledger):
        retried = retry(ledger, study_id, slides, state, actor=actor_here(), why=why)
    typer.echo(f"study {study_id}: {len(retried)} slides go on; start workers with `run` or `work`.")


def _print(progress: Progress, ledger: Ledger, study_id: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_as_dict(progress, ledger, study_id)))
        return
    console = Console(width=None)
    slides = ", ".join(f"{number} {state}" for state, number in progress.counts.slides.items() if number)
    console.print(Text(f"study {study_id} ({ledger.study(study_id).state}): {progress.counts.total} slides: {slides}"))
    table = Table("stage", "done", "held", "ready", "waiting", "ended", "seconds each")
    for stage, number in progress.counts.tasks.items():
        cells = [number[state] for state in ("done", "leased", "ready", "blocked", "ended")]
        seconds = progress.mean_s.get(stage)
        table.add_row(Text(stage), *map(str, cells), "" if seconds is None else f"{seconds:.1f}")
    console.print(table)
    if progress.left_s is not None and not progress.counts.is_over:
        console.print(f"{progress.workers} workers; about {progress.left_s / 60:.0f} minutes left")
    _print_ended(console, ledger, study_id)
    console.print(Text(RESEARCH_USE))


def _print_ended(console: Console, ledger: Ledger, study_id: str) -> None:
    failures = failures_of(ledger, study_id)
    ended = [row for state in MAY_BE_RETRIED[::-1] for row in ledger.slides(study_id, state=state, limit=MAX_SHOWN)]
    if not ended:
        return
    table = Table("slide", "state", "code", "reason", title="Ended without a result", title_justify="left")
    for row in ended[:MAX_SHOWN]:
        table.add_row(*(Text(str(cell or "")) for cell in (row.slide_id, row.state, row.code, row.message)))
    console.print(table)
    table = Table("state", "code", "slides", "what to do", title="What to do about them", title_justify="left")
    for each in failures:
        table.add_row(*(Text(str(cell)) for cell in (each.state, each.code, each.slides, each.remedy)))
    console.print(table)


def _as_dict(progress: Progress, ledger: Ledger, study_id: str) -> dict[str, Any]:
    failures = failures_of(ledger, study_id)
    return {
        "study_id": study_id,
        "state": ledger.study(study_id).state,
        "slides": dict(progress.counts.slides),
        "total": progress.counts.total,
        "tasks": {stage: dict(number) for stage, number in progress.counts.tasks.items()},
        "mean_s": dict(progress.mean_s),
        "workers": progress.workers,
        "left_s": progress.left_s,
        "failures": [asdict(each) for each in failures],
        "remedies": remedies_of(each.code for each in failures),
    }
