"""HTTP routes of the viewer. They run beside Streamlit in one process, or alone behind the same origin.

    /tiles/{slide_id}/{level}/{col}_{row}      levels as `pipeline.store.screen` counts them; see tile_body.py
    /overlays/{slide_id}/{model_id}/{class_index}.png
    /layers/{slide_id}/tissue.png      /layers/{slide_id}/quality/{score_index}.png
    /damaged/{slide_id}.png
    /thumbnails/{slide_id}.jpg
    /viewer/viewer-{hash}.js

Links carry `?v=` with the version of what they show, so browsers may keep the answers for ever.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import numpy as np
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from pathology_app.access.people import ForbiddenError, person_of
from pathology_app.blinding import BlindedError, check_not_hidden
from pathology_app.text import READ_ERRORS, message_of
from pathology_app.tiles.cache import BadLinkError, OpenSlide, SlideCache, UnknownNameError
from pathology_app.tiles.overlay_png import mask_png, overlay_png
from pathology_app.tiles.tile_body import MEDIA_TYPE, tile_body
from pathology_app.viewer.bundle import bundle_path
from pipeline.errors import BadManifestError, BadRecipeError, ChangedSourceError, GemslideError, UnreadableError
from pipeline.store.render import render_thumbnail_jpeg
from pipeline.store.screen import tile_parts

THUMBNAIL_PX = 320
MAX_RENDERS = 8
"""Files read and tiles rendered at once; Streamlit's own threads are not touched."""

CACHE_CONTROL = "private, max-age=31536000, immutable"

Handler = Callable[[Request], Awaitable[Response]]
Found = tuple[str, Callable[[], bytes]]
"""What is shown: a word that changes with it, and how to make it."""


class NoSuchTileError(GemslideError):
    """The link points outside the slide's pyramid."""

    code = "no_such_tile"


class TileServer:
    """Handlers over one project's slides.

    Everything that reads a file runs in threads: a slow disk must not hold up other requests.
    """

    def __init__(self, cache: SlideCache) -> None:
        self._cache = cache
        self._limiter = anyio.CapacityLimiter(MAX_RENDERS)

    async def tile(self, request: Request) -> Response:
        level, col, row = _numbers(request, r"(\d{1,9})/(\d{1,9})_(\d{1,9})", "{level}/{col}_{row}")
        slide_id = request.path_params["slide_id"]

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            return f"{slide.version}-{level}-{col}-{row}", lambda: _tile(slide, level, row, col)

        return await self._answer(request, find, MEDIA_TYPE)

    async def thumbnail(self, request: Request) -> Response:
        (slide_id,) = _match(request, r"(.+)\.jpg", "{slide_id}.jpg")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            return f"{slide.version}-thumbnail", lambda: render_thumbnail_jpeg(slide.reader, THUMBNAIL_PX)

        return await self._answer(request, find, "image/jpeg")

    async def damaged(self, request: Request) -> Response:
        (slide_id,) = _match(request, r"(.+)\.png", "{slide_id}.png")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            damaged = slide.damaged
            if damaged is None:
                raise UnknownNameError(f"slide {slide.reader.slide_id}: no damage is known of its file")
            return f"{slide.version}-damaged", lambda: mask_png(damaged.mask_yx)

        return await self._answer(request, find, "image/png")

    async def overlay(self, request: Request) -> Response:
        (class_index,) = _numbers(request, r"(\d{1,9})\.png", "{class_index}.png")
        slide_id, model_id = request.path_params["slide_id"], request.path_params["model_id"]
        person = person_of(request.scope)

        def find() -> Found:
            check_not_hidden(self._cache.project, person, slide_id)
            opened = self._cache.predictions(slide_id, model_id)
            class_names = opened.predictions.class_names
            if class_index >= len(class_names):
                raise NoSuchTileError(f"class {class_index}: the model has classes 0 to {len(class_names) - 1}")
            return f"{opened.version}-{class_index}", lambda: overlay_png(
                opened.predictions.probabilities_cyx[class_index]
            )

        return await self._answer(request, find, "image/png")

    async def layer(self, request: Request) -> Response:
        (wanted,) = _match(request, r"(tissue|quality/\d{1,4})\.png", "tissue.png or quality/{score_index}.png")
        slide_id = request.path_params["slide_id"]
        find = (
            (lambda: self._tissue(slide_id))
            if wanted == "tissue"
            else (lambda: self._quality(slide_id, int(wanted.removeprefix("quality/"))))
        )
        return await self._answer(request, find, "image/png")

    def _tissue(self, slide_id: str) -> Found:
        tissue = self._cache.tissue(slide_id)
        if tissue is None:
            raise UnknownNameError(f"slide {slide_id!r}: has no tissue mask")
        return f"{tissue.version}-tissue", lambda: overlay_png(tissue.mask_yx.astype(np.float32))

    def _quality(self, slide_id: str, index: int) -> Found:
        opened = self._cache.quality(slide_id)
        if opened is None or index >= len(opened.quality.names):
            raise UnknownNameError(f"slide {slide_id!r}: has no quality score {index}")
        return f"{opened.version}-quality-{index}", lambda: overlay_png(opened.quality.scores_cyx[index])

    async def _answer(self, request: Request, find: Callable[[], Found], media_type: str) -> Response:
        known = request.headers.get("if-none-match", "")

        def read() -> tuple[str, bytes | None]:
            identity, render = find()
            tag = f'"{identity}"'
            return tag, None if tag in known else render()

        tag, content = await anyio.to_thread.run_sync(read, limiter=self._limiter)
        headers = {"Cache-Control": CACHE_CONTROL, "ETag": tag}
        if content is None:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)


