"""The tile routes alone, behind the same guard: as many such processes as needed, alongside one with the pages.

Each reads the project's folder and keeps nothing that another lacks, so any of them may answer any request.
Behind a server of your own: `GEMSLIDE_PROJECT=DIR GEMSLIDE_NAMES=… uvicorn --factory
pathology_app.tile_asgi:create_tile_app`. docs/examples/nginx.conf serves pages and tiles from one origin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from pathology_app.access.guard import Access, Guard
from pathology_app.project.ledger import close_study_ledgers
from pathology_app.routes.declared import only_declared, openings_of, plain
from pathology_app.serving.environment import SCRIPT, access_by_environment
from pathology_app.slides.cache import current_cache
from pathology_app.tiles.routes import viewer_routes


def create_tile_app(access: Access | None = None) -> ASGIApp:
    """The ASGI app over the project that the environment names, without its pages.

    Args:
        access: as in `pathology_app.asgi.create_app`.

    Raises:
        BadRecipeError: `GEMSLIDE_NAMES` or the project's `gemslide.toml` is invalid.
    """
    access = access or access_by_environment()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        access.sign_in.close()
        close_study_ledgers()

    routes = only_declared([*viewer_routes(current_cache()), plain("/{rest:path}", _tiles_only)])
    return Guard(Starlette(routes=routes, lifespan=lifespan), access, SCRIPT, openings_of(routes))


async def _tiles_only(request: Request) -> Response:
    message = "This process serves tiles and overlays. `gemslide app` serves the pages."
    return JSONResponse({"code": "not_found", "message": message}, status_code=404)
