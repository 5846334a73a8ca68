"""Outlines that cost gigabytes and minutes to join, split, repair or draw, sent to every route that accepts shapes.

    python -m tests.attacks.web_geometry --times 150 --seed 1

Promised: each is answered or refused within seconds, by a message that states the problem and the remedy; the app's
memory stays bounded, under a limit on address space; and tiles are served meanwhile.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.attacks.attack import LONGEST_WAIT, Result, main
from tests.hostile_shapes import FAMILIES, RINGS, areas
from tests.pathology_app.small_project import HEIGHT_PX0, SLIDE_ID, make_project
from tests.pathology_app.started_app import GEMSLIDE, StartedApp, started_app

ADDRESS_SPACE_KIB = 12 << 20
ANSWER_S = 14.0
"""Limit for an answer: work on a shape may take 10 s, and its process a second to start."""
MOST_MIB = 600
"""Memory growth allowed to the serving process, whatever is sent."""
TILE_S = 2.0
BODY_BYTES = 1 << 20
SIZES = (300, 3_000, 12_000, 40_000)
_EXPLAINED = re.compile(r"impl|give|Choose|Export|Send|smaller|most|outside|slide only|no area|needed|cut through|move")


def bodies(family: str, corners: int) -> Iterator[tuple[str, bytes, str]]:
    """Path, body and media type for every route that accepts shapes."""
    shapes = areas(family, corners, HEIGHT_PX0)
    json_type = "application/json"
    yield "/join", json.dumps({"areas": shapes}).encode(), json_type
    lines = [RINGS[family](corners, HEIGHT_PX0)] if family in RINGS else []
    lines.append(RINGS["a weave"](corners, HEIGHT_PX0))
    for line in lines:
        shapes_sent = {"areas": shapes[:1], "line": {"type": "LineString", "coordinates": line}}
        yield "/split", json.dumps(shapes_sent).encode(), json_type
    changes = [
        {"id": str(uuid.uuid4()), "revision": 0, "kind": "polygon", "geometry": shape, "class": "T"}
        for shape in shapes[:500]
    ]
    yield "", json.dumps({"changes": changes}).encode(), json_type
    features = [{"type": "Feature", "geometry": shape, "properties": {"classification": "T"}} for shape in shapes * 3]
    yield "/import", json.dumps(features).encode(), json_type
    yield "/import", _imagescope(shapes), "application/xml"


def _imagescope(shapes: list[dict[str, Any]]) -> bytes:
    """Every second area as a negative region of the layer."""
    regions = "".join(
        f'<Region Type="0" NegativeROA="{index % 2}"><Vertices>'
        + "".join(f'<Vertex X="{x}" Y="{y}"/>' for x, y in shape["coordinates"][0])
        + "</Vertices></Region>"
        for index, shape in enumerate(shapes)
    )
    return f'<Annotations><Annotation Name="T"><Regions>{regions}</Regions></Annotation></Annotations>'.encode()


def attack(times: int, seed: int) -> Result:
    """Send `times` bodies, families and sizes in turn. The result's name gives the longest waits."""
    result, rng = Result("hostile shapes sent to the web app"), random.Random(seed)
    sizes = SIZES if times > 100 else SIZES[:2]
    cases = [(family, size) for size in sizes for family in FAMILIES]
    sent = [(case, body) for case in rng.sample(cases, len(cases)) for body in bodies(*case)]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root)
        limited = f'ulimit -v {ADDRESS_SPACE_KIB}; exec "$@"'
        command = ["bash", "-c", limited, "-", GEMSLIDE, "app", "--project", root, "--port", "0"]
        with started_app(root, Path(folder) / "server.log", command=command) as app, _Tiles(app) as tiles:
            before = _peak_mib(app)
            for (family, corners), body in itertools.islice(itertools.cycle(sent), times):
                _send(app, f"{family} of {corners} corners", body, result)
            grown = _peak_mib(app) - before
            result.check(grown < MOST_MIB, f"the app grew by {grown} MiB")
        result.check(tiles.longest_s < TILE_S * LONGEST_WAIT / 2, f"a tile took {tiles.longest_s:.1f} s")
        result.check("Traceback" not in app.log.read_text(), f"a traceback: {app.log.read_text()[-500:]}")
    result.what += f", the longest tile {tiles.longest_s:.2f} s of {tiles.count}, {grown} MiB more"
    return result


def _send(app: StartedApp, what: str, body: tuple[str, bytes, str], result: Result) -> None:
    path, content, media_type = body
    if len(content) > (16 * BODY_BYTES if path == "/import" else BODY_BYTES):
        return
    result.attempts += 1
    headers, start = {"Origin": app.url, "Content-Type": media_type}, time.perf_counter()
    answer = httpx.post(f"{app.url}/annotations/{SLIDE_ID}{path}", content=content, headers=headers, timeout=60)
    seconds, what = time.perf_counter() - start, f"{path or '/'} {what}"
    result.check(seconds < ANSWER_S * LONGEST_WAIT / 2, f"{what}: answered after {seconds:.1f} s")
    if answer.status_code == 200:
        return
    result.check(answer.status_code == 400, f"{what}: {answer.status_code} {answer.text[:200]}")
    result.check(bool(_EXPLAINED.search(answer.text)), f"{what}: says only {answer.text[:200]}")


def _peak_mib(app: StartedApp) -> int:
    status = Path(f"/proc/{app.process.pid}/status").read_text("ascii")
    return int(status.split("VmHWM:")[1].split()[0]) >> 10


class _Tiles:
    """A viewer of the slide and its annotations during the attack."""

    def __init__(self, app: StartedApp) -> None:
        self._app, self._ends = app, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.longest_s, self.count = 0.0, 0

    def __enter__(self) -> _Tiles:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        with httpx.Client(base_url=self._app.url, timeout=60) as client:
            client.get(f"/tiles/{SLIDE_ID}/0/0_0")
            for column in itertools.cycle(range(3)):
                if self._ends.wait(0.02):
                    return
                start = time.perf_counter()
                client.get(f"/tiles/{SLIDE_ID}/0/{column}_0").raise_for_status()
                self.longest_s = max(self.longest_s, time.perf_counter() - start)
                self.count += 1
                client.get(f"/annotations/{SLIDE_ID}/tiles/{column % 2}/0_0").raise_for_status()


if __name__ == "__main__":
    main(attack, times=150)
