"""HTTP routes of annotations, beside those of the tiles.

    GET  /annotations/{slide_id}/changes?since=N     what has changed; without `since`, the counts alone
    GET  /annotations/{slide_id}/tiles/{level}/{col}_{row}?v=N     see vector_tile.py
    GET  /annotations/{slide_id}/at/{x}_{y}?within=PX0     under a point, the smallest first
    GET  /annotations/{slide_id}/found?words=…      whose class, note or author hold the words
    GET  /annotations/{slide_id}/qupath.geojson
    POST /annotations/{slide_id}     {"changes": [...]}: saved, with what was in conflict
    POST /annotations/{slide_id}/join, /split     {"areas": [...], "line": ...}: the new areas; nothing is saved
    POST /annotations/{slide_id}/import     a file of QuPath, ASAP or ImageScope

Everybody who may look sees annotations; who may annotate changes them. Points are level-0 pixels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
from shapely.geometry import mapping
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from pathology_app.access.people import Action, ForbiddenError, Person, person_of, require
from pathology_app.annotating.bodies import (
    MAX_CHANGES_BYTES,
    MAX_IMPORT_BYTES,
    TooLargeError,
    areas_and_line,
    body_of,
    drafts_of,
)
from pathology_app.annotating.slide_outlines import OutlineCache, Outlines
from pathology_app.annotating.vector_tile import MEDIA_TYPE, num_levels, vector_tile
from pathology_app.blinding import BlindedError, check_not_hidden
from pathology_app.study_ledger import StudyLedger
from pathology_app.text import READ_ERRORS
from pathology_app.tiles.cache import BadLinkError, OpenSlide, SlideCache, UnknownNameError
from pathology_app.tiles.links import json_error
from pipeline.annotations import parse_annotations, qupath_origin_xy0
from pipeline.errors import BadAnnotationError, LockedError, UnreadableError
from pipeline.palettes import CLASS_COLOURS
from pipeline.review import (
    Annotation,
    changes_since,
    class_colours,
    exported,
    features_of,
    find_annotations,
    import_file,
    joined,
    save,
    some_annotations,
    split_by,
)
from pipeline.store.reader import StoreReader
from pipeline.study import Ledger

MAX_AT_ONCE = 6
"""Requests that read or write; Streamlit's own threads are not touched."""
MOST_CHANGES = 1000
"""Listed one by one; of more the browser asks for the tiles alone."""
MAX_WORDS = 200
_KEPT = "private, max-age=31536000, immutable"
_NEVER_KEPT = {"Cache-Control": "no-store"}
_COORDINATE = r"(-?\d{1,9}(?:\.\d{1,6})?)"

Answer = TypeVar("Answer")
Handler = Callable[[Request, StoreReader, Person], Awaitable[Response]]


