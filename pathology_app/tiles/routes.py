"""HTTP routes of the viewer. They run beside Streamlit in one process, or alone behind the same origin.

    /tiles/{slide_id}/{level}/{col}_{row}      levels as `pipeline.store.screen` counts them; see tile_body.py
    /colour/{slide_id}                         the slide's profile as a table; see colour_body.py
    /overlays/{slide_id}/{model_id}/{class_index}.png
    /layers/{slide_id}/tissue.png      /layers/{slide_id}/quality/{score_index}.png
    /damaged/{slide_id}.png
    /thumbnails/{slide_id}.jpg
    /heatmaps/{slide_id}/{model_id}/{class_index}.png      to lie over the thumbnail
    /viewer/viewer-{hash}.js

Links carry `?v=` with the version of what they show, so browsers may keep the answers for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import anyio
import numpy as np
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from pathology_app.access.people import Person, person_of
from pathology_app.blinding import check_not_hidden
from pathology_app.tiles.body_cache import BodyCache
from pathology_app.tiles.cache import BadLinkError, OpenSlide, SlideCache, UnknownNameError
from pathology_app.tiles.colour_body import COLOUR_MEDIA_TYPE, colour_body
from pathology_app.tiles.heat_maps import heat_map_png
from pathology_app.tiles.links import NoSuchTileError, bad_link, match_link, numbers_of, with_json_errors
from pathology_app.tiles.overlay_png import mask_png, overlay_png
from pathology_app.tiles.tile_body import MEDIA_TYPE, tile_body
from pathology_app.viewer.bundle import bundle_path
from pipeline.config import load_settings
from pipeline.store.colour import colour_table
from pipeline.store.render import render_thumbnail_jpeg
from pipeline.store.screen import tile_parts

THUMBNAIL_PX = 320
MAX_RENDERS = 8
"""Files read and tiles rendered at once; Streamlit's own threads are not touched."""

CACHE_CONTROL = "private, max-age=31536000, immutable"

FRESH_S = 1.0
"""For so long a version is taken as it was found: while somebody moves, one look at the disk serves hundreds of tiles.
A page that shows a newer version says so in its links, and is believed at once."""
MAX_FRESH = 1024

Subject = tuple[str, ...]
"""What a version is of: a slide, a slide and a model, a layer of a slide, a slide's thumbnail."""


class Rendered(NamedTuple):
    """A body, and whether it will be the same for as long as the version is."""

    body: bytes
    may_be_kept: bool = True


class Found(NamedTuple):
    """What is shown: a word that changes with it, and how to make it."""

    version: str
    render: Callable[[], Rendered]


