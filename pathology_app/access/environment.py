"""Who may come in where a server of the operator's own runs the app: by its environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pathology_app
from pathology_app.access.guard import Access
from pathology_app.access.names import Names, parse_names
from pathology_app.access.tokens import Login

SCRIPT = Path(pathology_app.__file__).resolve().with_name("main.py")
"""Of Streamlit's app."""
NAMES_VARIABLE = "GEMSLIDE_NAMES"


def access_by_environment() -> Access:
    """Callers from this computer's loopback, under a loopback name; others under `GEMSLIDE_NAMES`, after logging in.

    Raises:
        BadRecipeError: `GEMSLIDE_NAMES` holds what is no name.
    """
    names = parse_names(name for name in os.environ.get(NAMES_VARIABLE, "").split(",") if name.strip())

    def announce(token: str) -> None:
        sys.stderr.write(f"To let one more browser in, open /?token={token} under this app's address, once.\n")
        sys.stderr.flush()

    return Access(Login(announce), Names(names))
