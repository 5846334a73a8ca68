"""Options of `gemslide ingest`. Light, since the command line always imports it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from pipeline.verbs.options import HERE, JsonOption, LinkOption, ProjectOption, SeriesOption


def ingest(
    sources: Annotated[list[Path], typer.Argument(metavar="SLIDE…|COHORT.csv", help="Slides, or one manifest.")],
    project: ProjectOption = HERE,
    slide_id: Annotated[
        str | None, typer.Option(help="Id of the slide, if there is only one.", show_default="the file's name")
    ] = None,
    mpp: Annotated[
        float | None, typer.Option(help="Microns per level-0 pixel of the slide; overrides the file.")
    ] = None,
    keep_label: Annotated[bool, typer.Option("--keep-label", help="Keep the label image: it can name people.")] = False,
    series: SeriesOption = None,
    link: LinkOption = False,
    workers: Annotated[int, typer.Option(min=1, help="Slides at a time; each takes up to 400 MB.")] = 2,
    as_json: JsonOption = False,
) -> None:
    """Turn slides into stores. Finished slides are skipped; labels and macros are dropped unless requested."""
    gc.disable()  # what is imported stays: looking for garbage in it only takes time
    try:
        from pipeline.verbs.ingest import Given, run_ingest
    finally:
        gc.enable()
    keep = ("label",) if keep_label else ()
    run_ingest(sources, project, Given(slide_id, mpp, series, link), keep=keep, workers=workers, as_json=as_json)
