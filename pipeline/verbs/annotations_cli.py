"""The options of `gemslide annotations …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

annotations_cli = typer.Typer(
    no_args_is_help=True, help="Annotations: files from QuPath, ASAP, ImageScope and others, and the project's own."
)
FILE_HELP = "QuPath GeoJSON, ASAP, ImageScope or HALO XML, Digital Slide Archive JSON, or NDPA."

CountsFromOption = Annotated[
    Literal["scanned", "slide"],
    typer.Option(help="Origin of QuPath's coordinates: the scanned area, or (opened with --no-crop) the whole slide."),
]
AllowOtherMppOption = Annotated[
    bool,
    typer.Option(
        "--allow-other-mpp",
        help="Use pixel coordinates unchanged if the file states another pixel size than the slide.",
    ),
]


@annotations_cli.command("check")
def annotations_check(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    slide: Annotated[str | None, typer.Option(help="Slide that it belongs to: id, file or store.")] = None,
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
    out: Annotated[Path, typer.Argument(help="File to write; must not exist yet.")],
    to: Annotated[Literal["qupath", "asap", "imagescope"], typer.Option(help="Format to write.")],
    slide: Annotated[str | None, typer.Option(help="Slide that an NDPA file was drawn on: id, file or store.")] = None,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write annotations in another program's format, and report what it cannot hold."""
    from pipeline.verbs.annotations import run_convert

    run_convert(file, out, to, slide, project, as_json=as_json)


@annotations_cli.command("import")
def annotations_import(
    file: Annotated[Path, typer.Argument(help=FILE_HELP)],
    slide: Annotated[str, typer.Option(help="Id of the slide in the project that it was drawn on.")],
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
    out: Annotated[Path, typer.Argument(help="GeoJSON file to write; must not exist yet.")],
    slide: Annotated[str, typer.Option(help="Id of the slide in the project.")],
    project: ProjectOption = HERE,
    counts_from: CountsFromOption = "scanned",
    as_json: JsonOption = False,
) -> None:
    """Write the project's annotations of a slide, for QuPath."""
    from pipeline.verbs.annotation_store import run_export

    run_export(out, slide, project, counts_from, as_json=as_json)


@annotations_cli.command("table")
def annotations_table(
    out: Annotated[Path, typer.Argument(help="CSV file to write; must not exist yet.")],
    slide: Annotated[str, typer.Option(help="Id of the slide in the project.")],
    project: ProjectOption = HERE,
    table: Annotated[
        Literal["annotations", "counts"],
        typer.Option("--of", help="Annotations with their sizes, or counts by class with densities."),
    ] = "annotations",
    as_json: JsonOption = False,
) -> None:
    """Write the project's annotations or counts of a slide as a table."""
    from pipeline.verbs.annotation_store import run_tables

    run_tables(out, slide, project, table, as_json=as_json)
