"""OpenSlide's DeepZoom of a slide file, behind the same kind of server as the viewer's own tiles."""

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

TILE_PX = 512


@dataclass(frozen=True)
class DeepZoomServer:
    url: str
    levels: int


@contextmanager
def deepzoom_server(path: Path) -> Iterator[DeepZoomServer]:
    """Serve the file from a process of its own; tiles of 512 px without overlap, JPEG of quality 85."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(path, listening), daemon=True)
    process.start()
    port = listening.getsockname()[1]
    listening.close()
    try:
        yield DeepZoomServer(f"http://127.0.0.1:{port}", DeepZoomGenerator(OpenSlide(path), TILE_PX, 0).level_count)
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
