"""The verbs this package adds to the command line (entry points `gemslide.commands`). Light to import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pathology_app.desktop.display import check_display
from pathology_app.serving.command_errors import plain_errors
from pipeline.project import open_project


def app(
    project: Annotated[Path, typer.Option(file_okay=False, exists=True, help="Project folder.")] = Path("."),
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes any free port.", show_default="8501, or any free one"),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to listen on. Any other than this computer's own (127.0.0.1, localhost, ::1) needs accounts "
            "(`gemslide account`), a provider (GEMSLIDE_OIDC), or --login.",
            show_default="127.0.0.1",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Name, or name:port, under which browsers may call the app, besides the address it listens on; "
            "behind a reverse proxy or a tunnel. Repeatable."
        ),
    ] = None,
    login: Annotated[
        bool,
        typer.Option(
            "--login",
            help="Everybody logs in with a printed one-time link, browsers on this computer, too. Anybody who has one "
            "may do everything. With accounts there are no links.",
        ),
    ] = False,
    tiles_only: Annotated[
        bool,
        typer.Option(
            "--tiles-only",
            help="Serve tiles and overlays without the pages: one of several such processes alongside the app, for "
            "many readers.",
        ),
    ] = False,
) -> None:
    """Show the project's slides and predictions in a web browser. Research use only.

    Slides in the project's incoming/ and sources/ can be ingested from the app; GEMSLIDE_SLIDES names further folders.
    """
    with plain_errors(extra="app"):
        from pathology_app.server import serve

        serve(
            project,
            host=host,
            port=port,
            names=name or (),
            login=login,
            tiles_only=tiles_only,
        )


def view(
    store: Annotated[str, typer.Argument(help="Slide store, or the id of a slide in the project.")],
    project: Annotated[Path, typer.Option(file_okay=False, help="Project folder.")] = Path("."),
    plane: Annotated[
        float | None,
        typer.Option(help="Stacks: height in µm of the focal plane to show.", show_default="the one at 0"),
    ] = None,
) -> None:
    """Open one slide store in napari, with its tissue mask and predictions. Research use only."""
    with plain_errors(extra="desktop"):
        check_display()
        from pathology_app.desktop.window import show_store
        from pipeline.naming.slides import find_store

        home = open_project(project)
        show_store(find_store(store, home), home, plane)
