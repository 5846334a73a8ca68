"""`gemslide infer`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import typer

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import InferConfig, load_settings
from pipeline.errors import UnreadableError
from pipeline.files import sha256_of
from pipeline.inference.infer import infer_slide
from pipeline.inference.predictor import Predictor
from pipeline.inference.stain_check import KEY, warning_of
from pipeline.progress import bar
from pipeline.project import STORE_SUFFIX, Project, check_name, open_project, slide_id_of
from pipeline.run_record import RunRecord, SlideOutcome, recorded
from pipeline.source_names import SourceNames
from training.foundation.names import is_name


def run_infer(model: str, slides: list[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).infer
        package = find_package(model, project)
        predictor = Predictor.load(package)
        slide_ids = [find_slide_id(name, project) for name in slides] or project.slide_ids()
        if not slide_ids:
            raise UnreadableError(f"{project.slides_dir}: no slides. Run `gemslide ingest` first.")
        record = RunRecord("infer", {"infer": config.model_dump(mode="json"), "model": predictor.model_id})
        record.inputs.append({"id": predictor.model_id, "sha256": sha256_of(package / "model.safetensors")})
        with recorded(record, project.runs_dir), record.phase("infer"):
            for slide_id in slide_ids:
                work = partial(_infer, slide_id, predictor, project, config, record)
                record.slides.append(reporter.attempt(slide_id, work))
    reporter.finish()


def find_package(model: str, project: Project) -> Path:
    """A package by model id, or by its folder.

    Raises:
        UnreadableError: there is neither. BadManifestError: the folder's name is no model id.
    """
    # Resolved: `.` in a package's folder is that package, and its name is the model's id.
    in_project = [project.model_path(model)] if is_name(model) else []
    for folder in (*in_project, Path(model).resolve()):
        if (folder / "config.json").exists():
            check_name(folder.name, what="model", remedy="Give the package's folder its own name again.")
            return folder
    known = ", ".join(sorted(p.name for p in project.models_dir.glob("*") if p.name[0] != ".")) or "none"
    raise UnreadableError(f"{model}: no such model. {project.models_dir} has: {known}. Make one with `gemslide train`.")


def find_slide_id(name: str, project: Project) -> str:
    """A slide by its id, or by the path of its store in this project.

    Raises:
        UnreadableError: the path is another project's store, or not a store.
    """
    path = Path(name)
    if os.sep not in name and not name.endswith(STORE_SUFFIX):
        return check_name(name, what="slide", remedy="Give a slide's id, or its store's path.")
    slide_id = slide_id_of(path)
    if path.resolve() != project.store_path(slide_id).resolve():
        raise UnreadableError(
            f"{name}: is not a store of the project {project.root}. Give the slide's id, its store's path, or the "
            "--project it belongs to; a slide file must be ingested first."
        )
    return slide_id


def _infer(
    slide_id: str, predictor: Predictor, project: Project, config: InferConfig, record: RunRecord
) -> SlideOutcome:
    with bar(f"infer {slide_id}") as advance:
        report = infer_slide(slide_id, predictor, project, config, advance=advance)
    record.outputs.append(str(report.result_dir.relative_to(project.root)))
    for phase, seconds in report.seconds.items():
        record.add_seconds(phase, seconds)
    distance = report.colour_distance
    record.extra.setdefault(KEY, {})[slide_id] = "not known" if distance is None else distance
    warning = warning_of(distance)
    if warning:
        typer.echo(f"warning: slide {slide_id}: {warning}.", err=True)
    kept = "kept" if report.skipped else "done"
    return SlideOutcome(
        slide_id,
        "skipped" if report.skipped else "done",
        message="; ".join(
            [f"{kept}: {report.num_tiles} tiles, {report.num_hotspots} hotspots", *([warning] if warning else [])]
        ),
        output=str(report.result_dir),
        seconds=round(sum(report.seconds.values()), 3),
    )
