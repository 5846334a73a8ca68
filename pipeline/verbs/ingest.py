"""`gemslide ingest`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.cli_output import Reporter, errors_in_words
from pipeline.config import IngestConfig, load_settings
from pipeline.errors import BadManifestError
from pipeline.ingest.ingest import IngestRequest, ingest_slide
from pipeline.manifest import load_cohort
from pipeline.progress import bar
from pipeline.project import Project
from pipeline.run_record import RunRecord, SlideOutcome, recorded


def run_ingest(sources: list[Path], project_dir: Path, *, mpp: float | None, as_json: bool) -> None:
    project = Project(project_dir)
    reporter = Reporter(as_json=as_json)
    with errors_in_words(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).ingest
        requests = _requests(sources, mpp)
        record = RunRecord("ingest", {"ingest": config.model_dump(mode="json"), "mpp": mpp})
        with recorded(record, project.runs_dir), record.phase("ingest"):
            for request in requests:
                outcome = reporter.attempt(request.slide_id, partial(_ingest, request, project, config, record))
                record.slides.append(outcome)
    reporter.finish()


def _requests(sources: list[Path], mpp: float | None) -> list[IngestRequest]:
    manifests = [path for path in sources if path.suffix.lower() == ".csv"]
    if not manifests:
        return [IngestRequest(path, path.name.removesuffix(path.suffix), mpp_option=mpp) for path in sources]
    if len(sources) > 1:
        raise BadManifestError(f"give slides or one manifest, not both: {', '.join(str(p) for p in sources)}.")
    cohort = load_cohort(manifests[0])
    return [IngestRequest(cohort.slide_path(e), e.slide_id, e.mpp, mpp) for e in cohort.included]


def _ingest(request: IngestRequest, project: Project, config: IngestConfig, record: RunRecord) -> SlideOutcome:
    with bar(f"ingest {request.slide_id}") as advance:
        report = ingest_slide(request, project, config, advance=advance)
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
