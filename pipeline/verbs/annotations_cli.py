"""The options of `gemslide annotations …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

annotations_cli = typer.Typer(
    no_args_is_help=True, help="Annotations: files of QuPath, ASAP, ImageScope and others, and the project's own."
)
FILE_HELP = "GeoJSON of QuPath, XML of ASAP, ImageScope or HALO, JSON of the Digital Slide Archive, or NDPA."

CountsFromOption = Annotated[
    Literal["scanned", "slide"],
    typer.Option(
        help="Where QuPath's coordinates begin: at what was scanned, or (opened with --no-crop) at the slide."
    ),
]
AllowOtherMppOption = Annotated[
    bool,
    typer.Option(
        "--allow-other-mpp", help="Take pixels as they are where the file states another pixel size than the slide has."
    ),
]


@annotations_cli.command("check")
def annotations_check(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    slide: Annotated[str | None, typer.Option(help="Slide id, slide file or store it should lie on.")] = None,
    project: ProjectOption = HERE,
    allow_other_mpp: AllowOtherMppOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count classes, find outlines that must be repaired and regions outside the slide."""
    from pipeline.verbs.annotations import run_check

    run_check(file, slide, project, allow_other_mpp=allow_other_mpp, as_json=as_json)


@annotations_cli.command("convert")
def annotations_convert(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    out: Annotated[Path, typer.Argument(help="File to write; must not be there yet.")],
    to: Annotated[Literal["qupath", "asap", "imagescope"], typer.Option(help="Format to write.")],
    slide: Annotated[str | None, typer.Option(help="Slide that an NDPA file was drawn on: id, file or store.")] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write annotations in another program's format, and say what it cannot hold."""
    from pipeline.verbs.annotations import run_convert

    run_convert(file, out, to, slide, project, as_json=as_json)


@annotations_cli.command("import")
def annotations_import(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    slide: Annotated[str, typer.Option(help="Id of the slide of the project that it was drawn on.")],
    project: ProjectOption = HERE,
    counts_from: CountsFromOption = "scanned",
    allow_other_mpp: AllowOtherMppOption = False,
    as_json: JsonOption = False,
) -> None:
    """Save a file's annotations in the project, where the browser and napari show them."""
    from pipeline.verbs.annotation_store import run_import

    run_import(file, slide, project, counts_from, allow_other_mpp=allow_other_mpp, as_json=as_json)


@annotations_cli.command("export")
def annotations_export(
    out: Annotated[Path, typer.Argument(help="GeoJSON file to write; must not be there yet.")],
    slide: Annotated[str, typer.Option(help="Id of the slide of the project.")],
    project: ProjectOption = HERE,
    counts_from: CountsFromOption = "scanned",
    as_json: JsonOption = False,
) -> None:
    """Write the project's annotations of a slide, for QuPath."""
    from pipeline.verbs.annotation_store import run_export

    run_export(out, slide, project, counts_from, as_json=as_json)
