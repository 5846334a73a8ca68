"""`gemslide study`: begin, work, status, pause, retry."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.errors import BadManifestError
from pipeline.files import write_text_atomic
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.opening import actor_here, open_ledger
from pipeline.project import Project, open_project
from pipeline.settings.config import load_settings
from pipeline.study.new_protocol import new_protocol
from pipeline.study.outcomes.failures import failures_of
from pipeline.study.outcomes.priorities import prioritize
from pipeline.study.outcomes.progress import Progress, progress_of
from pipeline.study.outcomes.remedies import remedies_of
from pipeline.study.outcomes.retries import MAY_BE_RETRIED, retry
from pipeline.study.protocol import AboutStudy
from pipeline.study.work.amendments import amend
from pipeline.study.work.leases import Ended, Lease
from pipeline.study.work.retry import wait_for_ledger
from pipeline.study.work.study import Study, begin_study, begun_study, cleaned_reason, open_study
from pipeline.units import RESEARCH_USE
from pipeline.verbs.cli_output import report_errors
from training.foundation.settings import parse_section
from training.foundation.words.counts import counted

MAX_SHOWN = 50
"""Slides without a result that a table shows."""


def run_init(
    study_id: str,
    project_dir: Path,
    cohort: Path,
    named: tuple[list[str], list[str]],
    *,
    title: str,
    question: str,
    template: str | None,
) -> None:
    """Write a protocol.

    Args:
        named: ids of models, and names of encoders.
    """
    with report_errors():
        models, encoders = named
        raw = {"title": title, "question": question, "cohort": str(cohort), "seed": 0}
        about = parse_section(AboutStudy, raw, where="study init (--title, --question, --cohort)")
        path = new_protocol(open_project(project_dir), study_id, about, models, template, encoders)
    typer.echo(f"{path}: complete it, then run `gemslide study run {study_id}` to freeze it and begin.")


@contextmanager
def opened(project_dir: Path, *, as_json: bool = False, wait: bool = False) -> Iterator[tuple[Project, Ledger]]:
    """Open a project and its ledger for one verb; errors are reported in one message.

    Args:
        wait: for a ledger whose database is unavailable; for workers that run unattended.
    """
    with report_errors(as_json=as_json):
        project = open_project(project_dir)
        with wait_for_ledger(lambda: open_ledger(project), warn=_tell) if wait else open_ledger(project) as ledger:
            yield project, ledger


def run_study(study_id: str, project_dir: Path, *, on: str, workers: int | None, devices: str, as_json: bool) -> None:
    from pipeline.study.starting.starters import check_place, start_workers

    with opened(project_dir, as_json=as_json) as (project, ledger):
        check_place(on)
        settings = load_settings(project.settings_path).study
        study = _begun(project, study_id, ledger)
        if ledger.study(study_id).state == "paused":
            raise BadManifestError(f"study {study_id}: is paused. Resume it with `gemslide study resume`.")
        if not ledger.counts(study_id).is_over:
            start_workers(study, settings, on=on, workers=workers, devices=devices, tell=_tell)
        progress = progress_of(ledger, study.study_id)
        _print(progress, ledger, study_id, as_json=as_json)
    if any(number for state, number in progress.counts.slides.items() if state not in ("done", "excluded")):
        raise typer.Exit(1)


def run_begin(study_id: str, project_dir: Path) -> None:
    with opened(project_dir) as (project, ledger):
        _begun(project, study_id, ledger)
        counts = ledger.counts(study_id)
    total = counted(counts.total, "slide")
    pending = counted(counts.slides["pending"], f"of {total} is", f"of {total} are")
    typer.echo(f"study {study_id}: has begun; {pending} to be done.")


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def run_script(study_id: str, project_dir: Path, *, workers: int, devices: str, out: Path | None) -> None:
    from pipeline.study.starting.slurm import array_script
    from pipeline.study.starting.starters import order_for

    with opened(project_dir) as (project, ledger):
        settings = load_settings(project.settings_path).study
        study = open_study(project, study_id, ledger)
        script = array_script(order_for(study, devices), settings.slurm, workers)
        if ledger.database.is_sqlite:
            _tell(
                "warning: the ledger is a SQLite file, so all jobs must run on this machine. For several machines use "
                "PostgreSQL (docs/how_to/operating.md)."
            )
        if out:
            write_text_atomic(out, script)
            _tell(f"{out}: submit it with `sbatch {shlex.quote(str(out))}`.")
        else:
            typer.echo(script, nl=False)


def _begun(project: Project, study_id: str, ledger: Ledger) -> Study:
    if study_id in ledger.study_ids():
        return open_study(project, study_id, ledger)
    return begin_study(project, study_id, ledger, actor=actor_here(), warn=_warn)


def _warn(said: str) -> None:
    typer.echo(f"warning: {said}", err=True)


def run_work(study_id: str, project_dir: Path, *, devices: str) -> None:
    with opened(project_dir, wait=True) as (project, ledger):
        study = wait_for_ledger(lambda: open_study(project, study_id, ledger), warn=_tell)
        from pipeline.batches.devices import named_devices
        from pipeline.embedding.stage import close_encoder
        from pipeline.inference.stage import close_devices
        from pipeline.study.work.shutdown import handle_signals
        from pipeline.study.work.study import work_on

        with handle_signals() as ending:
            try:
                done = work_on(study, devices=named_devices(devices), said=_say_ended, tell=_tell, ending=ending)
            except KeyboardInterrupt:
                typer.echo("worker stopped; its task was returned to the queue.", err=True)
                raise typer.Exit(128 + (ending.signal or signal.SIGINT)) from None
            finally:
                close_devices()
                close_encoder()
    typer.echo(f"{counted(done, 'task')} done here.", err=True)


def _say_ended(lease: Lease, ended: Ended) -> None:
    message = ended.message or ended.state
    typer.echo(f"{lease.slide_id}: {lease.stage}: {message} ({ended.seconds:.1f} s)", err=True)


def run_status(study_id: str, project_dir: Path, *, as_json: bool) -> None:
    with opened(project_dir, as_json=as_json) as (_, ledger):
        _print(progress_of(ledger, study_id), ledger, study_id, as_json=as_json)
        trouble = ledger.database.trouble()
    if trouble:
        _tell(f"error [disk_full]: {trouble}")
        raise typer.Exit(1)


def run_set_state(study_id: str, project_dir: Path, state: str, why: str) -> None:
    with opened(project_dir) as (project, ledger):
        why = cleaned_reason(project, study_id, ledger, why)
        has_changed = ledger.set_state(study_id, state, actor=actor_here(), why=why)
    typer.echo(f"study {study_id}: {state}{'' if has_changed else ' already'}.")


def run_amend(study_id: str, project_dir: Path, why: str) -> None:
    with opened(project_dir) as (project, ledger):
        before = begun_study(project, study_id, ledger)
        amend(before, actor=actor_here(), why=why, warn=_warn)
        counts = ledger.counts(study_id)
        version = ledger.study(study_id).version
    pending = counted(counts.slides["pending"], "slide is", "slides are")
    typer.echo(f"study {study_id}: version {version}; {pending} to be done.")


def run_retry(study_id: str, project_dir: Path, slides: list[str], state: str | None, why: str) -> None:
    with opened(project_dir) as (project, ledger):
        why = cleaned_reason(project, study_id, ledger, why)
        retried = retry(ledger, study_id, slides, state, actor=actor_here(), why=why)
    pending = counted(len(retried), "slide is", "slides are")
    typer.echo(f"study {study_id}: {pending} pending again; start workers with `run` or `work`.")


def run_prioritize(study_id: str, project_dir: Path, slides: list[str], priority: int, why: str) -> None:
    with opened(project_dir) as (project, ledger):
        why = cleaned_reason(project, study_id, ledger, why)
        prioritize(ledger, study_id, slides, priority, actor=actor_here(), why=why)
    typer.echo(f"study {study_id}: {counted(len(slides), 'slide has', 'slides have')} priority {priority}.")


def _print(progress: Progress, ledger: Ledger, study_id: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_as_dict(progress, ledger, study_id)))
        return
    console = Console(width=None)
    slides = ", ".join(f"{number} {state}" for state, number in progress.counts.slides.items() if number)
    total = counted(progress.counts.total, "slide")
    console.print(Text(f"study {study_id} ({ledger.study(study_id).state}): {total}: {slides}"))
    table = Table("stage", "done", "held", "ready", "waiting", "ended", "seconds each")
    for stage, number in progress.counts.tasks.items():
        cells = [number[state] for state in ("done", "leased", "ready", "blocked", "ended")]
        seconds = progress.mean_s.get(stage)
        table.add_row(Text(stage), *map(str, cells), "" if seconds is None else f"{seconds:.1f}")
    console.print(table)
    if progress.left_s is not None and not progress.counts.is_over:
        left = counted(max(1, round(progress.left_s / 60)), "minute")
        console.print(f"{counted(progress.workers, 'worker')}; about {left} left")
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
    for failure in failures:
        table.add_row(*(Text(str(cell)) for cell in (failure.state, failure.code, failure.slides, failure.remedy)))
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
        "ledger": ledger.database.trouble(),
        "failures": [asdict(failure) for failure in failures],
        "remedies": remedies_of(failure.code for failure in failures),
    }
