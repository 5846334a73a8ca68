"""HTTP routes of the viewer. They run next to Streamlit in one process, or alone behind the same origin.

    /tiles/{slide_id}/{level}/{col}_{row}      levels as numbered by `pipeline.store.view.screen`; see tile_body.py
    /colour/{slide_id}                         the slide's profile as a table; see colour_body.py
    /overlays/{slide_id}/{model_id}/{class_index}.png      /overlays/{slide_id}/{model_id}/attention.png
    /layers/{slide_id}/tissue.png      /layers/{slide_id}/quality/{score_index}.png
    /damaged/{slide_id}.png                    these and /overlays: one for each kind of overlay (slides/overlays.py)
    /thumbnails/{slide_id}.jpg
    /heatmaps/{slide_id}/{model_id}/{class_index}.png      drawn over the thumbnail
    /ahead/{slide_id}/slide.json               what a viewer needs to request tiles (frontend/src/types.ts, Slide)
    /ahead/{slide_id}/colour                   as /colour
    /ahead/{slide_id}/{level}/{col}_{row}      as /tiles, of levels that show the whole slide on a screen
    /viewer/viewer-{hash}.js

/ahead is for slides that a person may open next. Like thumbnails in a list, what it sends does not count as viewing a
slide, so it has no level finer than `MAX_AHEAD_PX`.

Links carry `?v=` with the version of their content, so browsers may keep the answers for ever; for model output, they
must check each time whether it may still be shown.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import anyio
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute

from pathology_app.people.person import Person, person_of
from pathology_app.readings.blinding import Shows, check_shown
from pathology_app.routes.declared import REVALIDATED, declared
from pathology_app.routes.errors import Handler
from pathology_app.slides.cache import BadLinkError, NoSuchTileError, OpenSlide, SlideCache, UnknownNameError
from pathology_app.slides.overlays import KINDS, OverlayKind, Place
from pathology_app.slides.presenters import slide_data
from pathology_app.tiles.body_cache import BodyCache
from pathology_app.tiles.colour_body import COLOUR_MEDIA_TYPE, colour_body
from pathology_app.tiles.heat_maps import heat_map_png
from pathology_app.tiles.links import bad_link, match_link, numbers_of
from pathology_app.tiles.tile_body import MEDIA_TYPE, tile_body
from pathology_app.viewer.bundle import bundle_path
from pipeline.settings.config import load_settings
from pipeline.store.view.colour import colour_table
from pipeline.store.view.render import render_thumbnail_jpeg
from pipeline.store.view.screen import tile_parts

THUMBNAIL_PX = 320
MAX_AHEAD_PX = 2560
"""Longer side of the finest level that is sent ahead."""
MAX_RENDERS = 8
"""Files read and tiles rendered at once; Streamlit's own threads are not affected."""

CACHE_CONTROL = "private, max-age=31536000, immutable"

FRESH_S = 1.0
"""Time for which a version is trusted without another check: during panning, one check of the disk serves hundreds of
tiles. A newer version in a page's links is accepted at once."""
MAX_FRESH = 1024

Subject = tuple[str, ...]
"""Subject of a version: a slide, a slide and a model, a layer of a slide, a slide's thumbnail."""


class Rendered(NamedTuple):
    """A body, and whether it stays the same as long as the version does."""

    body: bytes
    may_be_kept: bool = True


class Found(NamedTuple):
    """Content: a version that changes with it, and a function that renders it."""

    version: str
    render: Callable[[], Rendered]


