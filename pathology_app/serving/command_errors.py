"""Errors of the verbs that this package adds to the command line. Light to import."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from training.foundation.errors import GemslideError

OUR_PACKAGES = ("pathology_app", "pipeline", "training")


@contextmanager
def plain_errors(*, extra: str) -> Iterator[None]:
    """One line on stderr and exit code 1 in place of a traceback."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OUR_PACKAGES:
            raise
        typer.echo(
            f"gemslide: {error.name} is not installed. This verb needs an extra: pip install 'gemslide[{extra}]'",
            err=True,
        )
        raise typer.Exit(1) from error
    except GemslideError as error:
        typer.echo(f"gemslide: {error}", err=True)
        raise typer.Exit(1) from error
