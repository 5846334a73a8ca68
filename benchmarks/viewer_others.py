"""Other tile servers of the same slide file: OpenSlide's DeepZoom behind our kind of server, and TIAToolbox's own."""

from __future__ import annotations

import io
import multiprocessing
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn
from openslide import OpenSlide
from openslide.deepzoom import DeepZoomGenerator
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.others import tile_server
from benchmarks.viewer_clients import Level

TILE_PX = 512
ZOOMIFY_TILE_PX = 256


@dataclass(frozen=True)
class DeepZoomServer:
    """DeepZoom server with tiles of 512 px."""

    url: str
    slide: DeepZoomGenerator

    def level(self, index: int) -> Level:
        """A level, counted from the finest, with its complete tiles."""
        level = self.slide.level_count - 1 - index
        width_px, height_px = self.slide.level_dimensions[level]
        link = f"/{level}/{{column}}_{{row}}.jpg"
        return Level(self.url, link, width_px // TILE_PX, height_px // TILE_PX)


@dataclass(frozen=True)
class ZoomifyServer:
    """TIAToolbox's server, with tiles of 256 px as its own page requests them."""

    url: str
    levels: int
    size_wh_px0: tuple[int, int]

    def level(self, index: int) -> Level:
        """A level, as in `DeepZoomServer`."""
        link = f"/tileserver/layer/slide/default/zoomify/TileGroup0/{self.levels - 1 - index}-{{column}}-{{row}}@1x.jpg"
        columns, rows = (side_px // 2**index // ZOOMIFY_TILE_PX for side_px in self.size_wh_px0)
        return Level(self.url, link, columns, rows)


@contextmanager
def zoomify_server(path: Path) -> Iterator[ZoomifyServer | str]:
    """Serve the file with TIAToolbox; a reason if it cannot."""
    with tile_server(path) as served:
        if isinstance(served, str):
            yield served
        else:
            yield ZoomifyServer(f"http://127.0.0.1:{served['port']}", served["levels"], OpenSlide(path).dimensions)


@contextmanager
def deepzoom_server(path: Path) -> Iterator[DeepZoomServer]:
    """Serve the file from a separate process; tiles of 512 px without overlap, JPEG of quality 85."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(path, listening), daemon=True)
    process.start()
    port = listening.getsockname()[1]
    listening.close()
    try:
        yield DeepZoomServer(f"http://127.0.0.1:{port}", DeepZoomGenerator(OpenSlide(path), TILE_PX, 0))
    finally:
        process.terminate()
        process.join()


def _serve(path: Path, listening: socket.socket) -> None:
    slide, own = OpenSlide(path), threading.local()

    def encoded(level: int, column: int, row: int) -> bytes:
        if not hasattr(own, "tiles"):
            own.tiles = DeepZoomGenerator(slide, TILE_PX, 0)
        buffer = io.BytesIO()
        own.tiles.get_tile(level, (column, row)).save(buffer, "JPEG", quality=85)
        return buffer.getvalue()

    async def tile(request: Request) -> Response:
        level, column, row = (int(request.path_params[name]) for name in ("level", "column", "row"))
        return Response(await anyio.to_thread.run_sync(encoded, level, column, row), media_type="image/jpeg")

    app = Starlette(routes=[Route("/{level:int}/{column:int}_{row:int}.jpg", tile)])
    uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[listening])