class TileServer:
    """Handlers for one project's slides.

    Everything that reads a file runs in threads: a slow disk must not delay other requests. Content in memory is
    answered without a thread: while a page's script runs, every thread switch waits for the interpreter's lock.
    """

    def __init__(self, cache: SlideCache, bodies: BodyCache) -> None:
        self._cache, self._bodies = cache, bodies
        self._limiter = anyio.CapacityLimiter(MAX_RENDERS)
        self._fresh: dict[tuple[Person, Subject], tuple[str, float]] = {}
        """Versions as last found, and when; only touched in the event loop. Keyed by person: content just shown to one
        may be hidden from another."""

    async def tile(self, request: Request) -> Response:
        form = "{level}/{col}_{row} or z{plane}/{level}/{col}_{row}"
        height, *place = match_link(request, r"(?:z(\d{1,3})/)?(\d{1,9})/(\d{1,9})_(\d{1,9})", form)
        (level, col, row), slide_id = map(int, place), request.path_params["slide_id"]
        part = f"{level}-{col}-{row}" + (f"-z{int(height)}" if height else "")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            shown = slide.at_plane(int(height)) if height else slide
            return Found(slide.version, lambda: _tile(shown, level, row, col))

        return await self._answer(request, (slide_id,), part, find, MEDIA_TYPE)

    async def thumbnail(self, request: Request) -> Response:
        (slide_id,) = match_link(request, r"(.+)\.jpg", "{slide_id}.jpg")

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            return Found(slide.version, lambda: Rendered(render_thumbnail_jpeg(slide.reader, THUMBNAIL_PX)))

        return await self._answer(request, (slide_id, "", "thumbnail"), "thumbnail", find, "image/jpeg")

    async def heat_map(self, request: Request) -> Response:
        (index,) = numbers_of(request, r"(\d{1,9})\.png", "{class_index}.png")
        slide_id, model_id = request.path_params["slide_id"], request.path_params["model_id"]

        def find() -> Found:
            known = self._cache.class_names(slide_id, model_id)
            if index >= len(known.class_names):
                raise NoSuchTileError(f"class {index}: the model has classes 0 to {len(known.class_names) - 1}")
            threshold = self._cache.threshold(slide_id, model_id)
            draw = partial(heat_map_png, self._cache, slide_id, model_id, index, THUMBNAIL_PX, threshold)
            return Found(f"{known.version}-{threshold:g}", lambda: Rendered(draw()))

        subject = (slide_id, model_id, "heat map")
        return await self._answer(request, subject, f"heat-{index}", find, "image/png", REVALIDATED)

    async def colour(self, request: Request) -> Response:
        (slide_id,) = match_link(request, r"(.+)", "{slide_id}")
        return await self._colour(request, slide_id)

    async def _colour(self, request: Request, slide_id: str) -> Response:
        def find() -> Found:
            slide = self._cache.slide(slide_id)
            icc = slide.reader.icc
            if icc is None:
                raise UnknownNameError(f"slide {slide.reader.slide_id}: has no colour profile; it is shown as scanned")
            return Found(slide.version, lambda: Rendered(colour_body(colour_table(icc))))

        return await self._answer(request, (slide_id,), "colour", find, COLOUR_MEDIA_TYPE)

    async def ahead(self, request: Request) -> Response:
        """Answer what is loaded for a slide before it is opened."""
        rest, slide_id = request.path_params["rest"], request.path_params["slide_id"]
        if rest == "slide.json":
            describe = partial(_describe, self._cache, slide_id)
            content = await anyio.to_thread.run_sync(describe, limiter=self._limiter)
            return JSONResponse(content, headers={"Cache-Control": REVALIDATED})
        if rest == "colour":
            return await self._colour(request, slide_id)
        expected = "slide.json, colour or {level}/{col}_{row}"
        level, col, row = numbers_of(request, r"(\d{1,9})/(\d{1,9})_(\d{1,9})", expected)

        def find() -> Found:
            slide = self._cache.slide(slide_id)
            shape = slide.screen_levels[level] if level < len(slide.screen_levels) else None
            if shape and max(shape.width_px, shape.height_px) > MAX_AHEAD_PX:
                raise NoSuchTileError(f"level {level}: only levels of up to {MAX_AHEAD_PX} px are sent ahead")
            return Found(slide.version, lambda: _tile(slide, level, row, col))

        # Another subject than that of /tiles, whose levels have no limit: bodies found there are not sent from here.
        return await self._answer(request, (slide_id, "", "ahead"), f"ahead-{level}-{col}-{row}", find, MEDIA_TYPE)

    def overlays(self, kinds: Sequence[OverlayKind]) -> Handler:
        """The handler for kinds of overlays that share a path; the link's last part identifies the kind."""

        async def overlay(request: Request) -> Response:
            kind, place = _find_overlay(request, kinds)

            def find() -> Found:
                cells = kind.find(self._cache, place)
                return Found(cells.version, lambda: Rendered(cells.png()))

            if kind.blinded:
                check = partial(self._check_shown, person_of(request.scope), kind, place)
                await anyio.to_thread.run_sync(check, limiter=self._limiter)
            subject, part = (place.slide_id, kind.name, place.model_id), "-".join((kind.name, *place.rest))
            cache_control = REVALIDATED if kind.blinded else CACHE_CONTROL
            return await self._answer(request, subject, part, find, "image/png", cache_control)

        return overlay

    def _check_shown(self, person: Person, kind: OverlayKind, place: Place) -> None:
        """Refuse an overlay that rests on further slides whose predictions are hidden; the route checked its own.

        Raises:
            BlindedError: it does. GemslideError, OSError: as `OverlayKind.find` and `check_shown`.
        """
        for slide_id in kind.rests_on(self._cache, place):
            if slide_id != place.slide_id:
                check_shown(self._cache.project, person, Shows.PREDICTION, slide_id)

    async def _answer(
        self,
        request: Request,
        subject: Subject,
        part: str,
        find: Callable[[], Found],
        media_type: str,
        cache_control: str = CACHE_CONTROL,
    ) -> Response:
        """Answer a request, from memory or from disk; 304 if the browser has the content.

        Args:
            part: part of the subject; with the version it identifies the content.
            cache_control: caching rule for the browser.
        """
        known, who = request.headers.get("if-none-match", ""), (person_of(request.scope), subject)
        version = self._fresh_version(who, request.query_params.get("v"))
        if version is not None:
            tag = f'"{version}-{part}"'
            if tag in known:
                return _response(tag, None, media_type, cache_control)
            body = self._bodies.get(tag)
            if body is not None:
                return _response(tag, body, media_type, cache_control)

        def read() -> tuple[str, str, bytes | None]:
            content = find()
            tag = f'"{content.version}-{part}"'
            return content.version, tag, None if tag in known else self._body(tag, content)

        found_version, tag, body = await anyio.to_thread.run_sync(read, limiter=self._limiter)
        if len(self._fresh) >= MAX_FRESH:
            self._fresh.clear()
        self._fresh[who] = (found_version, time.monotonic())
        return _response(tag, body, media_type, cache_control)

    def _body(self, tag: str, content: Found) -> bytes:
        body = self._bodies.get(tag)
        if body is None:
            body, may_be_kept = content.render()
            if may_be_kept:
                self._bodies.put(tag, body)
        return body

    def _fresh_version(self, who: tuple[Person, Subject], requested: str | None) -> str | None:
        """The subject's version, if this person was shown it just now and requests no other."""
        version, found_s = self._fresh.get(who, ("", 0.0))
        is_fresh = version and time.monotonic() - found_s < FRESH_S and requested in (None, version)
        return version if is_fresh else None


