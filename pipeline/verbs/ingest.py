"""`gemslide ingest`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from pipeline.cli_output import Reporter, report_errors
from pipeline.cohort.manifest import load_cohort
from pipeline.config import IngestConfig, load_settings
from pipeline.errors import BadManifestError, GemslideError
from pipeline.ingest.ingest import IngestReport, IngestRequest, ingest_slide
from pipeline.jobs.pool import Result, ingest_many
from pipeline.progress import bar
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.source_names import SourceNames
from training.foundation.settings import replace


def run_ingest(
    sources: list[Path],
    project_dir: Path,
    *,
    mpp: float | None,
    series: str | None,
    keep: tuple[str, ...],
    workers: int,
    as_json: bool,
) -> None:
    """Ingest slides; `keep` names associated images to keep besides those of the settings."""
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(*sources, project=project))
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).ingest
        config = replace(config, keep_associated=tuple(dict.fromkeys((*config.keep_associated, *keep))))
        requests = _requests(sources, mpp, series)
        _warn_of_names(sources, requests, project)
        record = RunRecord("ingest", {"ingest": config.model_dump(mode="json"), "mpp": mpp})
        with recorded(record, project.runs_dir), record.phase("ingest"):
            if workers == 1 or len(requests) == 1:
                for request in requests:
                    work = partial(_ingest_here, request, project, config)
                    _note(request, reporter, record, project, work)
            else:
                _ingest_many(requests, project, config, reporter, record, min(workers, len(requests)))
    reporter.finish()


def _requests(sources: list[Path], mpp: float | None, series: str | None) -> list[IngestRequest]:
    manifests = [path for path in sources if path.suffix.lower() == ".csv"]
    if not manifests:
        return [IngestRequest(path, path.stem, mpp_option=mpp, series=series) for path in sources]
    if len(sources) > 1:
        raise BadManifestError(f"give slides or one manifest, not both: {', '.join(str(p) for p in sources)}.")
    cohort = load_cohort(manifests[0])
    return [IngestRequest(cohort.slide_path(e), e.slide_id, e.mpp, mpp) for e in cohort.included]


def _warn_of_names(sources: list[Path], requests: list[IngestRequest], project: Project) -> None:
    """Say once what may name patients, while there is still time; that it does is nothing a program can know."""
    named = sum(request.slide_id == request.path.stem for request in requests)
    if named:
        typer.echo(
            f"{named} of {len(requests)} slides are named after their files. If file names name patients, ingest a "
            "manifest made by `gemslide cohort pseudonymize`.",
            err=True,
        )
    root = project.root.resolve()
    for path in (path for path in sources if path.suffix.lower() == ".csv" and root in path.resolve().parents):
        typer.echo(f"{path} lies in the project folder; it names files and patients. Keep it elsewhere.", err=True)


def _ingest_here(request: IngestRequest, project: Project, config: IngestConfig) -> IngestReport:
    with bar(f"ingest {request.slide_id}") as advance:
        return ingest_slide(request, project, config, advance=advance)


def _ingest_many(
    requests: list[IngestRequest],
    project: Project,
    config: IngestConfig,
    reporter: Reporter,
    record: RunRecord,
    workers: int,
) -> None:
    with bar("ingest", total=len(requests)) as advance:

        def done(request: IngestRequest, result: Result) -> None:
            _note(request, reporter, record, project, lambda: _report(result))
            advance(1)

        ingest_many(requests, project, config, workers=workers, done=done)


def _report(result: Result) -> IngestReport:
    if isinstance(result, GemslideError):
        raise result
    return result


def _note(
    request: IngestRequest,
    reporter: Reporter,
    record: RunRecord,
    project: Project,
    work: Callable[[], IngestReport],
) -> None:
    """Do the work on one slide, say how it ended and keep it for the run record."""

    def outcome() -> SlideOutcome:
        report = work()
        record.inputs.append({"id": report.slide_id, "sha256": report.sha256})
        record.outputs.append(str(report.store.relative_to(project.root)))
        routes = ", ".join(f"{level.path} {level.route}" for level in report.levels)
        return SlideOutcome(
            report.slide_id,
            "skipped" if report.skipped else "done",
            message=f"{'kept' if report.skipped else 'done'}: levels {routes}; tissue {report.tissue_fraction:.1%}",
            output=str(report.store),
            seconds=report.seconds,
        )

    record.slides.append(reporter.attempt(request.slide_id, outcome))