class TileServer:
    """Handlers over one project's slides.

    Everything that reads a file runs in threads: a slow disk must not hold up other requests. What is in memory is
    answered without one: beside a page's script, every change of thread waits for the interpreter's lock.
    """

    def __init__(self, cache: SlideCache, bodies: BodyCache) -> None:
        self._cache, self._bodies = cache, bodies
        self._limiter = anyio.CapacityLimiter(MAX_RENDERS)
        self._fresh: dict[tuple[Person, Subject], tuple[str, float]] = {}
        """Versions as last found, and when; only touched in the event loop. By person: what one was shown just now says
        nothing of what another one may see."""

    async def tile(self, request: Request) -> Response:
        level, col, row = numbers_of(request, r"(\d{1,9})/(\d{1,9})_(\d{1,9})", "{level}/{col}_{row}")
        slide_id = request.path_params["slide_id"]

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            return Found(slide.version, lambda: _tile(slide, level, row, col))

        return await self._answer(request, (slide_id,), f"{level}-{col}-{row}", find, MEDIA_TYPE)

    async def thumbnail(self, request: Request) -> Response:
        (slide_id,) = match_link(request, r"(.+)\.jpg", "{slide_id}.jpg")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            return Found(slide.version, lambda: Rendered(render_thumbnail_jpeg(slide.reader, THUMBNAIL_PX)))

        return await self._answer(request, (slide_id, "", "thumbnail"), "thumbnail", find, "image/jpeg")

    async def heat_map(self, request: Request) -> Response:
        (index,) = numbers_of(request, r"(\d{1,9})\.png", "{class_index}.png")
        slide_id, model_id = request.path_params["slide_id"], request.path_params["model_id"]

        person = person_of(request.scope)

        def find() -> Found:
            check_not_hidden(self._cache.project, person, slide_id)
            known = self._cache.class_names(slide_id, model_id)
            if index >= len(known.class_names):
                raise NoSuchTileError(f"class {index}: the model has classes 0 to {len(known.class_names) - 1}")
            draw = partial(heat_map_png, self._cache, slide_id, model_id, index, THUMBNAIL_PX)
            return Found(known.version, lambda: Rendered(draw()))

        return await self._answer(
            request, (slide_id, model_id), f"heat-{index}", find, "image/png", asks_each_time=True
        )

    async def damaged(self, request: Request) -> Response:
        (slide_id,) = match_link(request, r"(.+)\.png", "{slide_id}.png")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            damaged = slide.damaged
            if damaged is None:
                raise UnknownNameError(f"slide {slide.reader.slide_id}: no damage is known of its file")
            return Found(slide.version, lambda: Rendered(mask_png(damaged.mask_yx)))

        return await self._answer(request, (slide_id,), "damaged", find, "image/png")

    async def colour(self, request: Request) -> Response:
        (slide_id,) = match_link(request, r"(.+)", "{slide_id}")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            icc = slide.reader.icc
            if icc is None:
                raise UnknownNameError(f"slide {slide.reader.slide_id}: has no colour profile; it is shown as scanned")
            return Found(slide.version, lambda: Rendered(colour_body(colour_table(icc))))

        return await self._answer(request, (slide_id,), "colour", find, COLOUR_MEDIA_TYPE)

    async def overlay(self, request: Request) -> Response:
        (class_index,) = numbers_of(request, r"(\d{1,9})\.png", "{class_index}.png")
        slide_id, model_id = request.path_params["slide_id"], request.path_params["model_id"]
        person = person_of(request.scope)

        def find() -> Found:
            check_not_hidden(self._cache.project, person, slide_id)
            opened = self._cache.predictions(slide_id, model_id)
            class_names = opened.predictions.class_names
            if class_index >= len(class_names):
                raise NoSuchTileError(f"class {class_index}: the model has classes 0 to {len(class_names) - 1}")
            probabilities_yx = opened.predictions.probabilities_cyx[class_index]
            return Found(opened.version, lambda: Rendered(overlay_png(probabilities_yx)))

        return await self._answer(
            request, (slide_id, model_id), str(class_index), find, "image/png", asks_each_time=True
        )

    async def layer(self, request: Request) -> Response:
        (wanted,) = match_link(request, r"(tissue|quality/\d{1,4})\.png", "tissue.png or quality/{score_index}.png")
        slide_id = request.path_params["slide_id"]
        kind, _, index = wanted.partition("/")
        find = (lambda: self._tissue(slide_id)) if kind == "tissue" else (lambda: self._quality(slide_id, int(index)))
        return await self._answer(request, (slide_id, "layers", kind), f"{kind}-{index}", find, "image/png")

    def _tissue(self, slide_id: str) -> Found:
        tissue = self._cache.tissue(slide_id)
        if tissue is None:
            raise UnknownNameError(f"slide {slide_id!r}: has no tissue mask")
        return Found(tissue.version, lambda: Rendered(overlay_png(tissue.mask_yx.astype(np.float32))))

    def _quality(self, slide_id: str, index: int) -> Found:
        opened = self._cache.quality(slide_id)
        if opened is None or index >= len(opened.quality.names):
            raise UnknownNameError(f"slide {slide_id!r}: has no quality score {index}")
        scores_yx = opened.quality.scores_cyx[index]
        return Found(opened.version, lambda: Rendered(overlay_png(scores_yx)))

    async def _answer(
        self,
        request: Request,
        subject: Subject,
        part: str,
        find: Callable[[], Found],
        media_type: str,
        *,
        asks_each_time: bool = False,
    ) -> Response:
        """What is asked for, from memory or from disk; 304 where the browser has it.

        Args:
            part: of the subject; with its version it says what the answer shows.
            asks_each_time: `find` also says who may see it, and that may be another answer a moment later.
        """
        known, who = request.headers.get("if-none-match", ""), (person_of(request.scope), subject)
        version = None if asks_each_time else self._fresh_version(who, request.query_params.get("v"))
        if version is not None:
            tag = f'"{version}-{part}"'
            if tag in known:
                return _response(tag, None, media_type)
            body = self._bodies.get(tag)
            if body is not None:
                return _response(tag, body, media_type)

        def read() -> tuple[str, str, bytes | None]:
            found = find()
            tag = f'"{found.version}-{part}"'
            return found.version, tag, None if tag in known else self._body(tag, found)

        found_version, tag, body = await anyio.to_thread.run_sync(read, limiter=self._limiter)
        if len(self._fresh) >= MAX_FRESH:
            self._fresh.clear()
        self._fresh[who] = (found_version, time.monotonic())
        return _response(tag, body, media_type)

    def _body(self, tag: str, found: Found) -> bytes:
        body = self._bodies.get(tag)
        if body is None:
            body, may_be_kept = found.render()
            if may_be_kept:
                self._bodies.put(tag, body)
        return body

    def _fresh_version(self, who: tuple[Person, Subject], asked: str | None) -> str | None:
        """The subject's version where this person was shown it just now and asks for no other one."""
        version, found_s = self._fresh.get(who, ("", 0.0))
        is_fresh = version and time.monotonic() - found_s < FRESH_S and asked in (None, version)
        return version if is_fresh else None


