"""Options of `gemslide features …`. Light, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.units import MAX_MPP, MIN_MPP
from pipeline.verbs.options import HERE, JsonOption, ProjectOption

features_cli = typer.Typer(no_args_is_help=True, help="Features of tiles in slides' stores, and other programs' files.")

SLIDES = "SLIDE…|COHORT.csv"
Program = Literal["trident", "clam", "stamp"]


@features_cli.command("list")
def features_list(
    slides: Annotated[
        list[str] | None,
        typer.Argument(metavar=SLIDES, help="Slide ids or stores, or one manifest.", show_default="all slides"),
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show which encoders' features slides have, of how many tiles."""
    from pipeline.verbs.slide_level.features import run_list

    run_list(slides or [], project, as_json=as_json)


@features_cli.command("export")
def features_export(
    slides: Annotated[
        list[str],
        typer.Argument(metavar=SLIDES, help="Slide ids or stores, or one manifest, with cases and labels for CLAM."),
    ],
    to: Annotated[Program, typer.Option(help="Program that will read the files.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to write into; nothing in it is replaced.")],
    encoder: Annotated[
        str | None, typer.Option(metavar="ID", help="Encoder's id.", show_default="the only one a slide has")
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write slides' features as files of TRIDENT, CLAM or STAMP."""
    from pipeline.verbs.slide_level.features import ExportRequest, run_export

    run_export(slides, project, ExportRequest(to, out, encoder), as_json=as_json)


@features_cli.command("import")
def features_import(
    file: Annotated[Path, typer.Argument(help="HDF5 file of one slide's features.")],
    slide: Annotated[str, typer.Option(help="Id of the slide in the project that it was made from.")],
    source: Annotated[Program, typer.Option("--from", help="Program that wrote the file.")],
    encoder: Annotated[list[str], typer.Option(metavar="NAME", help="Name of the encoder; one, and not a row's.")],
    tile_px: Annotated[
        int | None, typer.Option(min=1, max=2**24, help="Side of a tile in its own pixels.", show_default="the file's")
    ] = None,
    mpp: Annotated[
        float | None, typer.Option(min=MIN_MPP, max=MAX_MPP, help="Microns per tile pixel.", show_default="the file's")
    ] = None,
    side_px0: Annotated[
        float | None,
        typer.Option(min=1, max=2**24, help="Side of a tile in level-0 pixels.", show_default="the file's"),
    ] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Put features from a file of TRIDENT, CLAM or STAMP into their slide's store."""
    from pipeline.export.features.tile_size import TileSize
    from pipeline.verbs.slide_level.features import ImportRequest, run_import

    request = ImportRequest(file, slide, source, tuple(encoder), TileSize(tile_px, mpp, side_px0))
    run_import(request, project, as_json=as_json)
