"""`gemslide study erase` and `export`."""

from __future__ import annotations

from pathlib import Path

import typer

from pipeline.ledger.opening import actor_here
from pipeline.study.privacy.keyed import open_pseudonym_key
from pipeline.study.proof.erasure import erase
from pipeline.study.work.study import begun_study
from pipeline.units import RESEARCH_USE
from pipeline.verbs.study.study import opened
from training.foundation.words.counts import counted

BEYOND = (
    "Not within reach of this command, so erase them yourself: the slide files, their lines in a map of pseudonyms, "
    "copies, exports and backups. On PostgreSQL also run VACUUM FULL, and let the archived write-ahead log expire."
)


def run_erase(study_id: str, project_dir: Path, slides: list[str], why: str) -> None:
    with opened(project_dir) as (project, ledger):
        erased = erase(begun_study(project, study_id, ledger), slides, actor=actor_here(), why=why)
    entries = counted(erased.entries, "entry", "entries")
    typer.echo(f"study {study_id}: {counted(len(slides), 'slide')} erased, with the content of {entries} of the log.")
    for path in erased.still_named_in:
        typer.echo(f"still names one of them, or is too large to search: {path}")
    typer.echo(BEYOND)


def run_export(study_id: str, project_dir: Path, out: Path, key: Path, results: list[str]) -> None:
    from pipeline.study.privacy.export import export_study

    with opened(project_dir) as (project, ledger):
        study = begun_study(project, study_id, ledger)
        done = export_study(study, out, open_pseudonym_key(key), results=results, actor=actor_here())
    typer.echo(f"{done.folder}: {counted(done.files, 'file')}, in which no name from the study was found.")
    if done.unsearchable:
        typer.echo(
            f"{counted(done.unsearchable, 'name is', 'names are')} too short to search for "
            '(a site "A", say); tables hold pseudonyms instead, but check the files that you add with --result.'
        )
    typer.echo(f"{RESEARCH_USE} Keep {key} separate: it links pseudonyms to names.")
