"""`gemslide model …`: a thin function per verb. Light, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

model_cli = typer.Typer(no_args_is_help=True, help="Model packages: import from and export to other programs.")


@model_cli.command("export")
def model_export(
    model: Annotated[str, typer.Argument(help="Model id, or a package folder.")],
    to: Annotated[Literal["onnx", "torchscript", "wsinfer"], typer.Option("--format", help="Format to write.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist yet.")],
    slides: Annotated[
        list[str] | None,
        typer.Option(
            "--slide", metavar="SLIDE", help="Compare on its tiles; may be repeated.", show_default="all slides"
        ),
    ] = None,
    allow_reading_difference: Annotated[
        bool,
        typer.Option(
            "--allow-reading-difference",
            help="Write for WSInfer even if the way it reads tiles clearly changes probabilities.",
        ),
    ] = False,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Write a model for other programs; refused unless it gives the same numbers on real tiles."""
    from pipeline.verbs.model import run_export

    run_export(
        model, project, to=to, out=out, slides=slides or [], allow_reading_difference=allow_reading_difference,
        as_json=as_json,
    )  # fmt: skip


@model_cli.command("import")
def model_import(
    source: Annotated[Path, typer.Argument(help="WSInfer or gemslide folder, or an .onnx, .pt or .safetensors file.")],
    project: ProjectOption = HERE,
    config: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="WSInfer's config.json.", show_default="config.json beside the model"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model, before its hash.", show_default="as folder or file")
    ] = None,
    trust: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="Trust the file with this SHA-256 to run its own code (TorchScript)."),
    ] = None,
    entry_point: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Installed code (gemslide.models) that builds the network of a .safetensors file."
        ),
    ] = None,
    outputs: Annotated[
        Literal["logits", "probabilities"] | None,
        typer.Option(help="What the network outputs.", show_default="found by running it"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a package from another program's model: WSInfer, ONNX, TorchScript, or weights for installed code."""
    from pipeline.models.packages import ImportRequest
    from pipeline.verbs.model import run_import

    run_import(ImportRequest(source, config, name, trust, entry_point, outputs), project, as_json=as_json)


@model_cli.command("check")
def model_check(
    model: Annotated[str, typer.Argument(help="Model id, or a package folder.")],
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Check that a package is intact, and what its network outputs for probe images."""
    from pipeline.verbs.model import run_check

    run_check(model, project, as_json=as_json)


@model_cli.command("card")
def model_card(
    model: Annotated[str, typer.Argument(help="Model id, or a package folder.")],
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show a model's card: its training data, metrics, purpose and limits."""
    from pipeline.verbs.model import run_card

    run_card(model, project, as_json=as_json)
