"""`gemslide folds`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.cohort.look_alikes import WHAT_TO_DO, look_alikes
from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.files import sha256_of
from pipeline.naming.sources import SourceNames
from pipeline.project import Project
from pipeline.slide_level.clinical import choose_unit, load_clinical
from pipeline.slide_level.folds import Folds, FoldUnit, fold_units, make_folds, write_folds
from pipeline.slide_level.targets import natural_key
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError
from training.foundation.words.counts import counted

NO_VALUE = "no value"


@dataclass(frozen=True)
class FoldsRequest:
    """The command's options: the columns that are balanced, and their table."""

    number: int
    seed: int
    table: Path | None = None
    by: str | None = None
    event: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for column in (self.by, self.event) if column is not None)


def run_folds(manifest: Path, project: Path, asked: FoldsRequest, out: Path, *, as_json: bool) -> None:
    tables = [manifest, asked.table] if asked.table else [manifest]
    reporter = Reporter(as_json=as_json, sources=SourceNames(*tables, project=Project(project)))
    with report_errors(as_json=as_json, name="folds", reporter=reporter):
        if not asked.columns:
            raise BadRecipeError("no column to stratify by. Give that of the classes with --by, or --event.")
        cohort = load_cohort(manifest)
        clinical = load_clinical(asked.table) if asked.table else None
        unit, difference = choose_unit(cohort, clinical, asked.columns)
        reporter.say_notes(_notes(cohort, difference))
        units = fold_units(cohort, clinical, unit, by=asked.by, event=asked.event)
        folds = make_folds(
            units,
            asked.number,
            asked.seed,
            unit=unit,
            stratified_by=asked.columns,
            cohort_sha256=sha256_of(cohort.path),
            table_sha256=clinical.sha256 if clinical else None,
        )
        write_folds(out, folds)
    for group in look_alikes(folds.patients):
        named = ", ".join(map(repr, group))
        message = reporter.explained(f"patients {named} look like one, and are in one fold. {WHAT_TO_DO}.")
        typer.echo(f"warning: {message}", err=True)
    _print_counts(folds, units, out, reporter, as_json=as_json)


def _notes(cohort: Cohort, difference: str) -> list[str]:
    notes = cohort.notes
    if difference:
        notes.append(f"{difference}, so slides are counted; a patient is still in one fold only.")
    if any(entry.split for entry in cohort.included):
        notes.append(f"the column `split` of {cohort.path} has no influence on folds: every included slide is in one.")
    return notes


def _print_counts(folds: Folds, units: Sequence[FoldUnit], out: Path, reporter: Reporter, *, as_json: bool) -> None:
    counts = [Counter[str]() for _ in range(folds.number)]
    for unit in units:
        counts[folds.patients[unit.patient]][unit.stratum or NO_VALUE] += 1
    patients = Counter(folds.patients.values())
    if as_json:
        rows = [{"fold": fold, "patients": patients[fold], "counts": dict(counts[fold])} for fold in range(len(counts))]
        facts = folds.model_dump(mode="json", exclude={"patients"}) | {"folds": rows}
        # Columns are named on the command line, but would be taken for names in a source.
        typer.echo(json.dumps({"output": reporter.sources.removed_from(str(out)), **facts}))
        return
    strata = sorted(
        {stratum for fold in counts for stratum in fold}, key=lambda name: (name == NO_VALUE, natural_key(name))
    )
    title = Text(f"{folds.unit}s by {', '.join(folds.stratified_by)}")  # not markup: columns have any name
    table = Table(title=title, title_justify="left")
    table.add_column("fold", justify="right")
    for heading in (*strata, "patients"):
        table.add_column(Text(heading), justify="right", overflow="fold")
    for fold, row in enumerate(counts):
        table.add_row(str(fold), *(f"{row[stratum]:,}" for stratum in strata), f"{patients[fold]:,}")
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    slides = f", {counted(len(units), 'slide')}" if folds.unit == "slide" else ""
    typer.echo(f"{out}: {counted(len(folds.patients), 'patient')}{slides} in {folds.number} folds, seed {folds.seed}.")
