"""`gemslide infer`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.files import sha256_of
from pipeline.jobs.stage import Stage
from pipeline.naming.models import find_package
from pipeline.naming.slides import SlideToDo, find_slides_to_do
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord
from pipeline.settings.config import Settings, load_settings
from pipeline.verbs.chain import after_ingest
from pipeline.verbs.cli_output import Reporter, report_errors, say_counts
from pipeline.verbs.stages import run_recorded
from training.foundation.model_files import weights_file
from training.foundation.settings import replace


def run_infer(
    model: str, slides: list[str], project_dir: Path, *, devices: str, plane_um: float | None, as_json: bool
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        settings = at_plane(load_settings(project.settings_path), plane_um)
        package = find_package(model, project)
        todo = find_slides_to_do(slides, project)
        # Its libraries are slow to import: only once the names are known to be right.
        from pipeline.batches.sharing import gather_outcomes, serve_first_rank, share_of_this_process
        from pipeline.inference.predictor import Predictor, run_on_of
        from pipeline.inference.stage import close_devices

        share = share_of_this_process(devices, len(todo))
        if share.serves:
            run_on = run_on_of(share.devices[0], settings.infer)
            serve_first_rank(share, partial(Predictor.load, package), run_on)
            return
        record = RunRecord(
            "infer",
            {"infer": settings.infer.model_dump(mode="json"), "model": package.name, "devices": list(share.devices)},
        )
        record.inputs.append({"id": package.name, "sha256": sha256_of(weights_file(package))})
        stages = [_stage(slide, package, project, settings, share.devices) for slide in todo[share.slides]]
        try:
            # If this process does not compute itself, it has time for the previous and the next slide.
            run_recorded(stages, reporter, record, project, overlapping=share.devices != ("cpu",))
        finally:
            close_devices()
        everyone = gather_outcomes(share, reporter.outcomes)
    if everyone is None:
        return
    reporter.outcomes = everyone
    say_counts(reporter)
    reporter.finish()


def at_plane(settings: Settings, plane_um: float | None) -> Settings:
    """Settings of `infer` and `embed` with the focal plane that was given on the command line, if any.

    Raises:
        BadRecipeError: it is no height.
    """
    infer, embed = (replace(section, plane_um=plane_um) for section in (settings.infer, settings.embed))
    return settings.model_copy(update={"infer": infer, "embed": embed})


def _stage(slide: SlideToDo, package: Path, project: Project, settings: Settings, devices: tuple[str, ...]) -> Stage:
    from pipeline.inference.stage import InferStage

    infer = InferStage(slide.slide_id, package, project, settings.infer, devices, slide.path)
    return after_ingest(slide, infer, project, settings)
