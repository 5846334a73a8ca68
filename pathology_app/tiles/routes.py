"""HTTP routes of the viewer. They run beside Streamlit in one process, or alone behind the same origin.

    /tiles/{slide_id}/{level}/{col}_{row}.jpg
    /overlays/{slide_id}/{model_id}/{class_index}.png
    /thumbnails/{slide_id}.jpg
    /viewer/viewer-{hash}.js

Links carry `?v=` with the version of what they show, so browsers may keep the answers for ever.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable

import anyio
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from pathology_app.tiles.cache import BadLinkError, SlideCache, UnknownNameError
from pathology_app.tiles.overlay_png import overlay_png
from pathology_app.viewer.bundle import bundle_path
from pipeline.errors import GemslideError
from pipeline.store.render import render_chunk_jpeg, render_thumbnail_jpeg

THUMBNAIL_PX = 320
MAX_RENDERS = 8
"""Tiles rendered at once; Streamlit's own threads are not touched."""

CACHE_CONTROL = "private, max-age=31536000, immutable"

Handler = Callable[[Request], Awaitable[Response]]
Render = Callable[[], bytes]


class NoSuchTileError(GemslideError):
    """The link points outside the slide's pyramid."""

    code = "no_such_tile"


class TileServer:
    """Handlers over one project's slides."""

    def __init__(self, cache: SlideCache) -> None:
        self._cache = cache
        self._limiter = anyio.CapacityLimiter(MAX_RENDERS)

    async def tile(self, request: Request) -> Response:
        level, col, row = _numbers(request, r"(\d{1,9})/(\d{1,9})_(\d{1,9})\.jpg", "{level}/{col}_{row}")
        slide = self._cache.slide(request.path_params["slide_id"])

        def render() -> bytes:
            try:
                return render_chunk_jpeg(slide.reader, level, row, col)
            except IndexError as error:
                raise NoSuchTileError(f"slide {slide.reader.slide_id}: {error}") from error

        return await self._answer(request, f"{slide.version}-{level}-{col}-{row}", render, "image/jpeg")

    async def thumbnail(self, request: Request) -> Response:
        (slide_id,) = _match(request, r"(.+)\.jpg", "{slide_id}.jpg")
        slide = self._cache.slide(slide_id)
        render = functools.partial(render_thumbnail_jpeg, slide.reader, THUMBNAIL_PX)
        return await self._answer(request, f"{slide.version}-thumbnail", render, "image/jpeg")

    async def overlay(self, request: Request) -> Response:
        (class_index,) = _numbers(request, r"(\d{1,9})\.png", "{class_index}.png")
        opened = self._cache.predictions(request.path_params["slide_id"], request.path_params["model_id"])
        class_names = opened.predictions.class_names
        if class_index >= len(class_names):
            raise NoSuchTileError(f"class {class_index}: the model has classes 0 to {len(class_names) - 1}")
        render = functools.partial(overlay_png, opened.predictions.probabilities_cyx[class_index])
        return await self._answer(request, f"{opened.version}-{class_index}", render, "image/png")

    async def _answer(self, request: Request, identity: str, render: Render, media_type: str) -> Response:
        headers = {"Cache-Control": CACHE_CONTROL, "ETag": f'"{identity}"'}
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = await anyio.to_thread.run_sync(render, limiter=self._limiter)
        return Response(content, media_type=media_type, headers=headers)


async def viewer_bundle(request: Request) -> Response:
    """The built JavaScript of the viewer."""
    path = bundle_path()
    if request.path_params["rest"] != path.name:
        raise BadLinkError(f"{request.url.path}: the viewer of this version is {path.name}. Reload the page.")
    return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": CACHE_CONTROL})


def viewer_routes(cache: SlideCache) -> list[BaseRoute]:
    """All routes, each answering errors as JSON."""
    server = TileServer(cache)
    return [
        Route("/tiles/{slide_id}/{rest:path}", _with_json_errors(server.tile)),
        Route("/overlays/{slide_id}/{model_id}/{rest:path}", _with_json_errors(server.overlay)),
        Route("/thumbnails/{rest:path}", _with_json_errors(server.thumbnail)),
        Route("/viewer/{rest:path}", _with_json_errors(viewer_bundle)),
        # Else Streamlit would answer with its page.
        *(Route(f"/{top}/{{rest:path}}", _with_json_errors(_bad_link)) for top in ("tiles", "overlays")),
    ]


async def _bad_link(request: Request) -> Response:
    raise BadLinkError(f"{request.url.path}: not a link of the viewer")


def _with_json_errors(handler: Handler) -> Handler:
    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except BadLinkError as error:
            return _error(400, error)
        except (NoSuchTileError, UnknownNameError) as error:
            return _error(404, error)
        except GemslideError as error:
            return _error(500, error)

    return guarded


def _error(status: int, error: GemslideError) -> Response:
    content = {"code": error.code, "message": str(error)}
    return JSONResponse(content, status_code=status, headers={"Cache-Control": "no-store"})


def _match(request: Request, pattern: str, form: str) -> tuple[str, ...]:
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r}: expected {form}")
    return match.groups()


def _numbers(request: Request, pattern: str, form: str) -> tuple[int, ...]:
    return tuple(int(text) for text in _match(request, pattern, form))
