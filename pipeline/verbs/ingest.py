"""`gemslide ingest`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import typer

from pipeline.cohort.manifest import Cohort, load_cohort
from pipeline.ingest.ingest import IngestRequest
from pipeline.ingest.linked import appear
from pipeline.ingest.stage import IngestStage
from pipeline.naming.slides import included_in, manifest_in
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord
from pipeline.settings.config import load_settings
from pipeline.slides.suffixes import slide_id_from
from pipeline.spreadsheets import TABLE_SUFFIXES
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.settings import replace
from training.foundation.words.counts import counted


class Given(NamedTuple):
    """Values typed for the slide, which override those of its file and the manifest."""

    slide_id: str | None
    mpp: float | None
    series: str | None
    link: bool = False
    """Whether the stores shall point at the slides' tiles."""


def run_ingest(
    sources: list[Path], project_dir: Path, given: Given, *, keep: tuple[str, ...], workers: int, as_json: bool
) -> None:
    """Ingest slides; `keep` names associated images to keep besides those of the settings."""
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*sources, project=project))
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).ingest
        config = replace(config, keep_associated=tuple(dict.fromkeys((*config.keep_associated, *keep))))
        manifest = manifest_in([str(path) for path in sources])
        cohort = load_cohort(manifest) if manifest else None
        reporter.say_notes(cohort.notes if cohort else ())
        requests = _requests(sources, given, cohort)
        _warn_of_names(sources, requests, project)
        record = RunRecord("ingest", {"ingest": config.model_dump(mode="json"), "mpp": given.mpp})
        stages = [IngestStage(request, project, config, link=given.link) for request in requests]
        for stage in stages if given.link else ():
            _appear(stage)
        # Its database takes a quarter of a second to import, and linked slides appear without it.
        from pipeline.verbs.stages import run_recorded

        run_recorded(stages, reporter, record, project, workers=workers)
    reporter.finish()


def _appear(stage: IngestStage) -> None:
    """Make a slide viewable before any is read as a whole; an error is reported by its stage, which meets it again."""
    with suppress(GemslideError):
        if appear(stage.request, stage.project, stage.config):
            typer.echo(f"{stage.slide_id}: can be viewed now; it is being compared with its file.", err=True)


def _requests(sources: list[Path], given: Given, cohort: Cohort | None) -> list[IngestRequest]:
    slide_id, mpp, series, _ = given
    if slide_id and (cohort or len(sources) > 1):
        given_as = cohort.path if cohort else f"{len(sources)} slides"
        raise BadRecipeError(
            f"--slide-id {slide_id} names one slide, and {given_as} may hold several. "
            "Give one slide, or a manifest with a `slide_id` column."
        )
    if cohort is None:
        return [IngestRequest(path, slide_id or slide_id_from(path), mpp_option=mpp, series=series) for path in sources]
    if series is not None:
        raise BadRecipeError(
            f"--series {series}: with a manifest, set the series of each slide in its `series` column."
        )
    return [IngestRequest(cohort.slide_path(e), e.slide_id, e.mpp, mpp, e.series) for e in included_in(cohort)]


def _warn_of_names(sources: list[Path], requests: list[IngestRequest], project: Project) -> None:
    """Warn once, before ingest, of names that may identify patients; a program cannot know whether they do."""
    named = sum(request.slide_id == slide_id_from(request.path) for request in requests)
    if named:
        slides = counted(len(requests), "slide")
        typer.echo(
            f"{counted(named, f'of {slides} is named after its file', f'of {slides} are named after their files')}. "
            "If file names identify patients, ingest a manifest made by `gemslide cohort pseudonymize`.",
            err=True,
        )
    root = project.root.resolve()
    for path in (path for path in sources if path.suffix.lower() in TABLE_SUFFIXES and root in path.resolve().parents):
        typer.echo(f"{path} is in the project folder, but it names files and patients. Keep it elsewhere.", err=True)
