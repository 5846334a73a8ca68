"""The web app: Streamlit's pages and the tile routes, one process, one port.

Behind a server of your own: `GEMSLIDE_PROJECT=DIR uvicorn --factory pathology_app.asgi:create_app`.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit import config

from pathology_app.tiles.cache import current_cache
from pathology_app.tiles.routes import viewer_routes

OPTIONS = {
    "browser.gatherUsageStats": False,
    "server.headless": True,
    "server.fileWatcherType": "none",
    "runner.magicEnabled": False,
    "client.toolbarMode": "viewer",
    "client.showErrorDetails": "type",
    "logger.level": "warning",
    "theme.base": "light",
    "theme.primaryColor": "#b0175b",
}
"""How Streamlit runs here. Its variables in the environment count only under `streamlit run`."""


def create_app(server_name: str | None = None) -> st.App:
    """The ASGI app over the project that the environment names.

    Args:
        server_name: name of this computer in the links of others, if they may use the app.
    """
    app = st.App(Path(__file__).with_name("main.py"), routes=viewer_routes(current_cache()))
    for name, value in OPTIONS.items():
        config.set_option(name, value)
    if server_name:
        config.set_option("browser.serverAddress", server_name)
    return app
