"""Options of `gemslide tissue`. Light, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption
from training.foundation.words.names import comparable


def tissue(
    slides: Annotated[list[str], typer.Argument(metavar="SLIDE…", help="Slide ids or stores; no others are touched.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Use the areas of an annotation file (GeoJSON, …), or a black-and-white PNG of the whole slide.",
            show_default="find tissue in the slide's pixels",
        ),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="CLASS", help="Use only these areas of the file.", show_default="all areas"),
    ] = None,
    drawn: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS", help="Use the areas of this class drawn in the project."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=NUMBER",
            help="Override a setting of the section ingest.tissue, as in min_delta_e=6; may be repeated.",
            show_default="gemslide.toml",
        ),
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Replace slides' tissue masks, with other settings, from drawn areas or from a file. Pixels stay."""
    from pipeline.verbs.tissue import TissueSource, run_tissue

    taken = TissueSource(source, tuple(map(comparable, drawn or ())), tuple(map(comparable, classes or ())))
    run_tissue(slides, project, taken, settings=settings or [], as_json=as_json)