def _response(tag: str, body: bytes | None, media_type: str) -> Response:
    headers = {"Cache-Control": CACHE_CONTROL, "ETag": tag}
    if body is None:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _tile(slide: OpenSlide, level: int, row: int, col: int) -> Rendered:
    levels = slide.screen_levels
    if level >= len(levels):
        raise NoSuchTileError(f"level {level}: slide {slide.reader.slide_id} has levels 0 to {len(levels) - 1}")
    try:
        parts = tile_parts(slide.reader, levels[level], row, col)
    except IndexError as error:
        raise NoSuchTileError(f"slide {slide.reader.slide_id}: {error}") from error
    # What could not be read now may be read later.
    return Rendered(tile_body(parts), may_be_kept=all(part.jpeg is not None for part in parts))


async def viewer_bundle(request: Request) -> Response:
    """The built JavaScript of the viewer."""
    path = bundle_path()
    if request.path_params["rest"] != path.name:
        raise BadLinkError(f"{request.url.path!r}: the viewer of this version is {path.name}. Reload the page.")
    return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": CACHE_CONTROL})


def viewer_routes(cache: SlideCache) -> list[BaseRoute]:
    """All routes, each answering errors as JSON.

    Raises:
        BadRecipeError: the project's `gemslide.toml`, which says how much is kept in memory, does not hold together.
    """
    server = TileServer(cache, BodyCache(load_settings(cache.project.settings_path).app.tile_cache_mb * 2**20))
    return [
        Route(path, with_json_errors(handler, cache.project.root), middleware=middleware)
        for path, handler, middleware in (
            ("/tiles/{slide_id}/{rest:path}", server.tile, ()),
            ("/overlays/{slide_id}/{model_id}/{rest:path}", server.overlay, ()),
            ("/layers/{slide_id}/{rest:path}", server.layer, ()),
            ("/colour/{rest:path}", server.colour, ()),
            ("/damaged/{rest:path}", server.damaged, ()),
            ("/thumbnails/{rest:path}", server.thumbnail, ()),
            ("/heatmaps/{slide_id}/{model_id}/{rest:path}", server.heat_map, ()),
            # Of all that is sent here, only this is not compressed already.
            ("/viewer/{rest:path}", viewer_bundle, (Middleware(GZipMiddleware),)),
            # Else Streamlit would answer with its page.
            ("/tiles/{rest:path}", bad_link, ()),
            ("/overlays/{rest:path}", bad_link, ()),
            ("/layers/{rest:path}", bad_link, ()),
            ("/heatmaps/{rest:path}", bad_link, ()),
        )
    ]
