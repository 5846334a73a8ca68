"""Annotation routes, requested without a server: annotations saved, shown and refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from pathology_app.annotating import bodies, handling, routes
from pathology_app.people import person as people
from pathology_app.people.person import Person, Role
from pathology_app.readings.blinding import Visibility
from pathology_app.routes import bodies as request_bodies
from pipeline.project import Project
from pipeline.study import Blinded
from tests.pathology_app.annotated_app import OTHER, ROOT, App, app, change, parsed, two_slides
from tests.pathology_app.small_project import HEIGHT_PX0, SLIDE_ID, WIDTH_PX0

__all__ = ["app", "two_slides"]


def test_looking_makes_no_ledger_and_finds_nothing(app: App, two_slides: Project) -> None:
    changes = app.ask(f"{ROOT}/changes?since=0").json()
    assert (changes["change"], changes["annotations"], changes["may_annotate"]) == (0, [], True)
    assert app.tile("0/0_0")["class_of"].size == 0
    assert app.ask(f"{ROOT}/at/5_5").json() == app.ask(f"{ROOT}/found?words=x").json() == {"annotations": []}
    assert app.ask(f"{ROOT}/qupath.geojson").json() == {"type": "FeatureCollection", "features": []}
    assert not list(two_slides.root.glob("gemslide.db*"))


def test_what_is_saved_is_told_to_who_asks_what_has_changed(app: App) -> None:
    saved = app.save(change(note="here"), change(x=700, **{"class": None}))
    assert [annotation["revision"] for annotation in saved["saved"]] == [1, 1]

    changes = app.ask(f"{ROOT}/changes?since=0").json()

    assert sorted(annotation["note"] for annotation in changes["annotations"]) == ["", "here"]
    assert (changes["classes"], changes["without_class"]) == ([["tumour", 1, "0072b2"]], 1)
    assert app.ask(f"{ROOT}/changes?since={changes['change']}").json()["annotations"] == []
    assert app.ask(f"{ROOT}/changes").json()["annotations"] == []
    assert app.ask(f"/annotations/{OTHER}/changes?since=0").json()["annotations"] == []


def test_too_many_changes_are_not_listed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_CHANGES", 1)
    app.save(change(), change(x=700))
    assert app.ask(f"{ROOT}/changes?since=0").json()["annotations"] is None


def test_a_change_of_another_revision_comes_back_with_what_is_there(app: App) -> None:
    first = change()
    app.save(first)
    app.save({**first, "revision": 1, "note": "theirs"})

    result = app.save({**first, "revision": 1, "note": "mine"})

    assert result["saved"] == []
    assert [(annotation["note"], annotation["revision"]) for annotation in result["conflicts"]] == [("theirs", 2)]


def test_a_tile_has_the_outlines_in_its_own_pixels(app: App) -> None:
    drawn = change(x=600, y=100, side=200)
    app.save(drawn)

    finest, coarse = app.tile("0/1_0"), app.tile("2/0_0")

    assert finest["corners_of"].tolist() == [5]
    corners = finest["corners"].reshape(-1, 2) / 32
    assert (corners.min(0).tolist(), corners.max(0).tolist()) == ([88, 100], [288, 300])
    coarse_corners = coarse["corners"].reshape(-1, 2) / 32
    assert (coarse_corners.min(0).tolist(), coarse_corners.max(0).tolist()) == ([150, 25], [200, 75])
    assert "".join(f"{number:08x}" for number in finest["ids"]) == drawn["id"].replace("-", "")[:16]
    assert finest["classes"] == ["tumour"]
    assert app.tile("0/0_0")["class_of"].size == 0


def test_a_tile_follows_every_change_and_names_the_change_it_shows(app: App) -> None:
    drawn = change()
    app.save(drawn)
    assert app.tile("0/0_0")["class_of"].size == 1
    project = app.ask(f"{ROOT}/changes").json()["project"]
    kept = app.ask(f"{ROOT}/tiles/0/0_0?v={project}-1").headers
    app.save({**drawn, "revision": 1, "deleted": True})
    after = app.ask(f"{ROOT}/tiles/0/0_0?v={project}-1")
    assert parsed(after.content)["class_of"].size == 0
    assert (kept["cache-control"], after.headers["cache-control"]) == ("private, no-cache", "no-store")
    assert kept["etag"] == f'"{project}-1-0-0-0"'


def test_what_is_smaller_than_pixels_is_counted_in_cells(app: App) -> None:
    app.save(*(change(x=40.5 + 2 * (i % 3), y=40.5, side=1) for i in range(9)), change(x=900, side=1))

    tile = app.tile("2/0_0")

    cells = tile["cells"].reshape(-1, 4).tolist()
    assert sorted(cells) == [[5, 5, 0, 9], [112, 12, 0, 1]]
    assert tile["class_of"].size == 0


def test_an_outline_beyond_the_tile_is_cut_outside_of_what_is_seen(app: App) -> None:
    app.save(change(x=1, y=1, side=1200))
    corners = app.tile("0/1_1")["corners"].reshape(-1, 2) / 32
    assert corners.min() == -8
    assert corners.max() == 520


def test_every_kind_of_shape_is_in_a_tile(app: App) -> None:
    line = {"type": "LineString", "coordinates": [[10, 10], [100, 100]]}
    points = {"type": "MultiPoint", "coordinates": [[10, 10], [100, 100]]}
    point = {"type": "Point", "coordinates": [50, 60]}
    ring = [[200, 200], [300, 200], [300, 300], [200, 300], [200, 200]]
    hole = [[220, 220], [240, 220], [240, 240], [220, 240], [220, 220]]
    holed = {"type": "Polygon", "coordinates": [ring, hole]}
    app.save(
        change(kind="line", geometry=line), change(kind="point", geometry=points),
        change(kind="point", geometry=point), change(geometry=holed),
    )  # fmt: skip
    tile = app.tile("0/0_0")
    assert sorted(tile["kinds"].tolist()) == [0, 1, 1, 2, 2, 2]
    assert sorted(tile["pieces_of"].tolist()) == [1, 1, 2, 2]


def test_the_smallest_under_a_point_comes_first(app: App) -> None:
    app.save(change(side=400, note="large"), change(x=150, y=150, side=50, note="small"), change(x=900, note="away"))
    hits = app.ask(f"{ROOT}/at/160.5_160.5?within=2").json()["annotations"]
    assert [annotation["note"] for annotation in hits] == ["small", "large"]
    assert app.ask(f"{ROOT}/at/99_99").json()["annotations"] == []
    assert len(app.ask(f"{ROOT}/at/99_99?within=3").json()["annotations"]) == 1


def test_areas_are_joined_and_split_without_being_saved(app: App) -> None:
    one, two = change()["geometry"], change(x=200)["geometry"]
    (joined,) = app.ask(f"{ROOT}/join", {"areas": [one, two]}).json()["areas"]
    line = {"type": "LineString", "coordinates": [[250, 0], [250, 900]]}
    pieces = app.ask(f"{ROOT}/split", {"areas": [joined], "line": line}).json()["areas"]
    assert (joined["type"], len(pieces)) == ("Polygon", 2)
    assert app.ask(f"{ROOT}/changes").json()["change"] == 0


def test_a_file_is_imported_and_goes_out_again(app: App) -> None:
    feature = {"type": "Feature", "geometry": change()["geometry"], "properties": {"classification": "stroma"}}
    assert app.ask(f"{ROOT}/import", [feature]).json() == {
        "saved": 1, "unchanged": 0, "beside": 0, "dropped": 0, "change": 1,
    }  # fmt: skip
    answer = app.ask(f"{ROOT}/qupath.geojson")
    assert answer.headers["content-disposition"] == f'attachment; filename="{SLIDE_ID}.geojson"'
    assert answer.json()["features"][0]["properties"]["classification"]["name"] == "stroma"
    assert app.ask(f"{ROOT}/import", answer.content).json()["unchanged"] == 1


def test_a_file_is_laid_on_the_slide_as_the_project_s_settings_say(app: App, two_slides: Project) -> None:
    zarr_json, settings = two_slides.store_path(SLIDE_ID) / "zarr.json", two_slides.settings_path
    before = zarr_json.read_text()
    root = json.loads(before)
    root["attributes"]["gemslide"]["bounds_px0"] = [8, 16, WIDTH_PX0 - 8, HEIGHT_PX0 - 16]
    feature = {"type": "Feature", "geometry": change()["geometry"], "properties": {}}
    drawn = np.array(feature["geometry"]["coordinates"][0])
    zarr_json.write_text(json.dumps(root))
    try:
        for counts_from, origin_xy0 in (("scanned", (8, 16)), ("slide", (0, 0))):
            settings.write_text(f'[tile]\nqupath_counts_from = "{counts_from}"\nallow_other_mpp = true\n')
            fresh = App(two_slides)
            assert fresh.ask(f"{ROOT}/import", [feature]).json()["saved"] == 1
            newest = fresh.ask(f"{ROOT}/changes?since=0").json()["annotations"][-1]
            np.testing.assert_allclose(newest["geometry"]["coordinates"][0], drawn + origin_xy0)
            exported = fresh.ask(f"{ROOT}/qupath.geojson").json()["features"]
            assert any(
                np.allclose(exported_feature["geometry"]["coordinates"][0], drawn) for exported_feature in exported
            )
            fresh.ledger.close()
        layer = (
            '<Annotations MicronsPerPixel="77"><Annotation Name="t"><Regions><Region Type="0"><Vertices>'
            '<Vertex X="1" Y="1"/><Vertex X="9" Y="1"/><Vertex X="9" Y="9"/>'
            "</Vertices></Region></Regions></Annotation></Annotations>"
        )
        assert app.ask(f"{ROOT}/import", layer.encode()).json()["saved"] == 1
        settings.unlink()
        refused = app.ask(f"{ROOT}/import", layer.encode())
        assert (refused.status_code, "says 77 µm/px" in refused.text) == (400, True)
    finally:
        zarr_json.write_text(before)
        settings.unlink(missing_ok=True)


HOSTILE: list[Any] = [
    b"", b"{", b"null", b"[]", b'{"changes": 3}', b"\xff\xfe", b"[" * 100_000, {"changes": ["x"]},
    {"changes": [change(more=1)]}, {"changes": [change(id="../../x")]}, {"changes": [change(id=7)]},
    {"changes": [change(revision=True)]}, {"changes": [change(revision=-1)]}, {"changes": [change(revision=10**30)]},
    {"changes": [change(kind="spiral")]}, {"changes": [change(deleted="yes")]}, {"changes": [change(note=None)]},
    {"changes": [change(note="x" * 2001)]}, {"changes": [change(**{"class": ""})]},
    {"changes": [change(**{"class": "a\u202eb"})]}, {"changes": [change(object_type="root2")]},
    {"changes": [change(geometry=None)]}, {"changes": [change(geometry={"type": "Polygon", "coordinates": "x"})]},
    {"changes": [change(geometry={"type": "Polygon", "coordinates": [[[1, 1], [2, 2]]]})]},
    {"changes": [change(geometry={"type": "Point", "coordinates": [1, "x"]}, kind="point")]},
    {"changes": [change(geometry={"type": "Point", "coordinates": [1e300, 2]}, kind="point")]},
    {"changes": [change(geometry={"type": "GeometryCollection", "geometries": []})]},
    {"changes": [change(x=WIDTH_PX0 - 10)]}, {"changes": [change(y=-HEIGHT_PX0)]},
    b'{"changes": [{"id": NaN}]}', {"changes": [change()] * 2}, {"changes": [{}] * 501},
]  # fmt: skip


def test_a_hostile_body_is_one_error_and_nothing_is_saved(app: App) -> None:
    for body in HOSTILE:
        answer = app.ask(ROOT, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_annotation"), body
    assert app.ask(f"{ROOT}/changes?since=0").json()["annotations"] == []


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/annotations/nobody/changes", 404), ("/annotations/..%2Fx/changes", 400), (f"{ROOT}/changes?since=-1", 400),
        (f"{ROOT}/changes?since=1e9", 400), (f"{ROOT}/tiles/9/0_0", 404), (f"{ROOT}/tiles/0/9_0", 404),
        (f"{ROOT}/tiles/0/0_0.bin", 400), (f"{ROOT}/tiles/99/0_0", 404), (f"{ROOT}/at/1", 400), (f"{ROOT}/at/x_y", 400),
        (f"{ROOT}/at/1_1?within=x", 400), (f"{ROOT}/else", 400), (ROOT, 400),
    ],
)  # fmt: skip
def test_a_bad_link_is_one_json_error(app: App, url: str, status: int) -> None:
    answer = app.ask(url)
    assert answer.status_code == status
    assert answer.json()["message"]
    assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_is_too_large_is_not_read_to_its_end(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "MAX_CHANGES_BYTES", 1 << 20)
    answer = app.ask(ROOT, b"x" * ((1 << 20) + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


def test_a_body_that_does_not_arrive_is_not_waited_for(two_slides: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bodies, "BODY_S", 0.0)
    monkeypatch.setattr(request_bodies, "SLOWEST_BYTES_PER_S", 1e9)
    app = App(two_slides)

    async def send() -> httpx.Response:
        async def never() -> AsyncIterator[bytes]:
            yield b"{"
            await asyncio.Event().wait()

        transport = httpx.ASGITransport(app._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://slides") as client:
            return await client.post(ROOT, content=never())

    answer = asyncio.run(send())
    assert (answer.status_code, answer.json()["code"]) == (408, "late_body")
    app.ledger.close()


def test_classes_used_on_slides_that_are_hidden_only_are_not_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.save(change())
    app.save(change(**{"class": "micrometastasis"}), slide_id=OTHER)
    shown = Visibility(Person())
    for hidden, named in (({}, ["tumour", "micrometastasis"]), ({OTHER: Blinded("s", "to be read")}, ["tumour"])):
        monkeypatch.setattr(routes, "visibility_of", lambda *_, hidden=hidden: replace(shown, hidden=hidden))
        assert [name for name, *_ in app.ask(f"{ROOT}/changes").json()["classes"]] == named


@pytest.mark.parametrize(
    ("role", "may", "may_not"),
    [
        (Role.COORDINATOR, ["/changes", "/table", "/table.csv", "/counts.csv"], ["", "/join", "/noted", "/import"]),
        (Role.READER, ["/changes", "/counts"], ["/qupath.geojson", "/table.csv", "/counts.csv"]),
    ],
)
def test_who_may_not_is_refused_on_the_server(
    app: App, monkeypatch: pytest.MonkeyPatch, role: Role, may: list[str], may_not: list[str]
) -> None:
    somebody = Person("ada", frozenset({role}))
    monkeypatch.setattr(handling, "person_of", lambda scope: somebody)
    assert people.MAY[role]
    assert [app.ask(ROOT + path).status_code for path in may] == [200] * len(may)
    for path in may_not:
        answer = app.ask(ROOT + path, None if "." in path else {"changes": [change()]})
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert app.ask(f"{ROOT}/changes").json()["change"] == 0