class AnnotationServer:
    """Handlers over one project's annotations. What reads or writes runs in threads."""

    def __init__(self, cache: SlideCache, ledger: StudyLedger) -> None:
        self._cache, self._ledger = cache, ledger
        self._outlines = OutlineCache()
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)
        self._project = hashlib.sha256(str(cache.project.root).encode()).hexdigest()[:16]

    def routes(self) -> list[BaseRoute]:
        """Each answers errors as JSON."""
        look, annotate, export = Action.LOOK, Action.ANNOTATE, Action.EXPORT
        table: tuple[tuple[str, str, Action, Handler], ...] = (
            ("GET", "/changes", look, self._changes),
            ("GET", "/tiles/{rest:path}", look, self._tile),
            ("GET", "/at/{rest:path}", look, self._at),
            ("GET", "/found", look, self._found),
            ("GET", "/qupath.geojson", export, self._export),
            ("POST", "", annotate, self._save),
            ("POST", "/join", annotate, self._join),
            ("POST", "/split", annotate, self._split),
            ("POST", "/import", annotate, self._import),
        )
        routes: list[BaseRoute] = [
            Route(f"/annotations/{{slide_id}}{path}", self._guarded(action, handler), methods=[method])
            for method, path, action, handler in table
        ]
        # Else Streamlit would answer with its page.
        return [*routes, Route("/annotations/{rest:path}", _no_link, methods=["GET", "POST"])]

    def _guarded(self, action: Action, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                person = person_of(request.scope)
                require(person, action)
                slide_id = request.path_params["slide_id"]
                slide = await self._in_thread(lambda: self._may_see(person, slide_id))
                return await handler(request, slide.reader, person)
            except READ_ERRORS as error:
                return json_error(error, self._cache.project.root, _status(error))

        return guarded

    def _may_see(self, person: Person, slide_id: str) -> OpenSlide:
        """The slide; BlindedError while somebody reads it without help: others' annotations would be help."""
        check_not_hidden(self._cache.project, person, slide_id)
        return self._cache.slide(slide_id)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    async def _changes(self, request: Request, reader: StoreReader, person: Person) -> Response:
        asked = request.query_params.get("since")
        if asked is not None and not re.fullmatch(r"\d{1,15}", asked, re.ASCII):
            raise BadLinkError(f"since={asked!r:.40}: expected a number")

        def read() -> dict[str, Any]:
            ledger = self._ledger.ledger()
            outlines = self._outlines.outlines(ledger, reader.slide_id)
            listed = None
            if asked is not None and ledger is not None:
                found = changes_since(ledger, reader.slide_id, int(asked), most=MOST_CHANGES)
                # More may have come in since the outlines were read; it is told next time.
                if found.annotations is not None:
                    listed = [each.as_dict() for each in found.annotations if each.change <= outlines.change]
            elif asked is not None:
                listed = []
            return {**self._summary(ledger, outlines, person), "annotations": listed}

        return JSONResponse(await self._in_thread(read), headers=_NEVER_KEPT)

    def _summary(self, ledger: Ledger | None, outlines: Outlines, person: Person) -> dict[str, Any]:
        colours = class_colours(ledger) if ledger else {}
        return {
            "change": outlines.change,
            "classes": [[name, outlines.counts.get(name, 0), colour] for name, colour in colours.items()],
            "without_class": outlines.counts.get(None, 0),
            "palette": CLASS_COLOURS,
            "project": self._project,
            "me": person.actor,
            "may_annotate": person.may(Action.ANNOTATE),
            "may_export": person.may(Action.EXPORT),
        }

    async def _tile(self, request: Request, reader: StoreReader, _: Person) -> Response:
        level, col, row = (int(each) for each in _matched(request, r"(\d{1,2})/(\d{1,9})_(\d{1,9})"))
        side_px0 = 512 << level
        levels, (width, height) = num_levels(reader.size_wh_px0), reader.size_wh_px0
        if level >= levels or col * side_px0 >= width or row * side_px0 >= height:
            raise UnknownNameError(f"tile {level}/{col}_{row}: slide {reader.slide_id} has no such tile")

        def read() -> tuple[int, bytes]:
            outlines = self._outlines.outlines(self._ledger.ledger(), reader.slide_id)
            return outlines.change, vector_tile(outlines, level, col, row)

        change, content = await self._in_thread(read)
        is_asked = request.query_params.get("v") == f"{self._project}-{change}"
        headers = {"Cache-Control": _KEPT} if is_asked else _NEVER_KEPT
        return Response(content, media_type=MEDIA_TYPE, headers=headers)

    async def _at(self, request: Request, reader: StoreReader, _: Person) -> Response:
        x_px0, y_px0 = (float(each) for each in _matched(request, f"{_COORDINATE}_{_COORDINATE}"))
        asked = request.query_params.get("within", "0")
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", asked, re.ASCII):
            raise BadLinkError(f"within={asked!r:.40}: expected a number")

        def read() -> list[Annotation]:
            ledger = self._ledger.ledger()
            ids = self._outlines.outlines(ledger, reader.slide_id).at(x_px0, y_px0, float(asked))
            return some_annotations(ledger, reader.slide_id, ids) if ledger else []

        return _listed(await self._in_thread(read))

    async def _found(self, request: Request, reader: StoreReader, _: Person) -> Response:
        words = request.query_params.get("words", "")[:MAX_WORDS].split()

        def read() -> list[Annotation]:
            ledger = self._ledger.ledger()
            return find_annotations(ledger, reader.slide_id, words) if ledger else []

        return _listed(await self._in_thread(read))

    async def _export(self, _: Request, reader: StoreReader, __: Person) -> Response:
        def read() -> bytes:
            ledger = self._ledger.ledger()
            origin_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0)
            features = features_of(exported(ledger, reader.slide_id, origin_xy0=origin_xy0)) if ledger else ()
            lines = ",\n".join(json.dumps(each, allow_nan=False) for each in features)
            return f'{{"type":"FeatureCollection","features":[\n{lines}\n]}}\n'.encode()

        content = await self._in_thread(read)
        name = f'attachment; filename="{reader.slide_id}.geojson"'
        headers = {**_NEVER_KEPT, "Content-Disposition": name}
        return Response(content, media_type="application/geo+json", headers=headers)

    async def _save(self, request: Request, reader: StoreReader, person: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)

        def write() -> dict[str, Any]:
            drafts = drafts_of(body)
            saved = save(self._ledger.made(), reader.slide_id, drafts, person.actor, size_wh_px0=reader.size_wh_px0)
            return {
                "change": saved.change,
                "saved": [each.as_dict() for each in saved.saved],
                "conflicts": [each.as_dict() for each in saved.conflicts],
                "me": person.actor,
            }

        return JSONResponse(await self._in_thread(write), headers=_NEVER_KEPT)

    async def _join(self, request: Request, _: StoreReader, __: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)
        area = await self._in_thread(lambda: joined(areas_and_line(body)[0]))
        return JSONResponse({"areas": [mapping(area)]}, headers=_NEVER_KEPT)

    async def _split(self, request: Request, _: StoreReader, __: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)

        def cut() -> list[Any]:
            areas, line = areas_and_line(body)
            if len(areas) != 1 or line is None:
                raise BadAnnotationError("One area and one line are needed to split.")
            return [mapping(each) for each in split_by(areas[0], line)]

        return JSONResponse({"areas": await self._in_thread(cut)}, headers=_NEVER_KEPT)

    async def _import(self, request: Request, reader: StoreReader, person: Person) -> Response:
        body = await body_of(request, MAX_IMPORT_BYTES)

        def write() -> dict[str, Any]:
            file = parse_annotations(body, Path("the file"))
            origin_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0) if file.format == "qupath" else (0, 0)
            done = import_file(
                self._ledger.made(), reader.slide_id, file, person.actor,
                size_wh_px0=reader.size_wh_px0, origin_xy0=origin_xy0,
            )  # fmt: skip
            return {
                "saved": done.saved, "unchanged": done.unchanged, "beside": done.beside,
                "dropped": len(done.dropped), "change": done.change,
            }  # fmt: skip

        return JSONResponse(await self._in_thread(write), headers=_NEVER_KEPT)


def annotation_routes(cache: SlideCache, ledger: StudyLedger) -> list[BaseRoute]:
    """All routes of annotations over one project."""
    return AnnotationServer(cache, ledger).routes()


async def _no_link(request: Request) -> Response:
    content = {"code": BadLinkError.code, "message": f"{request.url.path!r:.200}: not a link of annotations"}
    return JSONResponse(content, status_code=400, headers=_NEVER_KEPT)


def _listed(annotations: list[Annotation]) -> Response:
    return JSONResponse({"annotations": [each.as_dict() for each in annotations]}, headers=_NEVER_KEPT)


def _matched(request: Request, pattern: str) -> tuple[str, ...]:
    rest: str = request.path_params["rest"]
    match = re.fullmatch(pattern, rest, re.ASCII)
    if not match:
        raise BadLinkError(f"{rest!r:.200}: not a link of annotations")
    return match.groups()


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ForbiddenError, 403),
    (BlindedError, 403),
    (UnknownNameError, 404),
    (TooLargeError, 413),
    (BadLinkError, 400),
    (BadAnnotationError, 400),
    (LockedError, 503),
    (UnreadableError, 503),
)


def _status(error: Exception) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
