"""The options of `gemslide annotations …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

annotations_cli = typer.Typer(
    no_args_is_help=True, help="Annotations: files of QuPath, ASAP and ImageScope, and the project's own."
)

CountsFromOption = Annotated[
    Literal["scanned", "slide"],
    typer.Option(
        help="Where QuPath's coordinates begin: at what was scanned, or (opened with --no-crop) at the slide."
    ),
]


@annotations_cli.command("check")
def annotations_check(
    file: Annotated[Path, typer.Argument(help="GeoJSON of QuPath, XML of ASAP or ImageScope.")],
    slide: Annotated[str | None, typer.Option(help="Slide id, slide file or store it should lie on.")] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Count classes, find outlines that must be repaired and regions outside the slide."""
    from pipeline.verbs.annotations import run_check

    run_check(file, slide, project, as_json=as_json)


@annotations_cli.command("convert")
def annotations_convert(
    file: Annotated[Path, typer.Argument(help="GeoJSON of QuPath, XML of ASAP or ImageScope.")],
    out: Annotated[Path, typer.Argument(help="File to write; must not be there yet.")],
    to: Annotated[Literal["qupath", "asap", "imagescope"], typer.Option(help="Format to write.")],
    as_json: JsonOption = False,
) -> None:
    """Write annotations in another program's format, and say what it cannot hold."""
    from pipeline.verbs.annotations import run_convert

    run_convert(file, out, to, as_json=as_json)


@annotations_cli.command("import")
def annotations_import(
    file: Annotated[Path, typer.Argument(help="GeoJSON of QuPath, XML of ASAP or ImageScope.")],
    slide: Annotated[str, typer.Option(help="Id of the slide of the project that it was drawn on.")],
    project: ProjectOption = HERE,
    counts_from: CountsFromOption = "scanned",
    as_json: JsonOption = False,
) -> None:
    """Save a file's annotations in the project, where the browser and napari show them."""
    from pipeline.verbs.annotation_store import run_import

    run_import(file, slide, project, counts_from, as_json=as_json)


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