def _tile(slide: OpenSlide, level: int, row: int, col: int) -> bytes:
    levels = slide.screen_levels
    if level >= len(levels):
        raise NoSuchTileError(f"level {level}: slide {slide.reader.slide_id} has levels 0 to {len(levels) - 1}")
    try:
        return tile_body(tile_parts(slide.reader, levels[level], row, col))
    except IndexError as error:
        raise NoSuchTileError(f"slide {slide.reader.slide_id}: {error}") from error


async def viewer_bundle(request: Request) -> Response:
    """The built JavaScript of the viewer."""
    path = bundle_path()
    if request.path_params["rest"] != path.name:
        raise BadLinkError(f"{request.url.path!r}: the viewer of this version is {path.name}. Reload the page.")
    return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": CACHE_CONTROL})


def viewer_routes(cache: SlideCache) -> list[BaseRoute]:
    """All routes, each answering errors as JSON."""
    server = TileServer(cache)
    return [
        Route(path, with_json_errors(handler, cache.project.root))
        for path, handler in (
            ("/tiles/{slide_id}/{rest:path}", server.tile),
            ("/overlays/{slide_id}/{model_id}/{rest:path}", server.overlay),
            ("/layers/{slide_id}/{rest:path}", server.layer),
            ("/damaged/{rest:path}", server.damaged),
            ("/thumbnails/{rest:path}", server.thumbnail),
            ("/viewer/{rest:path}", viewer_bundle),
            # Else Streamlit would answer with its page.
            ("/tiles/{rest:path}", bad_link),
            ("/overlays/{rest:path}", bad_link),
            ("/layers/{rest:path}", bad_link),
        )
    ]


async def bad_link(request: Request) -> Response:
    """For links below ours that name nothing: else Streamlit would answer with its page."""
    raise BadLinkError(f"{request.url.path!r}: not a link of the viewer")


def with_json_errors(handler: Handler, root: Path) -> Handler:
    """The handler, answering what reading may raise as JSON."""

    async def guarded(request: Request) -> Response:
        try:
            return await handler(request)
        except READ_ERRORS as error:
            code = error.code if isinstance(error, GemslideError) else UnreadableError.code
            content = {"code": code, "message": message_of(error, root)}
            return JSONResponse(content, status_code=_status(error), headers={"Cache-Control": "no-store"})

    return guarded


def _status(error: Exception) -> int:
    if isinstance(error, (BadLinkError, BadManifestError, BadRecipeError, ChangedSourceError)):
        return 400
    if isinstance(error, (ForbiddenError, BlindedError)):
        return 403
    return 404 if isinstance(error, (NoSuchTileError, UnknownNameError)) else 500


def _match(request: Request, pattern: str, form: str) -> tuple[str, ...]:
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r}: expected {form}")
    return match.groups()


def _numbers(request: Request, pattern: str, form: str) -> tuple[int, ...]:
    return tuple(int(text) for text in _match(request, pattern, form))
