"""`gemslide embed`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pipeline.jobs.stage import Stage
from pipeline.naming.slides import SlideToDo, find_slides_to_do
from pipeline.naming.sources import SourceNames
from pipeline.project import Project, open_project
from pipeline.run_record import RunRecord
from pipeline.settings.config import EmbedConfig, Settings, load_settings
from pipeline.verbs.chain import after_ingest
from pipeline.verbs.cli_output import Reporter, report_errors, say_counts
from pipeline.verbs.infer import at_plane
from pipeline.verbs.stages import run_recorded


def run_embed(
    encoder: str, slides: list[str], project_dir: Path, *, devices: str, plane_um: float | None, as_json: bool
) -> None:
    project = open_project(project_dir)
    reporter = Reporter(as_json=as_json, sources=SourceNames(project=project))
    reporter.sources.add_typed(slides, project)
    with report_errors(as_json=as_json, reporter=reporter):
        settings = at_plane(load_settings(project.settings_path), plane_um)
        from pipeline.embedding.rows import find_encoder

        row_path = find_encoder(encoder, project)
        todo = find_slides_to_do(slides, project)
        # Its libraries are slow to import: only once the names are known to be right.
        from pipeline.batches.sharing import gather_outcomes, serve_first_rank, share_of_this_process
        from pipeline.embedding.encoder import TileEncoder
        from pipeline.embedding.stage import close_encoder, encoder_run_on, open_encoder

        share = share_of_this_process(devices, len(todo))
        load = partial(TileEncoder.load, row_path)
        if share.serves:
            serve_first_rank(share, load, encoder_run_on(share.devices[0], settings.embed))
            return
        opened = open_encoder(row_path, share.devices, settings.embed).network
        record = RunRecord(
            "embed",
            {
                "embed": settings.embed.model_dump(mode="json"),
                "encoder": opened.encoder_id,
                "devices": list(share.devices),
            },
        )
        record.inputs.append({"id": opened.encoder_id, "sha256": opened.weights_sha256})
        stages = [embed_stage(slide, row_path, project, settings, share.devices) for slide in todo[share.slides]]
        try:
            # If this process does not compute itself, it has time for the previous and the next slide.
            run_recorded(stages, reporter, record, project, overlapping=share.devices != ("cpu",))
        finally:
            close_encoder()
        everyone = gather_outcomes(share, reporter.outcomes)
    if everyone is None:
        return
    reporter.outcomes = everyone
    say_counts(reporter)
    reporter.finish()


def embed_stage(
    slide: SlideToDo,
    row_path: Path,
    project: Project,
    settings: Settings,
    devices: tuple[str, ...],
    *,
    config: EmbedConfig | None = None,
) -> Stage:
    """The stage that embeds a slide, after its ingest where it has a file.

    Args:
        config: instead of the project's `[embed]`.
    """
    from pipeline.embedding.stage import EmbedStage

    embed = EmbedStage(slide.slide_id, row_path, project, config or settings.embed, devices)
    return after_ingest(slide, embed, project, settings)
