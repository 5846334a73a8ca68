"""HTTP routes of annotations, besides those of the tiles.

    GET  /annotations/{slide_id}/changes?since=N     changes since N; without `since`, what is not in the tiles
    GET  /annotations/{slide_id}/tiles/{level}/{col}_{row}?v=N     see vector_tile.py
    GET  /annotations/{slide_id}/at/{x}_{y}?within=PX0     those under a point, smallest first
    GET  /annotations/{slide_id}/found?words=…      those whose class, note or author contain the words
    GET  /annotations/{slide_id}/qupath.geojson
    POST /annotations/{slide_id}     {"changes": [...]}: those saved, and those in conflict
    POST /annotations/{slide_id}/join, /split, /erase     {"areas": [...], "line": ...}: the new areas; nothing is saved
    POST /annotations/{slide_id}/import     a QuPath, ASAP or ImageScope file

Everybody who may look at slides sees annotations; those who may annotate change them. Points are in level-0 pixels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from pathology_app.access.visibility import may_see
from pathology_app.annotating.bodies import MAX_CHANGES_BYTES, MAX_IMPORT_BYTES
from pathology_app.annotating.handling import NEVER_KEPT, Handler, SlideHandling, matched
from pathology_app.annotating.measuring_routes import measuring_routes
from pathology_app.annotating.slide_outlines import OutlineCache, Outlines
from pathology_app.annotating.vector_tile import MEDIA_TYPE, num_levels, vector_tile
from pathology_app.people.acts import RIGHTS, Act
from pathology_app.people.person import Action, Person
from pathology_app.project.ledger import StudyLedger
from pathology_app.readings.blinding import Shows, visibility_of
from pathology_app.routes.bodies import body_of
from pathology_app.routes.declared import REVALIDATED, declared
from pathology_app.routes.paths import AcceptedBody
from pathology_app.slides.cache import BadLinkError, SlideCache, UnknownNameError
from pipeline.annotations import SlideFrame, frame_of_store, qupath_origin_xy0
from pipeline.ledger import Ledger
from pipeline.palettes import CLASS_COLOURS
from pipeline.review import (
    APART_KINDS,
    Annotation,
    FileRows,
    changes_since,
    class_colours,
    exported,
    features_of,
    find_annotations,
    latest_annotations,
    only_own,
    save_file_rows,
    save_rows,
    some_annotations,
)
from pipeline.settings.config import load_settings
from pipeline.store.reading.reader import StoreReader

MOST_CHANGES = 1000
"""Listed one by one; if there are more, the browser only requests tiles."""
MOST_APART = 5000
"""Measurements and counts sent at once; older ones are in the table of annotations only."""
MAX_WORDS = 200
_COORDINATE = r"(-?\d{1,9}(?:\.\d{1,6})?)"


class AnnotationServer:
    """Handlers for one project's annotations. Reads and writes run in threads."""

    def __init__(self, handling: SlideHandling) -> None:
        self._handling = handling
        self._outlines = OutlineCache()
        self._project = hashlib.sha256(str(handling.cache.project.root).encode()).hexdigest()[:16]

    def routes(self) -> list[BaseRoute]:
        """The routes; each reports errors as JSON."""
        look, annotate, export = Action.LOOK, RIGHTS[Act.ANNOTATE], RIGHTS[Act.EXPORT_ANNOTATIONS]
        changes, file = AcceptedBody(MAX_CHANGES_BYTES, annotate), AcceptedBody(MAX_IMPORT_BYTES, RIGHTS[Act.IMPORT])
        table: tuple[tuple[AcceptedBody | None, str, Action, Handler], ...] = (
            (None, "/changes", look, self._changes),
            (None, "/tiles/{rest:path}", look, self._tile),
            (None, "/at/{rest:path}", look, self._at),
            (None, "/found", look, self._found),
            (None, "/qupath.geojson", export, self._export),
            (changes, "", annotate, self._save),
            (changes, "/join", annotate, self._join),
            (changes, "/split", annotate, self._split),
            (changes, "/erase", annotate, self._erase),
            (file, "/import", RIGHTS[Act.IMPORT], self._import),
        )
        project = self._handling.cache.project
        return [
            # Others' annotations would help somebody who has to read a slide without them.
            declared(project, f"/annotations/{{slide_id}}{path}", self._handling.guarded(action, handler), Shows.RESULT,
                     methods=["POST" if takes else "GET"], takes=takes)
            for takes, path, action, handler in table
        ]  # fmt: skip

    async def _changes(self, request: Request, reader: StoreReader, person: Person) -> Response:
        since = request.query_params.get("since")
        if since is not None and not re.fullmatch(r"\d{1,15}", since, re.ASCII):
            raise BadLinkError(f"since={since!r:.40}: expected a number")

        def read() -> dict[str, Any]:
            ledger = self._handling.ledger.ledger()
            outlines = self._outlines.outlines(ledger, reader.slide_id)
            listed = None
            if since is not None and ledger is not None:
                changes = changes_since(ledger, reader.slide_id, int(since), most=MOST_CHANGES)
                # More may have come in since the outlines were read; the next request lists them.
                if changes.annotations is not None:
                    listed = [changed.as_dict() for changed in changes.annotations if changed.change <= outlines.change]
            elif since is not None:
                listed = []
            elif ledger is not None:
                kept_apart = latest_annotations(ledger, reader.slide_id, APART_KINDS, most=MOST_APART)
                listed = [kept.as_dict() for kept in kept_apart]
            return {**self._summary(ledger, outlines, person, reader), "annotations": listed}

        return JSONResponse(await self._handling.in_thread(read), headers=NEVER_KEPT)

    def _summary(
        self, ledger: Ledger | None, outlines: Outlines, person: Person, reader: StoreReader
    ) -> dict[str, Any]:
        colours = class_colours(ledger, self._named(person)) if ledger else {}
        return {
            "change": outlines.change,
            "only_own": only_own(self._handling.cache.project, ledger, reader.slide_id),
            "classes": [[name, outlines.counts.get(name, 0), colour] for name, colour in colours.items()],
            "without_class": outlines.counts.get(None, 0),
            "palette": CLASS_COLOURS,
            "project": self._project,
            "me": person.actor,
            "may_annotate": person.may(Action.ANNOTATE),
            "may_export": person.may(Action.EXPORT),
        }

    def _named(self, person: Person) -> Callable[[str], bool] | None:
        """Whether the classes used on a slide may be named to a person; None: those of all slides may."""
        hidden = visibility_of(self._handling.cache.project, person).hidden
        if person.slides is None and not hidden:
            return None
        return lambda slide_id: slide_id not in hidden and may_see(person, slide_id)

    async def _tile(self, request: Request, reader: StoreReader, _: Person) -> Response:
        level, col, row = (int(digits) for digits in matched(request, r"(\d{1,2})/(\d{1,9})_(\d{1,9})"))
        side_px0 = 512 << level
        levels, (width, height) = num_levels(reader.size_wh_px0), reader.size_wh_px0
        if level >= levels or col * side_px0 >= width or row * side_px0 >= height:
            raise UnknownNameError(f"tile {level}/{col}_{row}: slide {reader.slide_id} has no such tile")

        def read() -> tuple[int, bytes]:
            outlines = self._outlines.outlines(self._handling.ledger.ledger(), reader.slide_id)
            return outlines.change, vector_tile(outlines, level, col, row)

        change, content = await self._handling.in_thread(read)
        version = f"{self._project}-{change}"
        if request.query_params.get("v") != version:
            return Response(content, media_type=MEDIA_TYPE, headers=NEVER_KEPT)
        headers = {"Cache-Control": REVALIDATED, "ETag": f'"{version}-{level}-{col}-{row}"'}
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=MEDIA_TYPE, headers=headers)

    async def _at(self, request: Request, reader: StoreReader, _: Person) -> Response:
        x_px0, y_px0 = (float(digits) for digits in matched(request, f"{_COORDINATE}_{_COORDINATE}"))
        within = request.query_params.get("within", "0")
        if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", within, re.ASCII):
            raise BadLinkError(f"within={within!r:.40}: expected a number")

        def read() -> list[Annotation]:
            ledger = self._handling.ledger.ledger()
            ids = self._outlines.outlines(ledger, reader.slide_id).at(x_px0, y_px0, float(within))
            return some_annotations(ledger, reader.slide_id, ids) if ledger else []

        return _listed(await self._handling.in_thread(read))

    async def _found(self, request: Request, reader: StoreReader, _: Person) -> Response:
        words = request.query_params.get("words", "")[:MAX_WORDS].split()

        def read() -> list[Annotation]:
            ledger = self._handling.ledger.ledger()
            return find_annotations(ledger, reader.slide_id, words) if ledger else []

        return _listed(await self._handling.in_thread(read))

    async def _export(self, _: Request, reader: StoreReader, __: Person) -> Response:
        def read() -> Iterable[Mapping[str, Any]]:
            ledger = self._handling.ledger.ledger()
            crops = self._frame(reader).crops_qupath
            origin_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0 if crops else None)
            return (
                features_of(exported(ledger, reader.slide_id, origin_xy0=origin_xy0, mpp0=reader.mpp0))
                if ledger
                else ()
            )

        features = await self._handling.in_thread(read)
        name = f'attachment; filename="{reader.slide_id}.geojson"'
        headers = {**NEVER_KEPT, "Content-Disposition": name}
        # The text of a slide with millions of corners is never in memory as a whole.
        return StreamingResponse(_collection(features), media_type="application/geo+json", headers=headers)

    async def _save(self, request: Request, reader: StoreReader, person: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)

        parts = await self._handling.geometry.run(
            person.actor, "rows_of_changes", body, "the request body",
            slide_id=reader.slide_id, actor=person.actor, size_wh_px0=reader.size_wh_px0,
        )  # fmt: skip

        def write() -> dict[str, Any]:
            ledger = self._handling.ledger.made()
            is_own = only_own(self._handling.cache.project, ledger, reader.slide_id)
            rows = [row for part in parts for row in part]
            saved = save_rows(ledger, reader.slide_id, rows, person.actor, only_own=is_own)
            return {
                "change": saved.change,
                "saved": [annotation.as_dict() for annotation in saved.saved],
                "conflicts": [annotation.as_dict() for annotation in saved.conflicts],
                "me": person.actor,
            }

        return JSONResponse(await self._handling.in_thread(write), headers=NEVER_KEPT)

    async def _join(self, request: Request, _: StoreReader, person: Person) -> Response:
        return await self._combined(request, person, "join")

    async def _split(self, request: Request, _: StoreReader, person: Person) -> Response:
        return await self._combined(request, person, "split")

    async def _erase(self, request: Request, _: StoreReader, person: Person) -> Response:
        return await self._combined(request, person, "erase")

    async def _combined(self, request: Request, person: Person, work: str) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)
        areas = await self._handling.geometry.run(person.actor, work, body, "the request body")
        return JSONResponse({"areas": areas}, headers=NEVER_KEPT)

    def _frame(self, reader: StoreReader) -> SlideFrame:
        """Frame of a file's outlines on a slide, as in `gemslide tile`. Raises BadRecipeError: the settings."""
        tile = load_settings(self._handling.cache.project.settings_path).tile
        frame = frame_of_store(reader.attributes)
        return frame.as_set(tile.qupath_counts_from, allow_other_mpp=tile.allow_other_mpp)

    async def _import(self, request: Request, reader: StoreReader, person: Person) -> Response:
        body = await body_of(request, MAX_IMPORT_BYTES)
        frame = await self._handling.in_thread(lambda: self._frame(reader))
        facts, *parts = await self._handling.geometry.run(
            person.actor, "rows_of_upload", body, "the file",
            slide_id=reader.slide_id, actor=person.actor, size_wh_px0=reader.size_wh_px0,
            frame=asdict(frame),
        )  # fmt: skip
        rows = FileRows(facts["format"], [row for part in parts for row in part], tuple(facts["dropped"]))

        def write() -> dict[str, Any]:
            ledger = self._handling.ledger.made()
            is_own = only_own(self._handling.cache.project, ledger, reader.slide_id)
            done = save_file_rows(ledger, reader.slide_id, rows, person.actor, only_own=is_own)
            return {
                "saved": done.saved, "unchanged": done.unchanged, "beside": done.beside,
                "dropped": len(done.dropped), "change": done.change,
            }  # fmt: skip

        return JSONResponse(await self._handling.in_thread(write), headers=NEVER_KEPT)


def annotation_routes(cache: SlideCache, ledger: StudyLedger) -> list[BaseRoute]:
    """All routes for the annotations of one project."""
    handling = SlideHandling(cache, ledger)
    # Otherwise Streamlit would answer with its page.
    no_link = declared(cache.project, "/annotations/{rest:path}", _no_link, Shows.NEITHER)
    return [*AnnotationServer(handling).routes(), *measuring_routes(handling), no_link]


def _collection(features: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A FeatureCollection, one feature per line."""
    yield '{"type":"FeatureCollection","features":[\n'
    for index, feature in enumerate(features):
        yield (",\n" if index else "") + json.dumps(feature, allow_nan=False)
    yield "\n]}\n"


async def _no_link(request: Request) -> Response:
    content = {"code": BadLinkError.code, "message": f"{request.url.path!r:.200}: not a link to annotations"}
    return JSONResponse(content, status_code=400, headers=NEVER_KEPT)


def _listed(annotations: list[Annotation]) -> Response:
    return JSONResponse({"annotations": [annotation.as_dict() for annotation in annotations]}, headers=NEVER_KEPT)
