"""Tiles over HTTP: time per tile, throughput for six readers, and the app's memory after many slides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from benchmarks.viewer_clients import KeptConnection, Level, first_and_again, open_page, scripts_running, six_readers
from benchmarks.viewer_others import deepzoom_server, zoomify_server
from benchmarks.viewer_setting import MODEL_ID, linked_slide
from pipeline.project import Project
from pipeline.store import StoreReader, screen_levels
from tests.nginx import NAME, find_nginx, listening_socket, started_nginx
from tests.pathology_app.started_app import GEMSLIDE, StartedApp, started_app

OWN, BETWEEN = 0, 1
"""Levels of the slide as a viewer counts them: the scanner's finest, and the one between it and the next."""
TILE_PROCESSES = 2
SLIDES, SWITCHES, FIELD = 100, 1_000, 12
SETTLED_AFTER = 200
"""Number of switches by which caches are full and every slide has been open."""


def tile(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure tiles at random positions, in turns with those of other servers."""
    results: dict[str, Any] = {}
    with _behind_nginx(app, project) as through, _others(project) as (servers, missing):
        for name, index in (("own level", OWN), ("between two levels", BETWEEN)):
            levels = {"gemslide": _level(app.url, project, index)}
            if through is not None:
                levels["gemslide through nginx"] = _level(through, project, index)
            levels |= {who: server.level(index) for who, server in servers.items()}
            results[name] = first_and_again(levels, 10 * moves, index)
    return {**results, **missing}


def readers(app: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure tiles that were not requested before; for gemslide at both kinds of level."""
    seconds, seeds = max(5.0, moves / 4), count(1)
    results: dict[str, Any] = {}
    with _behind_nginx(app, project) as through, _others(project) as (servers, missing):
        for name, index in (("own level", OWN), ("between two levels", BETWEEN)):
            urls = {"gemslide": app.url, "gemslide through nginx": through}
            ours = {who: _level(url, project, index) for who, url in urls.items() if url is not None}
            idle = {who: six_readers(level, seconds, next(seeds)) for who, level in ours.items()}
            idle |= {who: six_readers(server.level(index), seconds, next(seeds)) for who, server in servers.items()}
            with scripts_running(app.url, "slide=slide") as runs:
                before = runs()
                busy = {who: six_readers(level, seconds, next(seeds)) for who, level in ours.items()}
                per_s = (runs() - before) / (seconds * len(ours))
            results[name] = {"idle app": idle, "while a page's script runs": {**busy, "scripts_per_s": round(per_s, 1)}}
    return {**results, **missing}


def memory(_: StartedApp, project: Project, moves: int) -> dict[str, Any]:
    """Measure memory of a separate server after many switches among more slides than it keeps open."""
    folder = project.root.parent / "switched"
    many = Project(folder / "project")
    names = [f"slide-{index:03}" for index in range(SLIDES)]
    for name in names:
        linked_slide(project.store_path("slide"), many.store_path(name))
    levels = [_level("", project, index) for index in (OWN, BETWEEN)]
    rss_mb: dict[int, float] = {}
    with started_app(many.root, folder / "server.log") as app, open_page(app.url) as page:
        connection = KeptConnection(app.url)
        for switch in range(1, SWITCHES + 1):
            name = names[switch % SLIDES]
            page.run(f"slide={name}")
            tiles = [link for level in levels for link in level.links(FIELD, switch)]
            tiles = [link.replace("/slide/", f"/{name}/") for link in tiles]
            for link in [f"/thumbnails/{name}.jpg", f"/overlays/{name}/{MODEL_ID}/1.png", *tiles]:
                connection.milliseconds(link)
            if switch % 100 == 0:
                rss_mb[switch] = round(psutil.Process(app.process.pid).memory_info().rss / 2**20, 1)
    growth = rss_mb[SWITCHES] / rss_mb[SETTLED_AFTER] - 1
    return {"slides": SLIDES, "rss_mb_after": rss_mb, "growth_percent": round(100 * growth, 1)}


def _level(url: str, project: Project, index: int) -> Level:
    level = screen_levels(StoreReader(project.store_path("slide")))[index]
    columns, rows = level.width_px // level.tile_px, level.height_px // level.tile_px
    return Level(url, f"/tiles/slide/{index}/{{column}}_{{row}}", columns, rows)


@contextmanager
def _behind_nginx(app: StartedApp, project: Project) -> Iterator[str | None]:
    """The origin of nginx before `app` and two tile processes; None without nginx."""
    if find_nginx() is None:
        yield None
        return
    folder = project.root.parent / f"nginx-{os.getpid()}"
    folder.mkdir(exist_ok=True)
    listening = listening_socket()
    name = f"{NAME}:{listening.getsockname()[1]}"
    command = [GEMSLIDE, "app", "--project", project.root, "--port", "0", "--tiles-only", "--name", name]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(started_app(project.root, folder / f"tiles-{index}.log", command=command))
            for index in range(TILE_PROCESSES)
        ]
        ports = [process.port for process in processes]
        yield stack.enter_context(started_nginx(folder, listening, app.port, ports, says_who_asks=False)).url


@contextmanager
def _others(project: Project) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    """Servers of other projects by name, or the reason why one is missing."""
    source: Path = project.root.parent / "slide.svs"
    with deepzoom_server(source) as deepzoom, zoomify_server(source) as zoomify:
        if isinstance(zoomify, str):
            yield {"openslide": deepzoom}, {"tiatoolbox": zoomify}
        else:
            yield {"openslide": deepzoom, "tiatoolbox": zoomify}, {}
