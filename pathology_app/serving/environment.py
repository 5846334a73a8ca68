"""Access to the app, from the environment of the operator's own server that runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from pathology_app.access.guard import Access
from pathology_app.callers.host_names import Names, parse_names
from pathology_app.people.provider import provider_by_environment
from pathology_app.people.sign_in import SignIn
from pathology_app.project.ledger import current_study_ledger
from pipeline.settings.config import load_settings
from pipeline.settings.site import trusted_proxies

SCRIPT = Path(__file__).resolve().parents[1] / "main.py"
"""Script of Streamlit's app."""
NAMES_VARIABLE = "GEMSLIDE_NAMES"


def access_by_environment() -> Access:
    """Callers from this computer's loopback, under a loopback name; others under `GEMSLIDE_NAMES`, after logging in.
    Where there are accounts, everybody signs in.

    Raises:
        BadRecipeError: `GEMSLIDE_NAMES` holds an invalid name; the settings, or a provider's file, cannot be used.
    """
    names = parse_names(name for name in os.environ.get(NAMES_VARIABLE, "").split(",") if name.strip())

    def announce(token: str) -> None:
        sys.stderr.write(f"To let one more browser in, open /?token={token} under this app's address, once.\n")
        sys.stderr.flush()

    return Access(sign_in_here(announce), Names(names), proxies=trusted_proxies())


def sign_in_here(announce: Callable[[str], None] | None) -> SignIn:
    """Sign-in to the project that the environment names.

    Args:
        announce: shows the operator the token of a link; None: this process issues none.

    Raises:
        BadRecipeError: the settings, or a provider's file, cannot be used.
    """
    ledger = current_study_ledger()
    settings = load_settings(ledger.project.settings_path).app
    return SignIn(ledger, announce, provider=provider_by_environment(), settings=settings)
