"""`gemslide plan …`: what a recipe will do, and how near that comes to the clock."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.verbs.options import HERE, JsonOption, ProjectOption
from training.foundation.recipe_file import MAX_RANKS


class ShownUnlessNamed(TyperGroup):
    """`gemslide plan RECIPE` is `gemslide plan show RECIPE`; with `--layers` it is about another network."""

    # typer names the type of the context in its private copy of click only.
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            is_table = any(argument.split("=")[0] == "--layers" for argument in args)
            args = ["layers" if is_table else "show", *args]
        return super().parse_args(ctx, args)


plan_cli = typer.Typer(
    cls=ShownUnlessNamed,
    no_args_is_help=True,
    help="What a recipe will do: `gemslide plan RECIPE`. Options: `gemslide plan show --help`.",
)


@plan_cli.command("show")
def show(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), or the name of a shipped one.")],
    project: ProjectOption = HERE,
    tile_px: Annotated[
        int | None, typer.Option(min=1, help="Side of a tile.", show_default="the recipe's tile set")
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="SVG file for a drawing of the order of work.")] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure this machine first: seconds of each block, links, updates.")
    ] = False,
    world: Annotated[
        int | None, typer.Option(min=1, max=MAX_RANKS, help="Search for the fastest plans on so many ranks.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Search for the fastest plans within this memory of a rank, such as 16GiB.")
    ] = None,
    cluster: Annotated[
        Path | None,
        typer.Option(help="Plan for a cluster (TOML, or a shipped one: abci_v100, h100_nvlink), not this machine."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a recipe will do, without training: order of work, memory per rank, other strategies."""
    from pipeline.verbs.plan.show import PlanOptions, run_plan

    run_plan(recipe, project, PlanOptions(tile_px, draw, calibrate, world, memory, cluster), as_json=as_json)


@plan_cli.command("audit")
def audit(
    recipe: Annotated[Path, typer.Argument(help="Recipe (TOML), or the name of a shipped one.")],
    project: ProjectOption = HERE,
    sample: Annotated[int, typer.Option(min=1, max=64, help="Number of plans.")] = 8,
    tile_px: Annotated[
        int | None, typer.Option(min=1, help="Side of a tile.", show_default="the recipe's tile set")
    ] = None,
    world: Annotated[
        int | None, typer.Option(min=1, max=MAX_RANKS, help="Ranks, for a recipe whose strategy is auto.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Only plans within this memory of a rank, such as 16GiB.", show_default="what the machine has"
        ),
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="File for a Chrome trace: measured beside simulated.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare predicted seconds and bytes with some real steps of a recipe on this machine."""
    from pipeline.verbs.plan.audit import AuditOptions, run_plan_audit

    run_plan_audit(recipe, project, AuditOptions(sample, tile_px, world, memory, trace), as_json=as_json)


@plan_cli.command("layers")
def table_of_layers(
    layers: Annotated[Path, typer.Option("--layers", help="CSV with a line for each layer.")],
    cluster: Annotated[Path, typer.Option(help="Cluster (TOML), or a shipped one: abci_v100, h100_nvlink.")],
    samples: Annotated[int, typer.Option(min=1, help="Samples of an epoch.")],
    batch: Annotated[int, typer.Option(min=1, help="Samples of an iteration, over all ranks.")],
    world: Annotated[str, typer.Option(help="Numbers of ranks, such as 4,16,64.")],
    as_json: JsonOption = False,
) -> None:
    """Project an epoch of any network with ParaDL's formulas, from seconds and sizes of its layers."""
    from pipeline.verbs.plan.layers import run_plan_layers

    run_plan_layers(layers, cluster=cluster, samples=samples, batch=batch, world=world, as_json=as_json)
