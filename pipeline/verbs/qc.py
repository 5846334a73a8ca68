"""`gemslide qc`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import QualityConfig, load_settings
from pipeline.progress import bar
from pipeline.project import Project, open_project
from pipeline.qc.check import check_quality
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.slide_names import find_slide_ids
from pipeline.source_names import SourceNames


def run_qc(slides: list[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).qc
        slide_ids = find_slide_ids(slides, project)
        record = RunRecord("qc", {"qc": config.model_dump(mode="json")})
        with recorded(record, project.runs_dir), record.phase("qc"):
            for slide_id in slide_ids:
                work = partial(_check, slide_id, project, config, record)
                record.slides.append(reporter.attempt(slide_id, work))
    reporter.finish()


def _check(slide_id: str, project: Project, config: QualityConfig, record: RunRecord) -> SlideOutcome:
    """A slide for review is done all the same: people decide what to leave out."""
    with bar(f"qc {slide_id}") as advance:
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
