"""A model's result for one slide as a file to download: table or outlines, for those who may export.

    /exports/{slide_id}/{model_id}/{file}      predictions.csv, predictions.geojson, contours.geojson, hotspots.json

The file written by inference is sent if it exists; else it is made from the stored probabilities, the source of all
these files, and not kept.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import anyio
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute

from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import person_of
from pathology_app.readings.blinding import Shows
from pathology_app.routes.declared import declared
from pathology_app.slides.cache import BadLinkError, SlideCache, UnknownNameError
from pathology_app.tiles.links import bad_link
from pipeline.annotations.formats.geojson import qupath_origin_xy0
from pipeline.export.csv.predictions import write_csv
from pipeline.export.qupath.predictions import write_geojson
from pipeline.store.layers.overlays import Predictions
from pipeline.store.reading.reader import StoreReader
from training.foundation.reading import open_regular

MAX_AT_ONCE = 2
"""Files made at the same time: each keeps a core busy for seconds."""
_CHUNK_BYTES = 2**18

MEDIA_TYPES: Mapping[str, str] = {
    "predictions.csv": "text/csv; charset=utf-8",
    "predictions.geojson": "application/geo+json",
    "contours.geojson": "application/geo+json",
    "hotspots.json": "application/json",
}
"""Media types of the files for export. The last two files exist only if inference wrote them."""

Write = Callable[[Path, StoreReader, Predictions], None]


def _csv(path: Path, reader: StoreReader, predictions: Predictions) -> None:
    write_csv(path, reader.slide_id, predictions)


def _geojson(path: Path, reader: StoreReader, predictions: Predictions) -> None:
    origin_xy0 = qupath_origin_xy0(reader.attributes.bounds_px0)
    write_geojson(path, predictions, reader.source_sha256, origin_xy0=origin_xy0)


_WRITERS: Mapping[str, Write] = {"predictions.csv": _csv, "predictions.geojson": _geojson}


def export_routes(cache: SlideCache) -> list[BaseRoute]:
    """The route, which answers errors as JSON. Not for tile processes: a file can keep one busy for seconds."""
    return [
        declared(cache.project, path, handler, shows)
        for path, handler, shows in (
            ("/exports/{slide_id}/{model_id}/{rest:path}", ExportServer(cache).file, Shows.PREDICTION),
            ("/exports/{rest:path}", bad_link, Shows.NEITHER),
        )
    ]


class ExportServer:
    """Handler of one project's exports."""

    def __init__(self, cache: SlideCache) -> None:
        self._cache = cache
        self._limiter = anyio.CapacityLimiter(MAX_AT_ONCE)

    async def file(self, request: Request) -> Response:
        """Send a file. Raises ForbiddenError: the person may not export it. Else: as `SlideCache.predictions`."""
        check_act(person_of(request.scope), Act.EXPORT_RESULTS)
        slide_id, model_id, name = (request.path_params[part] for part in ("slide_id", "model_id", "rest"))
        if name not in MEDIA_TYPES:
            raise BadLinkError(f"{name!r:.100}: exports are {', '.join(MEDIA_TYPES)}")
        stream = await anyio.to_thread.run_sync(self._open, slide_id, model_id, name, limiter=self._limiter)
        headers = {
            # Names of slides and models contain no blanks, quotation marks or non-ASCII letters.
            "Content-Disposition": f'attachment; filename="{slide_id}_{model_id}_{name}"',
            "Content-Length": str(os.fstat(stream.fileno()).st_size),
            "Cache-Control": "no-store",
        }
        return StreamingResponse(_parts(stream), media_type=MEDIA_TYPES[name], headers=headers)

    def _open(self, slide_id: str, model_id: str, name: str) -> BinaryIO:
        predictions = self._cache.predictions(slide_id, model_id).predictions  # this also checks the names
        if stream := self._written(slide_id, model_id, name):
            return self._checked(stream, slide_id, name, predictions)
        write = _WRITERS.get(name)
        if write is None:
            raise UnknownNameError(
                f"{name} of model {model_id!r} for slide {slide_id!r}: was not written. Add it to `[infer] formats` "
                "and run `gemslide infer`."
            )
        folder = Path(tempfile.mkdtemp(prefix="gemslide-export-"))
        try:
            write(folder / name, self._cache.slide(slide_id).reader, predictions)
            return (folder / name).open("rb")  # stays readable without its folder
        finally:
            shutil.rmtree(folder)

    def _checked(self, stream: BinaryIO, slide_id: str, name: str, predictions: Predictions) -> BinaryIO:
        """The stream, if the file agrees with the predictions. Raises UnreadableError: it does not."""
        from pipeline.inference import check_result, not_of_predictions  # its libraries are slow to import

        path = self._cache.project.result_dir(slide_id, predictions.model_id) / name
        fault = check_result(path, predictions, reader=self._cache.slide(slide_id).reader)
        if fault is None:
            return stream
        stream.close()
        raise not_of_predictions(name, predictions, slide_id, fault)

    def _written(self, slide_id: str, model_id: str, name: str) -> BinaryIO | None:
        """The file written by inference. A link that leads out of the results does not count."""
        project = self._cache.project
        # Path.resolve would raise on a link to itself; opening it reports that, too.
        path = Path(os.path.realpath(project.result_dir(slide_id, model_id) / name))
        if not path.is_relative_to(os.path.realpath(project.results_dir)):
            return None
        try:
            return open(open_regular(path), "rb")
        except OSError:
            return None


def _parts(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while part := stream.read(_CHUNK_BYTES):
            yield part