def _response(tag: str, body: bytes | None, media_type: str, cache_control: str) -> Response:
    headers = {"Cache-Control": cache_control, "ETag": tag}
    if body is None:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _find_overlay(request: Request, kinds: Sequence[OverlayKind]) -> tuple[OverlayKind, Place]:
    """The kind of overlay that a link names, and the overlay's place. Raises BadLinkError: there is none."""
    params = request.path_params
    for kind in kinds:
        if match := re.fullmatch(kind.pattern, params["rest"], re.ASCII):
            slide_id = params.get("slide_id") or match.group(1)
            return kind, Place(slide_id, params.get("model_id", ""), match.groups())
    raise BadLinkError(f"{params['rest']!r}: expected {' or '.join(kind.form for kind in kinds)}")


def _describe(cache: SlideCache, slide_id: str) -> dict[str, Any]:
    return slide_data(cache.slide(slide_id))


def _tile(slide: OpenSlide, level: int, row: int, col: int) -> Rendered:
    levels = slide.screen_levels
    if level >= len(levels):
        raise NoSuchTileError(f"level {level}: slide {slide.reader.slide_id} has levels 0 to {len(levels) - 1}")
    try:
        parts = tile_parts(slide.reader, levels[level], row, col)
    except IndexError as error:
        raise NoSuchTileError(f"slide {slide.reader.slide_id}: {error}") from error
    # Parts that cannot be read now may be readable later.
    return Rendered(tile_body(parts), may_be_kept=all(part.jpeg is not None for part in parts))


async def viewer_bundle(request: Request) -> Response:
    """The built JavaScript of the viewer."""
    path = bundle_path()
    if request.path_params["rest"] != path.name:
        raise BadLinkError(f"{request.url.path!r}: the viewer of this version is {path.name}. Reload the page.")
    return FileResponse(path, media_type="text/javascript", headers={"Cache-Control": CACHE_CONTROL})


def viewer_routes(cache: SlideCache) -> list[BaseRoute]:
    """All routes, each of which answers errors as JSON.

    Raises:
        BadRecipeError: the project's `gemslide.toml`, which sets the size of the memory cache, is invalid.
    """
    server = TileServer(cache, BodyCache(load_settings(cache.project.settings_path).app.tile_cache_mb * 2**20))
    neither, prediction = Shows.NEITHER, Shows.PREDICTION
    by_path: dict[str, list[OverlayKind]] = {}
    for kind in KINDS:
        by_path.setdefault(kind.path, []).append(kind)
    return [
        declared(cache.project, path, handler, shows, middleware=middleware)
        for path, handler, shows, middleware in (
            ("/tiles/{slide_id}/{rest:path}", server.tile, neither, ()),
            *(
                (path, server.overlays(kinds), prediction if any(kind.blinded for kind in kinds) else neither, ())
                for path, kinds in by_path.items()
            ),
            ("/colour/{rest:path}", server.colour, neither, ()),
            ("/ahead/{slide_id}/{rest:path}", server.ahead, neither, ()),
            ("/thumbnails/{rest:path}", server.thumbnail, neither, ()),
            ("/heatmaps/{slide_id}/{model_id}/{rest:path}", server.heat_map, prediction, ()),
            # Everything else sent here is already compressed.
            ("/viewer/{rest:path}", viewer_bundle, neither, (Middleware(GZipMiddleware),)),
            # Otherwise Streamlit would answer with its page.
            ("/tiles/{rest:path}", bad_link, neither, ()),
            ("/ahead/{rest:path}", bad_link, neither, ()),
            ("/overlays/{rest:path}", bad_link, neither, ()),
            ("/layers/{rest:path}", bad_link, neither, ()),
            ("/heatmaps/{rest:path}", bad_link, neither, ()),
        )
    ]
