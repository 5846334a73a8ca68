"""Requests to routes without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from pathology_app.slides.cache import SlideCache
from pathology_app.tiles.exports import export_routes
from pathology_app.tiles.routes import viewer_routes


def get(cache: SlideCache, url: str, **headers: str) -> httpx.Response:
    """Send one request to the tile routes over a project's slides."""
    return get_from([*viewer_routes(cache), *export_routes(cache)], url, **headers)


def get_from(routes: Sequence[BaseRoute], url: str, **headers: str) -> httpx.Response:
    """Send one request to any routes."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            return await client.get(url, headers=headers)

    return asyncio.run(ask())
