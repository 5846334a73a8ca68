"""`gemslide features …`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.cohort.manifest import load_cohort
from pipeline.errors import BadManifestError
from pipeline.export.common.target import check_free
from pipeline.export.features.clam import CSV_NAME, write_slide_table
from pipeline.export.features.exchange import (
    FeatureFile,
    Program,
    check_encoder_name,
    export_features,
    import_features,
    store_imported,
)
from pipeline.export.features.tile_size import TileSize
from pipeline.naming.slides import find_slide_id, find_slide_ids, manifest_in
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.store.layers.features import StoredFeatures, features_path, list_features, open_features
from pipeline.store.reading.reader import StoreReader
from pipeline.verbs.cli_output import Reporter, report_errors
from training.foundation.errors import BadRecipeError, GemslideError
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class ExportRequest:
    """Program that features are written for, the folder, and the encoder (None: the only one)."""

    program: Program
    out: Path
    encoder_id: str | None


@dataclass(frozen=True)
class ImportRequest:
    """Options of `gemslide features import`, as typed."""

    path: Path
    slide: str
    program: Program
    names: tuple[str, ...]
    given: TileSize


def run_list(slides: Sequence[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, name="features", reporter=reporter):
        for slide_id in find_slide_ids(slides, project):
            _list(slide_id, project, reporter)
    reporter.finish()


def _list(slide_id: str, project: Project, reporter: Reporter) -> None:
    start = time.perf_counter()
    store = project.stored_at(slide_id)
    try:
        StoreReader(store)  # a damaged store without features is reported as well
        stored = [open_features(store, encoder_id) for encoder_id in list_features(store)]
    except GemslideError as error:
        reporter.add(SlideOutcome.from_error(slide_id, error, time.perf_counter() - start))
        return
    for features in stored:
        reporter.sources.keep(features.encoder_id)
    message = "; ".join(map(_described, stored)) or "no features"
    reporter.add(
        SlideOutcome(slide_id, "done", message=message, seconds=round(time.perf_counter() - start, 3)),
        features=[_facts(features) for features in stored],
    )


def _described(features: StoredFeatures) -> str:
    return (
        f"{features.encoder_id}: {counted(features.num_tiles, 'tile')} of {features.side_px0:g} px0, "
        f"{counted(features.dims, 'feature')} each"
    )


def _facts(features: StoredFeatures) -> dict[str, Any]:
    return {
        "encoder_id": features.encoder_id,
        "tiles": features.num_tiles,
        "dims": features.dims,
        "side_px0": features.side_px0,
        "stride_px0": features.stride_px0,
        "imported": features.attributes["encoder"].get("imported"),
    }


def run_export(slides: Sequence[str], project_dir: Path, request: ExportRequest, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(request.out, project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, name="features", reporter=reporter):
        slide_ids = find_slide_ids(slides, project)
        cases = _cases(slides)
        table = request.out / CSV_NAME
        if request.program == "clam":
            check_free(table, project.slides_dir)
        # The record holds neither the folder nor its name: both can identify people.
        record = RunRecord("features export", {"to": request.program, "encoder": request.encoder_id})
        with recorded(record, project.runs_dir), record.phase("export"):
            for slide_id in slide_ids:
                outcome = reporter.attempt(slide_id, partial(_export, slide_id, project, request, record))
                record.slides.append(outcome)
            done = [outcome.slide_id for outcome in record.slides if outcome.is_good]
            if request.program == "clam" and done:
                write_slide_table(table, [cases.get(slide_id, (slide_id, slide_id, "")) for slide_id in done])
                if not cases:
                    reporter.say_notes([f"{CSV_NAME} has no labels; name a cohort manifest to fill them in."])
    reporter.finish()


def _cases(slides: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Case, slide and label of each slide of a manifest; empty if none was named."""
    manifest = manifest_in(slides)
    if manifest is None:
        return {}
    entries = load_cohort(manifest).included
    return {e.slide_id: (e.patient_id or e.slide_id, e.slide_id, e.label or "") for e in entries}


def _export(slide_id: str, project: Project, request: ExportRequest, record: RunRecord) -> SlideOutcome:
    start = time.perf_counter()
    reader = StoreReader(project.stored_at(slide_id))
    paths = export_features(reader, request.program, request.out, encoder_id=request.encoder_id)
    num_bytes = sum(path.stat().st_size for path in paths)
    record.inputs.append({"id": slide_id, "sha256": reader.source_sha256})
    record.outputs.append(f"{request.program}, {num_bytes} bytes")
    return SlideOutcome(
        slide_id,
        "done",
        message=f"done: {', '.join(map(str, paths))} ({request.program}, {num_bytes / 2**20:.1f} MiB)",
        seconds=round(time.perf_counter() - start, 3),
    )


def run_import(request: ImportRequest, project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(request.path, project=project))
    reporter.sources.add_typed([request.slide], project)
    with report_errors(as_json=as_json, name="features", reporter=reporter):
        file = FeatureFile(request.path, request.program, _name(request, project), request.given)
        slide_id = find_slide_id(request.slide, project)
        record = RunRecord("features import", {"from": file.program, "encoder": file.name, **asdict(request.given)})
        with recorded(record, project.runs_dir), record.phase("import"):
            outcome = reporter.attempt(slide_id, partial(_import, slide_id, project, file, record, reporter))
            record.slides.append(outcome)
    reporter.finish()


def _name(request: ImportRequest, project: Project) -> str:
    """The encoder's name, of which there must be one that no row of the project has."""
    if len(request.names) != 1:
        raise BadManifestError(
            f"--encoder {', '.join(request.names)}: one file holds the features of one encoder; give one name."
        )
    name = check_encoder_name(request.names[0])
    row = project.root / "encoders" / f"{name}.toml"
    if row.exists():
        raise BadRecipeError(
            f"--encoder {name}: is an encoder of this project ({row}), and these features were not made with it here. "
            "Give them another name."
        )
    return name


def _import(slide_id: str, project: Project, file: FeatureFile, record: RunRecord, reporter: Reporter) -> SlideOutcome:
    start = time.perf_counter()
    reader = StoreReader(project.store_path(slide_id))
    features = import_features(reader, file)
    reporter.sources.keep(features.encoder_id)
    target = features_path(reader.folder, features.encoder_id)
    is_new = store_imported(reader, features)
    record.inputs.append({"id": slide_id, "sha256": features.attributes["encoder"]["imported"]["sha256"]})
    record.outputs.append(str(target.relative_to(project.root)))
    num_tiles, dims = features.values_nd.shape
    return SlideOutcome(
        slide_id,
        "done" if is_new else "skipped",
        message=f"{'done' if is_new else 'kept'}: {features.encoder_id}, {counted(num_tiles, 'tile')} of "
        f"{features.side_px0:g} px0, {counted(dims, 'feature')} each",
        output=str(target),
        seconds=round(time.perf_counter() - start, 3),
    )
