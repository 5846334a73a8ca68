"""Routes of viewed areas and judgements. They write to the project's ledger, so they run in the app itself.

    GET, POST /coverage/{slide_id}.json                  areas viewed; takes viewings
    GET, POST /hotspots/{slide_id}/{model_id}.json       judgements of hotspots; takes judgements
    GET       /crops/{slide_id}/{x_px0}_{y_px0}.jpg      a small square of the slide; ?mpp=…: µm per pixel, ?z=…: plane

The first two belong to the reading that the query names (?study=S&reader=R&session=1&position=3), else to the person
who sends the request. Content hidden from a reader is refused (`pathology_app.readings.blinding`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

import anyio
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from pathology_app.links.reading import ReadingLink
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Action, person_of
from pathology_app.project.ledger import study_ledger_of
from pathology_app.readings.blinding import Shows
from pathology_app.readings.taking_part import LockedReadingError, view_context
from pathology_app.routes.bodies import body_of
from pathology_app.routes.declared import REVALIDATED, declared
from pathology_app.routes.paths import AcceptedBody
from pathology_app.slides.cache import BadLinkError, OpenSlide, SlideCache, UnknownNameError
from pathology_app.tiles.links import bad_link
from pipeline.ledger import Ledger
from pipeline.review import (
    Coverage,
    HotspotKey,
    SeenRule,
    Viewing,
    coverage_of,
    grid_for,
    hotspot_states,
    judge_hotspots,
    save_looks,
    tissue_cells,
)
from pipeline.store.view.render import render_crop_jpeg
from pipeline.study import readings_of
from training.foundation.errors import GemslideError
from training.foundation.reading import parse_json

CROP_PX, CROP_MPP = 112, 2.0
"""A crop shows 224 µm of the slide, unless its link says otherwise."""
MAX_CROP_MPP = 200
MAX_LOOKS, MAX_JUDGED = 200, 500
MAX_BYTES = 2**16
"""Limit for a body of viewings or judgements."""
_THREADS = 4

Number = Annotated[float, Field(allow_inf_nan=False)]
Corner = tuple[Number, Number]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


Body = TypeVar("Body", bound=_Body)


class _Look(_Body):
    corners: tuple[Corner, Corner, Corner, Corner]
    um_per_px: Annotated[float, Field(gt=0, lt=1e5, allow_inf_nan=False)]
    seconds: Annotated[float, Field(ge=0, lt=3600, allow_inf_nan=False)]
    rested_s: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]


class _Looked(_Body):
    looks: Annotated[list[_Look], Field(max_length=MAX_LOOKS)]
    seconds: Annotated[float, Field(ge=0, lt=3600, allow_inf_nan=False)]


class _Judged(_Body):
    judged: Annotated[
        list[
            tuple[
                Annotated[str, Field(max_length=200)],
                Annotated[int, Field(ge=0, lt=2**40)],
                Annotated[int, Field(ge=0, lt=2**40)],
                Literal["seen", "accepted", "rejected"],
            ]
        ],
        Field(max_length=MAX_JUDGED),
    ]


class ReviewServer:
    """Handlers for one project. Everything that reads a file or the ledger runs in threads."""

    def __init__(self, cache: SlideCache) -> None:
        self._cache = cache
        self._limiter = anyio.CapacityLimiter(_THREADS)

    async def coverage(self, request: Request) -> Response:
        slide_id = request.path_params["slide_id"]
        body = _parsed(_Looked, await body_of(request, MAX_BYTES)) if request.method == "POST" else None
        return await self._json(lambda: self._looked(request, slide_id, body))

    async def hotspots(self, request: Request) -> Response:
        slide_id, model_id = request.path_params["slide_id"], request.path_params["model_id"]
        body = _parsed(_Judged, await body_of(request, MAX_BYTES)) if request.method == "POST" else None
        return await self._json(lambda: self._judged(request, slide_id, model_id, body))

    async def crop(self, request: Request) -> Response:
        match = re.fullmatch(r"(\d{1,9})_(\d{1,9})\.jpg", request.path_params["rest"], re.ASCII)
        if not match:
            raise BadLinkError(f"{request.path_params['rest']!r}: expected {{x_px0}}_{{y_px0}}.jpg")
        x_px0, y_px0 = (int(text) for text in match.groups())
        mpp = request.query_params.get("mpp", str(CROP_MPP))
        if not re.fullmatch(r"\d{1,3}(\.\d{1,3})?", mpp, re.ASCII) or not 0 < float(mpp) <= MAX_CROP_MPP:
            raise BadLinkError(f"mpp={mpp!r:.20}: expected µm per pixel, up to {MAX_CROP_MPP}")

        plane = request.query_params.get("z")
        if plane is not None and not re.fullmatch(r"\d{1,3}", plane, re.ASCII):
            raise BadLinkError(f"z={plane!r:.20}: expected the number of a focal plane")

        def render() -> bytes:
            slide = self._cache.slide(request.path_params["slide_id"])
            slide = slide if plane is None else slide.at_plane(int(plane))
            width_px0, height_px0 = slide.reader.size_wh_px0
            if x_px0 >= width_px0 or y_px0 >= height_px0:
                raise BadLinkError(f"({x_px0}, {y_px0}): outside slide {slide.reader.slide_id}")
            return render_crop_jpeg(slide.reader, (x_px0, y_px0), CROP_PX, float(mpp))

        content = await anyio.to_thread.run_sync(render, limiter=self._limiter)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": REVALIDATED})

    async def _json(self, answer: Callable[[], dict[str, Any]]) -> Response:
        content = await anyio.to_thread.run_sync(answer, limiter=self._limiter)
        return JSONResponse(content, headers={"Cache-Control": "no-store"})

    def _looked(self, request: Request, slide_id: str, body: _Looked | None) -> dict[str, Any]:
        """Areas that a person has viewed, after adding the viewings of the body, if any."""
        person, slide = person_of(request.scope), self._cache.slide(slide_id)
        check_act(person, Act.NOTE_LOOKS)
        ledger = study_ledger_of(self._cache.project).ledger()
        link = ReadingLink.of(request.query_params)
        try:
            context = view_context(ledger, person, slide_id, link, to_write=body is not None)
        except LockedReadingError:  # the last viewing of a slide arrives just after its reading is signed
            return {"is_kept": False}
        reader = slide.reader
        grid, rule = grid_for(reader.size_wh_px0, reader.mpp0), _rule(ledger, link)
        if body is None or ledger is None:  # viewing alone does not create a ledger
            stored = (coverage_of(ledger, context, rule) if ledger else None) or Coverage.empty(grid, rule)
            return self._stored(slide, stored, is_kept=ledger is not None, is_of_study=link is not None)
        looks = [Viewing(look.corners, look.um_per_px, look.seconds, look.rested_s) for look in body.looks]
        after = save_looks(ledger, context, grid, looks, rule=rule, mpp0=reader.mpp0, seconds=body.seconds)
        return {"seconds": round(after.seconds, 1)}

    def _stored(self, slide: OpenSlide, stored: Coverage, *, is_kept: bool, is_of_study: bool) -> dict[str, Any]:
        """Coverage in the format of frontend/src/review/coverage.ts."""
        grid = stored.grid
        return {
            "cell_px0": grid.cell_um / slide.reader.mpp0,
            "columns": grid.columns,
            "rows": grid.rows,
            "finest": _base64(stored.finest_yx),
            "tissue": self._tissue(slide, stored),
            "seconds": round(stored.seconds, 1),
            "is_kept": is_kept,
            "rule": {**stored.rule.model_dump(), "is_of_study": is_of_study},
        }

    def _tissue(self, slide: OpenSlide, stored: Coverage) -> str | None:
        try:
            tissue = self._cache.tissue(slide.reader.slide_id)
        except (GemslideError, OSError):
            return None  # the page reports the error
        if tissue is None:
            return None
        return _base64(tissue_cells(stored.grid, tissue.mask_yx, tissue.mpp).astype(np.uint8))

    def _judged(self, request: Request, slide_id: str, model_id: str, body: _Judged | None) -> dict[str, Any]:
        """Judgements of a model's hotspots by one person, after adding those of the body, if any."""
        project, person = self._cache.project, person_of(request.scope)
        opened, link = self._cache.predictions(slide_id, model_id), ReadingLink.of(request.query_params)
        ledgers = study_ledger_of(project)
        if body is None:
            ledger = ledgers.ledger()
            context = view_context(ledger, person, slide_id, link, to_write=False)
            states = hotspot_states(ledger, context, model_id, opened.sha256) if ledger else {}
            return {"judged": [[key.class_name, key.x_px0, key.y_px0, state] for key, state in states.items()]}
        check_act(person, Act.JUDGE)
        context = view_context(ledgers.ledger(), person, slide_id, link, to_write=True)
        judged = [(HotspotKey(name, x_px0, y_px0), state) for name, x_px0, y_px0, state in body.judged]
        self._check_there(slide_id, model_id, [key for key, _ in judged])
        if ledgers.ledger() is None and all(
            state == "seen" for _, state in judged
        ):  # viewing alone does not create a ledger
            return {"kept": 0}
        judge_hotspots(ledgers.made(), context, model_id, opened.sha256, judged)
        return {"kept": len(judged)}

    def _check_there(self, slide_id: str, model_id: str, keys: list[HotspotKey]) -> None:
        hotspots = self._cache.hotspots(slide_id, model_id)
        spots = hotspots.spots if hotspots else []
        listed = {HotspotKey(spot["class"], spot["x_px0"], spot["y_px0"]) for spot in spots}
        for key in keys:
            if key not in listed:
                raise UnknownNameError(
                    f"hotspot {key.class_name!r:.60} at ({key.x_px0}, {key.y_px0}): not in the list of model "
                    f"{model_id} for slide {slide_id}. The list has been recreated; reload the page."
                )


