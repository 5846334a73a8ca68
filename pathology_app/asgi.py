"""The web app: Streamlit's pages and the tile routes behind one guard, one process, one port.

Behind a server of your own: `GEMSLIDE_PROJECT=DIR uvicorn --factory pathology_app.asgi:create_app`, and behind a
reverse proxy with `GEMSLIDE_NAMES=slides.example.org`: names that callers may use, separated by commas. The people who
may sign in are listed in the project's accounts.toml, or in the file that GEMSLIDE_ACCOUNTS names; GEMSLIDE_OIDC names
the file of a provider.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import streamlit as st
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

from pathology_app.access.guard import Access, Guard
from pathology_app.access.sign_in_routes import sign_in_routes
from pathology_app.annotating.routes import annotation_routes
from pathology_app.app_pages.log.routes import log_routes
from pathology_app.app_pages.slide.routes import opening_routes
from pathology_app.cases.routes import case_routes
from pathology_app.project.ledger import close_study_ledgers, current_study_ledger
from pathology_app.project.served import served_project
from pathology_app.registering.routes import registration_routes
from pathology_app.routes.declared import only_declared, openings_of
from pathology_app.serving.environment import SCRIPT, access_by_environment
from pathology_app.serving.first_page import with_viewer
from pathology_app.serving.installation import confine
from pathology_app.serving.interpreter import share_with_tiles
from pathology_app.serving.streamlit_files import streamlit_file_routes
from pathology_app.slides.cache import current_cache
from pathology_app.slides.index.index import close_slide_indexes, current_index
from pathology_app.tiles.case_reports import case_report_routes
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
    "logger.enableRich": False,  # it would print to stdout, which a log does not capture
    "client.showErrorLinks": False,
    # Light or dark as in the browser, since no base is chosen.
    "theme.light.primaryColor": "#b0175b",
    "theme.dark.primaryColor": "#ff7fb2",
    "theme.dark.backgroundColor": "#12151c",
    "theme.dark.secondaryBackgroundColor": "#1d212b",
    "theme.dark.textColor": "#eceef4",
}
"""Streamlit's options. Its environment variables count only under `streamlit run`."""


def create_app(access: Access | None = None) -> ASGIApp:
    """The ASGI app over the project that the environment names.

    Args:
        access: who is let in. None is for a server of your own: callers from this computer's loopback, under a
            loopback name; others under the names in `GEMSLIDE_NAMES`, after logging in. Where there are accounts,
            everybody signs in.

    Raises:
        BadRecipeError: `GEMSLIDE_NAMES` holds an invalid name, `GEMSLIDE_SLIDES` something other than a folder; the
            settings, or a provider's file, cannot be used.
    """
    if access is None:
        confine(served_project())
        access = access_by_environment()
    provider = access.sign_in.provider
    for name, value in OPTIONS.items():
        config.set_option(name, value)
    if provider is not None:
        # Set before Streamlit takes the provider's secrets: it signs what all processes must be able to read.
        config.set_option("server.cookieSecret", provider.cookie_secret)
    # Never the secrets in the folder where the app happens to be started.
    secrets = {"auth": {}} if provider is None else provider.secrets()
    pages = st.App(SCRIPT, lifespan=_lifespan_of(access), secrets=secrets)
    routes = only_declared(app_routes())
    return Guard(_before(pages, routes), access, SCRIPT, openings_of(routes))


def app_routes() -> list[BaseRoute]:
    """All routes besides Streamlit's own, each with what it shows (`routes/declared.py`)."""
    cache = current_cache()
    routes = [
        *viewer_routes(cache),
        *annotation_routes(cache, current_study_ledger()),
        *review_routes(cache),
        *case_report_routes(cache),
    ]
    return [
        *routes,
        *registration_routes(cache, current_study_ledger()),
        *opening_routes(cache),
        *case_routes(cache),
        *export_routes(cache),
        *sign_in_routes(),
        *log_routes(),
        *streamlit_file_routes(),
    ]


def _before(pages: st.App, routes: Sequence[BaseRoute]) -> ASGIApp:
    """App that serves our routes before Streamlit sees them: it would compress every JPEG once more."""
    router = Router(routes, redirect_slashes=False, default=with_viewer(pages))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await (pages if scope["type"] == "lifespan" else router)(scope, receive, send)

    return app


def _lifespan_of(access: Access) -> Callable[[st.App], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: st.App) -> AsyncIterator[None]:
        """Let pages and tiles share the process, and begin to fill the index; at the end, log what is waiting
        and close databases."""
        share_with_tiles()
        current_index()
        yield
        close_slide_indexes()
        access.sign_in.close()
        close_study_ledgers()

    return lifespan
