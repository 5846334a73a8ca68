"""`gemslide account …`: who may sign in to the web app. Light to import, since the command line always imports it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

account_cli = typer.Typer(no_args_is_help=True, help="Manage who may sign in to the web app, and their roles.")
ProjectOption = Annotated[Path, typer.Option(help="Project folder.", file_okay=False, exists=True)]
NameArgument = Annotated[str, typer.Argument(help="Name to sign in under.")]
HERE = Path()


@account_cli.command("add")
def account_add(
    name: NameArgument,
    roles: Annotated[list[str], typer.Option("--role", help="reader, reviewer, coordinator or admin; repeatable.")],
    reader: Annotated[str, typer.Option(help="Pseudonym under which they read for studies.")] = "",
    slides: Annotated[
        list[str] | None,
        typer.Option(
            help="Slides they may see: names, patterns (S-0*) or a study (study:NAME); repeatable.",
            show_default="all",
        ),
    ] = None,
    email: Annotated[str, typer.Option(help="They sign in at the provider, which has verified this address.")] = "",
    subject: Annotated[str, typer.Option(help="They sign in at the provider, which calls them this (sub).")] = "",
    project: ProjectOption = HERE,
) -> None:
    """Add a person. Without --email and --subject, prompt for a password or read it from standard input."""
    from pathology_app.account_verbs import run_add

    run_add(project, name, roles, reader=reader, slides=slides, email=email, subject=subject)


@account_cli.command("remove")
def account_remove(name: NameArgument, project: ProjectOption = HERE) -> None:
    """Remove a person; their sessions end at once."""
    from pathology_app.account_verbs import run_remove

    run_remove(project, name)


@account_cli.command("list")
def account_list(
    project: ProjectOption = HERE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line per person.")] = False,
) -> None:
    """Show who may sign in, with roles; no passwords."""
    from pathology_app.account_verbs import run_list

    run_list(project, as_json=as_json)


@account_cli.command("passwd")
def account_passwd(name: NameArgument, project: ProjectOption = HERE) -> None:
    """Give a person a new password; their sessions end."""
    from pathology_app.account_verbs import run_passwd

    run_passwd(project, name)
