"""`gemslide log …`: sign-ins, slides viewed and actions refused."""

from __future__ import annotations

from typing import Annotated

import typer

from pipeline.verbs.options import HERE, JsonOption, ProjectOption

log_cli = typer.Typer(no_args_is_help=True, help="The project's log: sign-ins, slides viewed, actions refused.")


@log_cli.command("show")
def log_show(
    slide: Annotated[str | None, typer.Option(help="Only entries about this slide.")] = None,
    person: Annotated[str | None, typer.Option(help="Only entries of people whose names begin with this.")] = None,
    before: Annotated[int | None, typer.Option(min=1, help="Only entries before this number.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many, newest first.")] = 50,
    project: ProjectOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Show entries of the log, newest first."""
    from pipeline.verbs.log import run_show

    run_show(project, slide, person, before, limit, as_json=as_json)


@log_cli.command("verify")
def log_verify(project: ProjectOption = HERE, as_json: JsonOption = False) -> None:
    """Check every entry of the log, from first to last; exit code 1 if anything is wrong."""
    from pipeline.verbs.log import run_verify

    run_verify(project, as_json=as_json)
