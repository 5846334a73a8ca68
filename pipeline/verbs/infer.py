"""`gemslide infer`."""

from __future__ import annotations

from pathlib import Path

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import load_settings
from pipeline.files import sha256_of
from pipeline.names import find_package
from pipeline.project import open_project
from pipeline.run_record import RunRecord
from pipeline.slide_names import find_slide_ids
from pipeline.source_names import SourceNames
from pipeline.verbs.stages import run_recorded
from training.foundation.model_files import weights_file


def run_infer(model: str, slides: list[str], project_dir: Path, *, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = load_settings(project.settings_path).infer
        package, slide_ids = find_package(model, project), find_slide_ids(slides, project)
        # Its libraries take long to import: only when the names are known to be right.
        from pipeline.inference.stage import InferStage, load_once

        predictor = load_once(package)
        record = RunRecord("infer", {"infer": config.model_dump(mode="json"), "model": predictor.model_id})
        record.inputs.append({"id": predictor.model_id, "sha256": sha256_of(weights_file(package))})
        stages = [InferStage(slide_id, package, project, config) for slide_id in slide_ids]
        run_recorded(stages, reporter, record, project)
    reporter.finish()
