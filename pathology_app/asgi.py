"""The web app: Streamlit's pages and the tile routes behind one guard, one process, one port.

Behind a server of your own: `GEMSLIDE_PROJECT=DIR uvicorn --factory pathology_app.asgi:create_app`, and behind a
reverse proxy with `GEMSLIDE_NAMES=slides.example.org`: names that callers may use, separated by commas.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.types import ASGIApp
from streamlit import config

from pathology_app.access.guard import Access, Guard
from pathology_app.access.names import Names, parse_names
from pathology_app.access.tokens import Login
from pathology_app.study_ledger import close_study_ledgers
from pathology_app.tiles.cache import current_cache
from pathology_app.tiles.review_routes import review_routes
from pathology_app.tiles.routes import viewer_routes

SCRIPT = Path(__file__).resolve().with_name("main.py")
NAMES_VARIABLE = "GEMSLIDE_NAMES"

OPTIONS = {
    "browser.gatherUsageStats": False,
    "server.headless": True,
    "server.fileWatcherType": "none",
    "server.enableStaticServing": False,
    "server.enableAgentApi": False,
    "server.scriptHealthCheckEnabled": False,
    "server.maxWidgetStateSize": 1,
    "runner.magicEnabled": False,
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "none",
    "logger.level": "warning",
    "theme.base": "light",
    "theme.primaryColor": "#b0175b",
}
"""How Streamlit runs here. Its variables in the environment count only under `streamlit run`."""


def create_app(access: Access | None = None) -> ASGIApp:
    """The ASGI app over the project that the environment names.

    Args:
        access: who may come in. None is for a server of your own: callers from this computer's loopback, under a
            loopback name; others under the names in `GEMSLIDE_NAMES`, after logging in.

    Raises:
        BadRecipeError: `GEMSLIDE_NAMES` holds what is no name.
    """
    app = st.App(SCRIPT, routes=[*viewer_routes(current_cache()), *review_routes(current_cache())], lifespan=_lifespan)
    for name, value in OPTIONS.items():
        config.set_option(name, value)
    return Guard(app, access or _access_by_environment(), SCRIPT)


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[None]:
    """Databases are told when this process ends."""
    yield
    close_study_ledgers()


def _access_by_environment() -> Access:
    names = parse_names(name for name in os.environ.get(NAMES_VARIABLE, "").split(",") if name.strip())

    def announce(token: str) -> None:
        sys.stderr.write(f"To let one more browser in, open /?token={token} under this app's address, once.\n")
        sys.stderr.flush()

    return Access(Login(announce), Names(names))
