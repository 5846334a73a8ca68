"""`gemslide encoder …`: a thin function per verb. Light, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

encoder_cli = typer.Typer(no_args_is_help=True, help="Tile encoders: rows that describe them, and checks.")


@encoder_cli.command("add")
def encoder_add(
    name: Annotated[str, typer.Argument(help="Name of the encoder in the project.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE.toml",
            dir_okay=False,
            help="Its row.",
            show_default="the row of that name that comes with gemslide",
        ),
    ] = None,
    untrained: Annotated[
        bool,
        typer.Option(
            "--untrained", help="With random weights, as NAME-untrained: `gemslide evaluate` compares with it."
        ),
    ] = False,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Add an encoder to the project; refused unless its weights are here and its network passes a check."""
    from pipeline.verbs.slide_level.encoder import run_add

    run_add(name, project, source=source, untrained=untrained, as_json=as_json)


@encoder_cli.command("check")
def encoder_check(
    name: Annotated[str, typer.Argument(help="Encoder of the project.")],
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Check that an encoder's weights are those of its row, and what its network returns for probe tiles."""
    from pipeline.verbs.slide_level.encoder import run_check

    run_check(name, project, as_json=as_json)


@encoder_cli.command("list")
def encoder_list(project: ProjectOption = HERE, as_json: JsonOption = False) -> None:
    """List the project's encoders and those that come with gemslide, and whether their weights are here."""
    from pipeline.verbs.slide_level.encoder import run_list

    run_list(project, as_json=as_json)
