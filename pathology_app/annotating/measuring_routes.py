"""HTTP routes of counts and of the table of annotations, and of what others did to one's own.

GET  /annotations/{slide_id}/table, /table.csv     filtered and sorted by the parameters of `_query`
GET  /annotations/{slide_id}/counts, /counts.csv     counted objects by class, with areas and densities
GET  /annotations/{slide_id}/some?ids=…     annotations by id
GET  /annotations/{slide_id}/about?id=…     answers under an annotation, and the person's own last version of it
GET  /annotations/{slide_id}/changed     the person's own annotations that others changed or deleted
POST /annotations/{slide_id}/noted     {"ids": [...]}: the person knows of these changes
POST /annotations/{slide_id}/areas     {"areas": [...]}: size, scanned part and tissue of each
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from shapely.geometry import mapping, shape
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute

from pathology_app.annotating.bodies import MAX_CHANGES_BYTES, ids_of, numbers_of
from pathology_app.annotating.handling import NEVER_KEPT, Handler, SlideHandling
from pathology_app.people.acts import RIGHTS, Act
from pathology_app.people.person import Action, Person
from pathology_app.readings.blinding import Shows
from pathology_app.routes.bodies import body_of
from pathology_app.routes.declared import declared
from pathology_app.routes.paths import AcceptedBody
from pathology_app.slides.cache import BadLinkError
from pipeline.review import (
    COUNT_COLUMNS,
    LISTED_KINDS,
    LISTING_COLUMNS,
    SORT_KEYS,
    Annotation,
    CountTally,
    ListedAnnotation,
    ListingQuery,
    SlideMasks,
    change_of,
    changed_by_others,
    count_rows,
    fill_similar,
    last_own_revision,
    list_annotations,
    listing_rows,
    note_changes,
    replies_to,
    some_annotations,
    tally_slide,
)
from pipeline.spreadsheets import csv_line
from pipeline.store.reading.reader import StoreReader

MAX_IDS = 200
MAX_WORDS = 200
_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


class MeasuringServer:
    """Handlers for one project."""

    def __init__(self, handling: SlideHandling) -> None:
        self._handling = handling

    def routes(self) -> list[BaseRoute]:
        """The routes; each reports errors as JSON."""
        look, export, annotate = Action.LOOK, RIGHTS[Act.EXPORT_ANNOTATIONS], RIGHTS[Act.ANNOTATE]
        # Sizes of areas are shown to everyone who may look; the requests have bodies because areas are long.
        measured, noted = AcceptedBody(MAX_CHANGES_BYTES, look), AcceptedBody(MAX_CHANGES_BYTES, annotate)
        table: tuple[tuple[AcceptedBody | None, str, Action, Handler], ...] = (
            (None, "/table", look, self._table),
            (None, "/table.csv", export, self._table_csv),
            (None, "/counts", look, self._counts),
            (None, "/counts.csv", export, self._counts_csv),
            (None, "/some", look, self._some),
            (None, "/about", look, self._about),
            (None, "/changed", look, self._changed),
            (noted, "/noted", annotate, self._noted),
            (measured, "/areas", look, self._areas),
            (noted, "/wand", annotate, self._wand),
        )
        project, guarded = self._handling.cache.project, self._handling.guarded
        return [
            declared(project, f"/annotations/{{slide_id}}{path}", guarded(action, handler), Shows.RESULT,
                     methods=["POST" if takes else "GET"], takes=takes)
            for takes, path, action, handler in table
        ]  # fmt: skip

    async def _table(self, request: Request, reader: StoreReader, _: Person) -> Response:
        query = _query(request)

        def read() -> dict[str, Any]:
            ledger = self._handling.ledger.ledger()
            if ledger is None:
                return {"rows": [], "total": 0, "measured": 0, "totals": []}
            listing = list_annotations(ledger, reader.slide_id, reader.mpp0, query)
            return {
                "rows": [_listed_row(listed) for listed in listing.rows],
                "total": listing.total,
                "measured": listing.measured,
                "totals": [[total.class_name, total.number, total.area_mm2] for total in listing.totals],
            }

        return JSONResponse(await self._handling.in_thread(read), headers=NEVER_KEPT)

    async def _table_csv(self, request: Request, reader: StoreReader, _: Person) -> Response:
        query = _query(request)

        def read() -> Iterable[Mapping[str, str]]:
            ledger = self._handling.ledger.ledger()
            return listing_rows(ledger, reader.slide_id, reader.mpp0, query) if ledger else ()

        rows = await self._handling.in_thread(read)
        return _csv(f"{reader.slide_id}-annotations", LISTING_COLUMNS, rows)

    async def _counts(self, _: Request, reader: StoreReader, __: Person) -> Response:
        change, tallies = await self._handling.in_thread(lambda: self._tallies(reader))
        return JSONResponse({"change": change, "counts": [_tally(tally) for tally in tallies]}, headers=NEVER_KEPT)

    async def _counts_csv(self, _: Request, reader: StoreReader, __: Person) -> Response:
        _change, tallies = await self._handling.in_thread(lambda: self._tallies(reader))
        return _csv(f"{reader.slide_id}-counts", COUNT_COLUMNS, count_rows(reader.slide_id, tallies))

    def _tallies(self, reader: StoreReader) -> tuple[int, list[CountTally]]:
        """The slide's counter, no newer than its counts, and these."""
        ledger = self._handling.ledger.ledger()
        if ledger is None:
            return 0, []
        change = change_of(ledger, reader.slide_id)
        return change, tally_slide(ledger, reader.slide_id, SlideMasks(reader).areas)

    async def _some(self, request: Request, reader: StoreReader, _: Person) -> Response:
        ids = request.query_params.get("ids", "").split(",")
        if len(ids) > MAX_IDS or not all(re.fullmatch(_ID, one, re.ASCII) for one in ids):
            raise BadLinkError(f"ids: expected up to {MAX_IDS} ids of annotations, separated by commas")

        def read() -> list[Annotation]:
            ledger = self._handling.ledger.ledger()
            return some_annotations(ledger, reader.slide_id, ids, with_deleted=True) if ledger else []

        return JSONResponse({"annotations": [one.as_dict() for one in await self._handling.in_thread(read)]},
                            headers=NEVER_KEPT)  # fmt: skip

    async def _about(self, request: Request, reader: StoreReader, person: Person) -> Response:
        annotation_id = request.query_params.get("id", "")
        if not re.fullmatch(_ID, annotation_id, re.ASCII):
            raise BadLinkError(f"id={annotation_id!r:.60}: expected the id of an annotation")

        def read() -> dict[str, Any]:
            ledger = self._handling.ledger.ledger()
            if ledger is None:
                return {"replies": [], "own": None}
            own = last_own_revision(ledger, reader.slide_id, annotation_id, person.actor)
            replies = replies_to(ledger, reader.slide_id, annotation_id)
            return {"replies": [reply.as_dict() for reply in replies], "own": own.as_dict() if own else None}

        return JSONResponse(await self._handling.in_thread(read), headers=NEVER_KEPT)

    async def _changed(self, _: Request, reader: StoreReader, person: Person) -> Response:
        def read() -> list[Annotation]:
            ledger = self._handling.ledger.ledger()
            return changed_by_others(ledger, reader.slide_id, person.actor) if ledger else []

        return JSONResponse({"annotations": [one.as_dict() for one in await self._handling.in_thread(read)]},
                            headers=NEVER_KEPT)  # fmt: skip

    async def _noted(self, request: Request, reader: StoreReader, person: Person) -> Response:
        ids = ids_of(await body_of(request, MAX_CHANGES_BYTES))

        def write() -> None:
            ledger = self._handling.ledger.ledger()
            if ledger is not None:
                note_changes(ledger, reader.slide_id, person.actor, ids)

        await self._handling.in_thread(write)
        return JSONResponse({}, headers=NEVER_KEPT)

    async def _areas(self, request: Request, reader: StoreReader, person: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)
        areas = await self._handling.geometry.run(person.actor, "repaired_areas", body, "the request body")

        def read() -> list[dict[str, Any]]:
            masks = SlideMasks(reader)
            return [asdict(masks.areas(shape(area))) for area in areas]

        return JSONResponse({"areas": await self._handling.in_thread(read)}, headers=NEVER_KEPT)

    async def _wand(self, request: Request, reader: StoreReader, _: Person) -> Response:
        body = await body_of(request, MAX_CHANGES_BYTES)
        x_px0, y_px0, mpp, tolerance = numbers_of(body, "x_px0", "y_px0", "mpp", "tolerance")

        def fill() -> dict[str, Any]:
            return {"areas": [mapping(fill_similar(reader, x_px0, y_px0, mpp=mpp, tolerance=tolerance))]}

        return JSONResponse(await self._handling.in_thread(fill), headers=NEVER_KEPT)


