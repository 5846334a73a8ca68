"""`gemslide infer`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import typer

from pipeline.cli_output import Reporter, report_errors
from pipeline.config import Settings, load_settings
from pipeline.files import sha256_of
from pipeline.ingest.ingest import IngestRequest
from pipeline.jobs.stage import Stage
from pipeline.names import find_package
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord
from pipeline.slide_names import SlideToDo, find_slides_to_do
from pipeline.source_names import SourceNames
from pipeline.verbs.stages import run_recorded


def run_infer(model: str, slides: list[str], project_dir: Path, *, devices: str, as_json: bool) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        settings = load_settings(project.settings_path)
        package = find_package(model, project)
        todo = _share_of_this_rank(find_slides_to_do(slides, project))
        # Its libraries take long to import: only when the names are known to be right.
        from pipeline.inference.devices import named_devices

        names = named_devices(_of_this_rank(devices))
        record = RunRecord(
            "infer",
            {"infer": settings.infer.model_dump(mode="json"), "model": package.name, "devices": list(names)},
        )
        record.inputs.append({"id": package.name, "sha256": sha256_of(package / "model.safetensors")})
        stages = [_stage(slide, package, project, settings, names) for slide in todo]
        run_recorded(stages, reporter, record, project)
    _say_counts(reporter)
    reporter.finish()


def _stage(slide: SlideToDo, package: Path, project: Project, settings: Settings, devices: tuple[str, ...]) -> Stage:
    from pipeline.inference.stage import InferStage
    from pipeline.ingest.stage import IngestIfMissing
    from pipeline.verbs.chain import Chain

    infer = InferStage(slide.slide_id, package, project, settings.infer, devices)
    if slide.path is None:
        return infer
    request = IngestRequest(slide.path, slide.slide_id, slide.manifest_mpp)
    return Chain(IngestIfMissing(request, project, settings.ingest), infer)


def _share_of_this_rank(todo: list[SlideToDo]) -> list[SlideToDo]:
    """Under `torchrun`, every process takes its share of the slides; results meet in the project folder."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return todo[rank::world]


def _of_this_rank(devices: str) -> str:
    """Under `torchrun`, a process has the GPU of its number on this machine, where nobody says otherwise."""
    local_rank = os.environ.get("LOCAL_RANK")
    if devices == "auto" and local_rank is not None:
        import torch

        return f"cuda:{local_rank}" if torch.cuda.is_available() else "cpu"
    return devices


def _say_counts(reporter: Reporter) -> None:
    """Every slide of the list in exactly one state: the counts add up to it."""
    counts = Counter(outcome.status for outcome in reporter.outcomes)
    words = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    typer.echo(f"{len(reporter.outcomes)} slides: {words}", err=True)
