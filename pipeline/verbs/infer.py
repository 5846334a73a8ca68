"""`gemslide infer`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import InferConfig, load_settings
from pipeline.files import sha256_of
from pipeline.names import find_package
from pipeline.progress import bar
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.slide_names import find_slide_ids
from pipeline.source_names import SourceNames

if TYPE_CHECKING:
    from pipeline.inference.predictor import Predictor


def run_infer(model: str, slides: list[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).infer
        package, slide_ids = find_package(model, project), find_slide_ids(slides, project)
        predictor = _load(package)
        record = RunRecord("infer", {"infer": config.model_dump(mode="json"), "model": predictor.model_id})
        record.inputs.append({"id": predictor.model_id, "sha256": sha256_of(package / "model.safetensors")})
        with recorded(record, project.runs_dir), record.phase("infer"):
            for slide_id in slide_ids:
                work = partial(_infer, slide_id, predictor, project, config, record)
                record.slides.append(reporter.attempt(slide_id, work))
    reporter.finish()


def _load(package: Path) -> Predictor:
    from pipeline.inference.predictor import Predictor  # torch takes long: only when the names are known to be right

    return Predictor.load(package)


def _infer(
    slide_id: str, predictor: Predictor, project: Project, config: InferConfig, record: RunRecord
) -> SlideOutcome:
    from pipeline.inference.infer import infer_slide

    with bar(f"infer {slide_id}") as advance:
        report = infer_slide(slide_id, predictor, project, config, advance=advance)
    record.outputs.append(str(report.result_dir.relative_to(project.root)))
    for phase, seconds in report.seconds.items():
        record.seconds[phase] = round(record.seconds.get(phase, 0.0) + seconds, 3)
    return SlideOutcome(
        slide_id,
        "skipped" if report.skipped else "done",
        message=f"{'kept' if report.skipped else 'done'}: {report.num_tiles} tiles, {report.num_hotspots} hotspots",
        output=str(report.result_dir),
        seconds=round(sum(report.seconds.values()), 3),
    )