def measuring_routes(handling: SlideHandling) -> list[BaseRoute]:
    """The routes of one project."""
    return MeasuringServer(handling).routes()


def _query(request: Request) -> ListingQuery:
    """The table's filter and order, from the parameters words, kind, class, unclassed, sort, order, offset and most."""
    asked = request.query_params
    kind, sort, order = asked.get("kind", ""), asked.get("sort", "time"), asked.get("order", "down")
    sort_key = next((key for key in SORT_KEYS if key == sort), None)
    if sort_key is None or order not in ("up", "down"):
        raise BadLinkError(f"sort={sort!r:.40}, order={order!r:.40}: expected {', '.join(SORT_KEYS)}; up or down")
    if kind and kind not in LISTED_KINDS:
        raise BadLinkError(f"kind={kind!r:.40}: expected one of {', '.join(LISTED_KINDS)}")
    offset, most = (asked.get(name, default) for name, default in (("offset", "0"), ("most", "100")))
    if not re.fullmatch(r"\d{1,6}", offset, re.ASCII) or not re.fullmatch(r"[1-9]\d{0,2}", most, re.ASCII):
        raise BadLinkError(f"offset={offset!r:.40}, most={most!r:.40}: expected whole numbers; most, up to 999")
    class_name = None if asked.get("unclassed") == "1" else asked.get("class", "")
    words = tuple(asked.get("words", "")[:MAX_WORDS].split())
    return ListingQuery(words, kind, class_name, sort_key, order == "down", int(offset), int(most))


def _listed_row(listed: ListedAnnotation) -> dict[str, Any]:
    row = listed.row
    box = [row["left_px0"], row["top_px0"], row["right_px0"], row["bottom_px0"]]
    return {
        "id": row["annotation_id"], "kind": row["kind"], "class": row["class_name"], "note": row["note"][:80],
        "area_mm2": listed.area_mm2, "length_um": listed.length_um, "inside": listed.inside,
        "replies": listed.replies, "author": row["author"], "changed_utc": row["changed_utc"], "box_px0": box,
    }  # fmt: skip


def _tally(tally: CountTally) -> dict[str, Any]:
    return {
        "id": tally.annotation_id, "name": tally.name, **asdict(tally.areas), "outside": tally.outside,
        "classes": [asdict(row) for row in tally.classes], "author": tally.author, "changed_utc": tally.changed_utc,
    }  # fmt: skip


def _csv(name: str, columns: tuple[str, ...], rows: Iterable[Mapping[str, str]]) -> Response:
    def lines() -> Iterator[str]:
        yield csv_line(columns)
        for row in rows:
            yield csv_line([row.get(column, "") for column in columns])

    headers = {**NEVER_KEPT, "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingResponse(lines(), media_type="text/csv; charset=utf-8", headers=headers)
