"""`gemslide export`."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli_output import Reporter, report_errors
from pipeline.export.export import ExportRequest, export_slide, kind_of
from pipeline.progress import bar
from pipeline.project import Project, open_project, slide_id_of
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.slide_names import find_store
from pipeline.source_names import SourceNames


def run_export(
    slide: str, out: Path, project_dir: Path, *, to: str | None, quality: int | None, associated: bool, as_json: bool
) -> None:
    reporter = Reporter(as_json=as_json, sources=SourceNames(out, project=Project(project_dir)))
    reporter.sources.add_typed([slide], Project(project_dir))
    with report_errors(as_json=as_json, name="export", reporter=reporter):
        store = find_store(slide, open_project(project_dir))
        project = _project_of(store)
        request = ExportRequest(store, out, kind_of(to, out), quality, associated)
        # The record says neither where the copy went nor under which name: both can name people.
        settings = {"to": request.kind, "quality": quality, "associated": associated}
        record = RunRecord("export", settings)
        if project is None:
            reporter.attempt(slide_id_of(store), lambda: _export(request, record))
        else:
            with recorded(record, project.runs_dir), record.phase("export"):
                record.slides.append(_unplaced(reporter.attempt(slide_id_of(store), lambda: _export(request, record))))
    reporter.finish()


def _project_of(store: Path) -> Project | None:
    """The project that a store lies in, if it is one."""
    folder = store.resolve().parent
    return Project(folder.parent) if folder.name == "slides" else None


def _unplaced(outcome: SlideOutcome) -> SlideOutcome:
    return SlideOutcome(outcome.slide_id, outcome.status, code=outcome.code, seconds=outcome.seconds)


def _export(request: ExportRequest, record: RunRecord) -> SlideOutcome:
    with bar(f"export {slide_id_of(request.store)}") as advance:
        report = export_slide(request, advance=advance)
    record.inputs.append({"id": report.slide_id, "sha256": report.source_sha256})
    record.outputs.append(f"{request.kind}, {report.bytes} bytes")
    # Neither does a JSON line say where the copy went: it takes the name out of the message.
    how = "; ".join(f"{name} {words}" for name, words in report.how.items())
    return SlideOutcome(
        report.slide_id,
        "done",
        message=f"done: {request.out} ({request.kind}, {report.bytes / 2**20:.1f} MiB): {how}",
        seconds=report.seconds,
    )
