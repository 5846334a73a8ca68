"""Annotation routes over two slides, requested without a server."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette

from pathology_app.annotating.routes import annotation_routes
from pathology_app.project.ledger import StudyLedger
from pathology_app.slides.cache import SlideCache
from pipeline.project import Project
from tests.pathology_app.small_project import SLIDE_ID

ROOT = f"/annotations/{SLIDE_ID}"
OTHER = "S-002"


class App:
    """The routes over a project of two slides."""

    def __init__(self, project: Project) -> None:
        self.ledger = StudyLedger(project)
        self._app = Starlette(routes=annotation_routes(SlideCache(project), self.ledger))

    def ask(self, url: str, body: Any = None) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
                if body is None:
                    return await client.get(url)
                return await client.post(url, content=body if isinstance(body, bytes) else json.dumps(body))

        return asyncio.run(send())

    def save(self, *changes: dict[str, Any], slide_id: str = SLIDE_ID) -> dict[str, Any]:
        answer = self.ask(f"/annotations/{slide_id}", {"changes": changes})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def tile(self, place: str) -> dict[str, Any]:
        answer = self.ask(f"{ROOT}/tiles/{place}?v=0")
        assert answer.status_code == 200, answer.text
        return parsed(answer.content)


@pytest.fixture(scope="module")
def two_slides(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    own = Project(tmp_path_factory.mktemp("annotated"))
    for name in (SLIDE_ID, OTHER):
        shutil.copytree(project.store_path(SLIDE_ID), own.store_path(name))
    root = own.store_path(OTHER) / "zarr.json"
    root.write_text(root.read_text().replace(f'"slide_id": "{SLIDE_ID}"', f'"slide_id": "{OTHER}"'))
    return own


@pytest.fixture
def app(two_slides: Project) -> Iterator[App]:
    """Routes over slides without annotations."""
    app = App(two_slides)
    yield app
    app.ledger.close()
    for path in two_slides.root.glob("gemslide.db*"):
        path.unlink()


def change(x: float = 100, y: float = 100, side: float = 200, **fields: Any) -> dict[str, Any]:
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    drawn = {"kind": "polygon", "geometry": {"type": "Polygon", "coordinates": [ring]}, "class": "tumour"}
    return {"id": str(uuid.uuid4()), "revision": 0, **drawn, **fields}


def parsed(content: bytes) -> dict[str, Any]:
    """Content of a tile, parsed as vector_tile.py specifies."""
    assert content[:4] == b"GVT1"
    length = int.from_bytes(content[4:8], "little")
    header = json.loads(content[8 : 8 + length])
    at = -(-(8 + length) // 8) * 8
    arrays = {"classes": header["classes"], "change": header["change"]}
    for name, kind, count in (
        ("ids", ">u4", 2 * header["outlines"]),
        ("class_of", "u1", header["outlines"]),
        ("pieces_of", "<u2", header["outlines"]),
        ("kinds", "u1", header["pieces"]),
        ("corners_of", "<u2", header["pieces"]),
        ("corners", "<i2", 2 * header["corners"]),
        ("cells", "u1", 4 * header["cells"]),
    ):
        kind = kind.replace(">", "<")
        arrays[name] = np.frombuffer(content, kind, count, at)
        at += -(-arrays[name].nbytes // 8) * 8
    assert at == len(content)
    return arrays
