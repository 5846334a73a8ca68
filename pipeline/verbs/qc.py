"""`gemslide quality`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.cli_output import Reporter, report_errors
from pipeline.cohort.manifest import load_cohort
from pipeline.config import QualityConfig, load_settings
from pipeline.errors import BadManifestError, UnreadableError
from pipeline.progress import bar
from pipeline.project import Project, open_project
from pipeline.qc.check import check_quality
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.source_names import SourceNames
from pipeline.verbs.infer import find_slide_id


def run_quality(slides: list[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).quality
        slide_ids = _slide_ids(slides, project)
        record = RunRecord("quality", {"quality": config.model_dump(mode="json")})
        with recorded(record, project.runs_dir), record.phase("quality"):
            for slide_id in slide_ids:
                work = partial(_check, slide_id, project, config, record)
                record.slides.append(reporter.attempt(slide_id, work))
    reporter.finish()


def _slide_ids(slides: list[str], project: Project) -> list[str]:
    manifests = [name for name in slides if name.lower().endswith(".csv")]
    if manifests and len(slides) > 1:
        raise BadManifestError(f"give slides or one manifest, not both: {', '.join(slides)}.")
    if manifests:
        return [entry.slide_id for entry in load_cohort(Path(manifests[0])).included]
    slide_ids = [find_slide_id(name, project) for name in slides] or project.slide_ids()
    if not slide_ids:
        raise UnreadableError(f"{project.slides_dir}: no slides. Run `gemslide ingest` first.")
    return slide_ids


def _check(slide_id: str, project: Project, config: QualityConfig, record: RunRecord) -> SlideOutcome:
    """A slide for review is done all the same: people decide what to leave out."""
    with bar(f"quality {slide_id}") as advance:
        report = check_quality(slide_id, project, config, advance=advance)
    record.inputs.append({"id": slide_id, "sha256": report.source_sha256})
    record.outputs.append(str(report.image.relative_to(project.root)))
    why = f" ({'; '.join(report.reasons)})" if report.reasons else ""
    return SlideOutcome(
        slide_id,
        "skipped" if report.skipped else "done",
        message=f"{'kept' if report.skipped else 'done'}: {report.verdict}{why}",
        output=str(report.image),
        seconds=report.seconds,
    )
