"""The web app: Streamlit's pages and the tile routes behind one guard, one process, one port.

Behind a server of your own: `GEMSLIDE_PROJECT=DIR uvicorn --factory pathology_app.asgi:create_app`, and behind a
reverse proxy with `GEMSLIDE_NAMES=slides.example.org`: names that callers may use, separated by commas.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import streamlit as st
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

from pathology_app.access.environment import SCRIPT, access_by_environment
from pathology_app.access.guard import Access, Guard
from pathology_app.annotating.routes import annotation_routes
from pathology_app.interpreter import share_with_tiles
from pathology_app.slide_index.index import close_slide_indexes, current_index
from pathology_app.study_ledger import close_study_ledgers, current_study_ledger
from pathology_app.tiles.cache import current_cache
from pathology_app.tiles.exports import export_routes
from pathology_app.tiles.review_routes import review_routes
from pathology_app.tiles.routes import viewer_routes

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
    # Light or dark as the browser is, since no base is chosen.
    "theme.light.primaryColor": "#b0175b",
    "theme.dark.primaryColor": "#ff7fb2",
    "theme.dark.backgroundColor": "#12151c",
    "theme.dark.secondaryBackgroundColor": "#1d212b",
    "theme.dark.textColor": "#eceef4",
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
    pages = st.App(SCRIPT, lifespan=_lifespan)
    for name, value in OPTIONS.items():
        config.set_option(name, value)
    routes = [*viewer_routes(current_cache()), *annotation_routes(current_cache(), current_study_ledger())]
    routes += [*review_routes(current_cache()), *export_routes(current_cache())]
    return Guard(_before(pages, routes), access or access_by_environment(), SCRIPT)


def _before(pages: st.App, routes: Sequence[BaseRoute]) -> ASGIApp:
    """Routes that are answered before Streamlit sees them: it would compress every JPEG once more."""
    router = Router(routes, redirect_slashes=False, default=pages)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (pages if scope["type"] == "lifespan" else router)(scope, receive, send)

    return app


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[None]:
    """Pages and tiles share a process from here on. The index begins to fill. Databases are told when it ends."""
    share_with_tiles()
    current_index()
    yield
    close_slide_indexes()
    close_study_ledgers()
