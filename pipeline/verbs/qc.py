"""`gemslide qc`."""

from __future__ import annotations

from pathlib import Path

from pipeline.naming.slides import find_slide_ids
from pipeline.naming.sources import SourceNames
from pipeline.project import open_project
from pipeline.qc.stage import QcStage
from pipeline.run_record import RunRecord
from pipeline.settings.config import load_settings
from pipeline.verbs.cli_output import Reporter, report_errors
from pipeline.verbs.stages import run_recorded
from training.foundation.settings import replace


def run_qc(slides: list[str], project_dir: Path, *, plane_um: float | None, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        config = replace(load_settings(project.settings_path).qc, plane_um=plane_um)
        stages = [QcStage(slide_id, project, config) for slide_id in find_slide_ids(slides, project)]
        run_recorded(stages, reporter, RunRecord("qc", {"qc": config.model_dump(mode="json")}), project)
    reporter.finish()
