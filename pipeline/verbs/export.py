"""`gemslide export`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import AmbiguousSeriesError
from pipeline.export.common.target import check_free
from pipeline.export.dicom.kinds import DICOM_KINDS, DicomKind
from pipeline.export.export import ExportRequest, export_slide, kind_of
from pipeline.naming.slides import find_store
from pipeline.naming.sources import SourceNames
from pipeline.places.object_path import ObjectPath, StorePath
from pipeline.project import Project, open_project, slide_id_of
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.store.layers.overlays import read_predictions
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError
from training.foundation.progress import bar


@dataclass(frozen=True)
class DicomRequest:
    """Predictions to write as DICOM, on the DICOM slide they were made from."""

    store: StorePath
    out: Path
    kind: DicomKind
    model_id: str
    source: Path


class Asked(NamedTuple):
    """Options of `gemslide export`, as typed."""

    out: Path
    to: str | None
    quality: int | None
    associated: bool
    model: str | None
    source: Path | None
    plane_um: float | None


def run_export(slide: str, project_dir: Path, asked: Asked, *, as_json: bool) -> None:
    out, to, quality, associated, model, source, plane_um = asked
    named = [out] if source is None else [out, source]
    reporter = Reporter(as_json=as_json, sources=SourceNames(*named, project=Project(project_dir)))
    reporter.sources.add_typed([slide], Project(project_dir))
    with report_errors(as_json=as_json, name="export", reporter=reporter):
        project = open_project(project_dir)
        store = find_store(slide, project)
        work: Callable[[RunRecord], SlideOutcome]
        # The record holds neither the copy's folder nor its name: both can identify people.
        if to in DICOM_KINDS or model or source:
            dicom = _dicom_request(store, asked)
            record = RunRecord("export", {"to": dicom.kind, "model": dicom.model_id})
            work = partial(_export_dicom, dicom)
        else:
            request = ExportRequest(store, out, kind_of(to, out), quality, associated, plane_um)
            options = {"to": request.kind, "quality": quality, "associated": associated}
            record = RunRecord("export", {**options, **({} if plane_um is None else {"plane_um": plane_um})})
            work = partial(_export, request)
        _recorded(store, _project_of(store, project), record, reporter, work)
    reporter.finish()


def _recorded(
    store: StorePath,
    project: Project | None,
    record: RunRecord,
    reporter: Reporter,
    work: Callable[[RunRecord], SlideOutcome],
) -> None:
    """Do the work, with a run record if the store is in a project."""
    if project is None:
        reporter.attempt(slide_id_of(store), lambda: work(record))
    else:
        with recorded(record, project.runs_dir), record.phase("export"):
            record.slides.append(_unplaced(reporter.attempt(slide_id_of(store), lambda: work(record))))


def _dicom_request(store: StorePath, asked: Asked) -> DicomRequest:
    out, to, model, source = asked.out, asked.to, asked.model, asked.source
    if asked.plane_um is not None:
        raise BadRecipeError(f"--plane {asked.plane_um:g}: predictions are of one focal plane. Leave the option out.")
    for kind in DICOM_KINDS:
        if kind == to and model and source:
            return DicomRequest(store, out, kind, model, source)
    if to in DICOM_KINDS:
        raise BadRecipeError(
            f"--to {to}: needs --model MODEL_ID (whose predictions) and --source SLIDE (the DICOM slide they are for)."
        )
    raise BadRecipeError(f"--model and --source are for --to {' and --to '.join(DICOM_KINDS)}. Leave them out.")


def _project_of(store: StorePath, project: Project) -> Project | None:
    """Project that contains a store, if any: for one in a bucket, `project`, if it is that project's bucket."""
    if isinstance(store, ObjectPath):
        return project if project.owns(store) else None
    folder = store.resolve().parent
    return Project(folder.parent) if folder.name == "slides" else None


def _unplaced(outcome: SlideOutcome) -> SlideOutcome:
    return SlideOutcome(outcome.slide_id, outcome.status, code=outcome.code, seconds=outcome.seconds)


def _export_dicom(request: DicomRequest, record: RunRecord) -> SlideOutcome:
    from pipeline.export.dicom.results import write_dicom_results  # its libraries are slow to import

    start = time.perf_counter()
    check_free(request.out, request.store)
    reader = StoreReader(request.store)
    predictions = read_predictions(request.store, request.model_id)
    files = {request.kind: request.out}
    try:
        remark = write_dicom_results(request.source, predictions, files, source_sha256=reader.source_sha256)
    except AmbiguousSeriesError as error:
        raise AmbiguousSeriesError(
            f"{request.source.name}: contains several series. Name a folder with only the files of the "
            f"series that slide {reader.slide_id} was made from."
        ) from error
    record.inputs.append({"id": reader.slide_id, "sha256": reader.source_sha256})
    record.outputs.append(f"{request.kind}, {request.out.stat().st_size} bytes")
    return SlideOutcome(
        reader.slide_id,
        "done",
        message=f"done: {request.out} ({request.kind}). Its patient data are those of the DICOM slide"
        + (f"; {remark}" if remark else ""),
        seconds=round(time.perf_counter() - start, 3),
    )


def _export(request: ExportRequest, record: RunRecord) -> SlideOutcome:
    with bar(f"export {slide_id_of(request.store)}") as advance:
        report = export_slide(request, advance=advance)
    record.inputs.append({"id": report.slide_id, "sha256": report.source_sha256})
    record.outputs.append(f"{request.kind}, {report.bytes} bytes")
    # A JSON line does not say where the copy went either: the name is removed from its message.
    how = "; ".join(f"{name} {method}" for name, method in report.how.items())
    return SlideOutcome(
        report.slide_id,
        "done",
        message=f"done: {request.out} ({request.kind}, {report.bytes / 2**20:.1f} MiB): {how}{report.planes}",
        seconds=report.seconds,
    )