def review_routes(cache: SlideCache) -> list[BaseRoute]:
    """All routes, each of which answers errors as JSON."""
    server = ReviewServer(cache)
    looks, judged = AcceptedBody(MAX_BYTES, Action.LOOK), AcceptedBody(MAX_BYTES, Action.ANNOTATE)
    return [
        declared(cache.project, path, handler, shows, methods=["GET", "POST"] if takes else ["GET"], takes=takes)
        for path, handler, shows, takes in (
            # Only a person's own viewings.
            ("/coverage/{slide_id}.json", server.coverage, Shows.NEITHER, looks),
            ("/hotspots/{slide_id}/{model_id}.json", server.hotspots, Shows.PREDICTION, judged),
            ("/crops/{slide_id}/{rest:path}", server.crop, Shows.PREDICTION, None),
            ("/coverage/{rest:path}", bad_link, Shows.NEITHER, looks),
            ("/hotspots/{rest:path}", bad_link, Shows.NEITHER, judged),
            ("/crops/{rest:path}", bad_link, Shows.NEITHER, None),
        )
    ]


def _rule(ledger: Ledger | None, link: ReadingLink | None) -> SeenRule:
    """The rule by which areas count as seen: that of a reading's protocol, or the default."""
    readings = readings_of(ledger, link.study_id) if ledger and link else None
    return readings.config.seen if readings else SeenRule()


def _parsed(kind: type[Body], body: bytes) -> Body:
    try:
        return kind.model_validate(parse_json(body))
    except (ValidationError, ValueError, RecursionError) as error:
        raise BadLinkError(f"the request body cannot be read: {' '.join(str(error).split()):.200}") from error


def _base64(values: Any) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")
