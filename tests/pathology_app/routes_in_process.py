"""The tile routes, asked without a server."""

from __future__ import annotations

import asyncio

import httpx
from starlette.applications import Starlette

from pathology_app.tiles.cache import SlideCache
from pathology_app.tiles.exports import export_routes
from pathology_app.tiles.routes import viewer_routes


def get(cache: SlideCache, url: str, **headers: str) -> httpx.Response:
    """One request to the routes over a project's slides."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=[*viewer_routes(cache), *export_routes(cache)]))
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            return await client.get(url, headers=headers)

    return asyncio.run(ask())
