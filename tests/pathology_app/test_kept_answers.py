"""Responses from memory: the same bytes, never of a replaced version, and never a hole."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from pathology_app.access.guard import Access
from pathology_app.asgi import create_app
from pathology_app.serving.environment import sign_in_here
from pathology_app.slides.cache import SlideCache
from pathology_app.tiles import routes
from pathology_app.tiles.body_cache import BodyCache
from pathology_app.tiles.routes import TileServer, viewer_routes
from pathology_app.viewer.bundle import bundle_path
from pipeline.project import Project
from tests.pathology_app.small_project import MODEL_ID, SLIDE_ID, flip_a_bit
from tests.pathology_app.tile_parts import parts_of

TILE, OTHER = f"/tiles/{SLIDE_ID}/0/0_0", f"/tiles/{SLIDE_ID}/0/1_1"
BETWEEN = f"/tiles/{SLIDE_ID}/1/0_0"
OVERLAY, THUMBNAIL = f"/overlays/{SLIDE_ID}/{MODEL_ID}/1.png", f"/thumbnails/{SLIDE_ID}.jpg"

Get = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
def copy(project: Project, tmp_path: Path) -> Project:
    """Copy of the small project to change."""
    made = Project(tmp_path / "copy")
    shutil.copytree(project.store_path(SLIDE_ID), made.store_path(SLIDE_ID))
    return made


def run_requests(project: Project, steps: Callable[[Get], Awaitable[None]]) -> None:
    """Run requests against one server of the project."""

    async def run() -> None:
        transport = httpx.ASGITransport(Starlette(routes=viewer_routes(SlideCache(project))))
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            await steps(client.get)

    asyncio.run(run())


def spoil(project: Project) -> None:
    """Make every level unreadable while the files, and so the version, stay the same."""
    for shard in (project.store_path(SLIDE_ID) / "0").glob("*/c/**/*"):
        if shard.is_file():
            shard.write_bytes(b"")


def written_again(project: Project) -> None:
    root = project.store_path(SLIDE_ID) / "zarr.json"
    content = root.read_bytes()
    root.unlink()
    root.write_bytes(content)


def has_holes(response: httpx.Response) -> bool:
    return not all(stream for _, stream in parts_of(response.content))


@pytest.mark.parametrize("fresh_s", [60.0, 0.0])
def test_what_was_answered_once_is_answered_from_memory(
    copy: Project, monkeypatch: pytest.MonkeyPatch, fresh_s: float
) -> None:
    monkeypatch.setattr(routes, "FRESH_S", fresh_s)

    async def steps(get: Get) -> None:
        first = {link: await get(link) for link in (TILE, BETWEEN, OVERLAY, THUMBNAIL)}
        spoil(copy)
        shutil.rmtree(copy.store_path(SLIDE_ID) / "0" / "0" / "predictions", ignore_errors=True)
        for link, before in first.items():
            again = await get(link)
            assert (again.content, again.headers) == (before.content, before.headers)
        assert has_holes(await get(OTHER))

    run_requests(copy, steps)


def test_a_project_can_keep_nothing_in_memory(copy: Project) -> None:
    (copy.root / "gemslide.toml").write_text("[app]\ntile_cache_mb = 0\n")

    async def steps(get: Get) -> None:
        assert not has_holes(await get(TILE))
        spoil(copy)
        assert has_holes(await get(TILE))

    run_requests(copy, steps)


@pytest.mark.parametrize("link", [TILE, BETWEEN])
def test_a_hole_is_looked_at_again_each_time(copy: Project, link: str) -> None:
    async def steps(get: Get) -> None:
        shards = [path for path in (copy.store_path(SLIDE_ID) / "0" / "0" / "c").rglob("*") if path.is_file()]
        whole = {path: path.read_bytes() for path in shards}
        flip_a_bit(copy, row=1, column=1)
        assert has_holes(await get(link))

        for path, content in whole.items():
            path.write_bytes(content)

        assert not has_holes(await get(link))

    run_requests(copy, steps)


def test_a_link_of_a_newer_version_is_believed_at_once(copy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "FRESH_S", 60.0)

    async def steps(get: Get) -> None:
        before = (await get(TILE)).headers["etag"]
        written_again(copy)
        version = SlideCache(copy).slide(SLIDE_ID).version

        now = await get(f"{TILE}?v={version}", headers={"If-None-Match": before})

        assert now.status_code == 200
        assert now.headers["etag"] == f'"{version}-0-0-0"' != before

    run_requests(copy, steps)


def test_a_slide_written_again_or_deleted_is_noticed_by_old_links(
    copy: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "FRESH_S", 0.0)

    async def steps(get: Get) -> None:
        first = await get(TILE)
        written_again(copy)
        other = await get(TILE, headers={"If-None-Match": first.headers["etag"]})
        assert other.status_code == 200
        assert other.headers["etag"] != first.headers["etag"]

        shutil.rmtree(copy.store_path(SLIDE_ID))
        assert (await get(TILE)).status_code == 404

    run_requests(copy, steps)


def test_a_known_tile_is_not_sent_again_from_memory_either(project: Project) -> None:
    async def steps(get: Get) -> None:
        tag = (await get(TILE)).headers["etag"]
        known, other = await get(TILE, headers={"If-None-Match": tag}), await get(OTHER, headers={"If-None-Match": tag})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        assert other.status_code == 200

    run_requests(project, steps)


def test_many_readers_at_once_get_each_tile_right_and_memory_stays_bounded(project: Project) -> None:
    bodies = BodyCache(500_000)  # too little room for all of them
    server = TileServer(SlideCache(project), bodies)
    alone = Starlette(routes=viewer_routes(SlideCache(project)))
    crowded = Starlette(routes=[Route("/tiles/{slide_id}/{rest:path}", server.tile)])
    links = [f"/tiles/{SLIDE_ID}/{level}/{c}_{r}" for level, w, h in ((0, 4, 3), (1, 2, 2)) for c in range(w) for r in range(h)]  # fmt: skip # noqa: E501

    async def run() -> None:
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(alone), base_url="http://slides") as one,
            httpx.AsyncClient(transport=httpx.ASGITransport(crowded), base_url="http://slides") as many,
        ):
            expected = {link: (await one.get(link)).content for link in links}
            assert sum(map(len, expected.values())) > bodies.max_bytes

            async def reader(seed: int) -> None:
                for link in random.Random(seed).sample(links, len(links)):
                    assert (await many.get(link)).content == expected[link]
                    assert bodies.size_bytes <= bodies.max_bytes

            await asyncio.gather(*map(reader, range(12)))

    asyncio.run(run())
    assert bodies.size_bytes > 0


@pytest.mark.usefixtures("serve_project")
def test_the_app_compresses_its_script_and_no_tile() -> None:
    app = create_app(Access(sign_in_here(None)))
    links = [TILE, BETWEEN, OVERLAY, THUMBNAIL, f"/viewer/{bundle_path().name}"]

    async def run() -> list[httpx.Response]:
        base, headers = "http://127.0.0.1:8501", {"Accept-Encoding": "gzip"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base, headers=headers) as client:
            return [await client.get(link) for link in links]

    answers = asyncio.run(run())
    assert [answer.status_code for answer in answers] == [200] * 5
    assert [answer.headers.get("content-encoding") for answer in answers] == [None, None, None, None, "gzip"]
