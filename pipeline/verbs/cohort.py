"""`gemslide cohort init`, `gemslide cohort check` and `gemslide cohort pseudonymize`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from pipeline.cli_output import Reporter, errors_in_words
from pipeline.config import load_settings
from pipeline.ingest.check import check_slide
from pipeline.manifest import Cohort, SlideEntry, init_cohort, load_cohort
from pipeline.project import Project, open_project
from pipeline.pseudonyms import pseudonymize_cohort
from pipeline.run_record import SlideOutcome
from pipeline.source_names import SourceNames
from pipeline.tiles.annotations.files import read_annotations
from pipeline.tiles.annotations.region import check_regions
from pipeline.tiles.annotations.repair import labelled_regions
from pipeline.tiles.split import assign_splits


def run_init(folder: Path, out: Path) -> None:
    with errors_in_words():
        cohort = init_cohort(folder, out)
    annotated = sum(entry.annotations is not None for entry in cohort.entries)
    typer.echo(f"{out}: {len(cohort.entries)} slides, {annotated} with annotations beside them.")
    typer.echo(
        "Fill `patient_id` (and `split`, or let `gemslide tile` deal patients out), then `gemslide cohort check`."
    )


def run_check(manifest: Path, project: Path, *, as_json: bool) -> None:
    reporter = Reporter(as_json=as_json, sources=SourceNames(manifest, project=Project(project)))
    with errors_in_words(as_json=as_json, name="cohort", reporter=reporter):
        cohort = load_cohort(manifest)
        settings = load_settings(open_project(project).settings_path)
        assign_splits(cohort.included, settings.tile.split)
    for entry in cohort.included:
        reporter.attempt(entry.slide_id, partial(_check, cohort, entry, settings.ingest.keep_associated))
    reporter.finish()


def run_pseudonymize(manifest: Path, map_path: Path, out: Path, project: Path | None, *, keep_site: bool) -> None:
    with errors_in_words():
        done = pseudonymize_cohort(manifest, map_path, out, project=project, keep_site=keep_site)
    typer.echo(f"{out}: {done.num_slides} slides, {done.num_patients} patients; {done.num_new} new pseudonyms.")
    typer.echo(f"{map_path} is the only way back to the names. Keep it apart from the project, and keep a copy.")


def _check(cohort: Cohort, entry: SlideEntry, keep_associated: tuple[str, ...]) -> SlideOutcome:
    size_wh_px0 = check_slide(cohort, entry, keep_associated)
    annotations = cohort.annotations_path(entry)
    if annotations is None:
        return SlideOutcome(entry.slide_id, "done", message="can be ingested")
    regions, repairs = labelled_regions(read_annotations(annotations))
    check_regions(regions, size_wh_px0)
    return SlideOutcome(entry.slide_id, "done", message=f"can be ingested; annotations: {repairs.in_words()}")
