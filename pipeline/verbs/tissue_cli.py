"""`gemslide tissue`: what it takes. Light to import: the command line always does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption
from training.foundation.words.names import comparable


def tissue(
    slides: Annotated[list[str], typer.Argument(metavar="SLIDE…", help="Slide ids or stores; no other is touched.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Take the areas of an annotation file (GeoJSON, …), or a black-and-white PNG of the whole slide.",
            show_default="find tissue in the slide's pixels",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="CLASS", help="Of the file, only these areas.", show_default="all areas"),
    ] = None,
    drawn: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="Take the areas of this class that were drawn in the project."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=NUMBER",
            help="In place of what the section ingest.tissue says, as in min_delta_e=6; may be repeated.",
            show_default="gemslide.toml",
        ),
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Make slides' tissue masks again: with other settings, from drawn areas, or from a file. Pixels stay."""
    from pipeline.verbs.tissue import TissueSource, run_tissue

    taken = TissueSource(source, tuple(map(comparable, drawn or ())), tuple(map(comparable, classes or ())))
    run_tissue(slides, project, taken, settings=settings or [], as_json=as_json)
