"""Counts, the table of annotations and notices, over HTTP."""

from __future__ import annotations

import csv
import io
import json
import uuid
from typing import Any

import pytest
from shapely.geometry import Point, shape

from pathology_app.annotating import handling
from pathology_app.people.person import Person, Role
from tests.pathology_app.annotated_app import ROOT, App, app, change, two_slides
from tests.pathology_app.small_project import HEIGHT_PX0, MPP0, SLIDE_ID, WIDTH_PX0

__all__ = ["app", "two_slides"]
MM2_PER_PX0 = (MPP0 / 1000) ** 2


def square(x: float, y: float, side: float) -> dict[str, Any]:
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    return {"type": "Polygon", "coordinates": [ring]}


def drawing(kind: str, geometry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    shared = {"id": str(uuid.uuid4()), "revision": 0, "note": "", "class": None}
    return {**shared, "kind": kind, "geometry": geometry, **fields}


def point(x: float, y: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [x, y]}


def marks(of: dict[str, Any], number: int, class_name: str) -> list[dict[str, Any]]:
    return [drawing("mark", point(5 + index, 7), parent=of["id"], **{"class": class_name}) for index in range(number)]


def rows_of_csv(app: App, path: str) -> list[dict[str, str]]:
    answer = app.ask(ROOT + path)
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


def as_person(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    person = Person(name, frozenset({Role.REVIEWER}))
    monkeypatch.setattr(handling, "person_of", lambda scope: person)


def test_a_count_comes_with_what_was_scanned_and_its_densities(app: App) -> None:
    count = drawing("count", square(-100, -100, 200))
    app.save(count, *marks(count, 3, "positive"), *marks(count, 1, "negative"))

    answer = app.ask(f"{ROOT}/counts").json()

    (tally,) = answer["counts"]
    assert (tally["id"], tally["name"], tally["outside"]) == (count["id"], "Count 1", 0)
    assert tally["area_mm2"] == pytest.approx(40_000 * MM2_PER_PX0)
    assert tally["scanned_mm2"] == pytest.approx(10_000 * MM2_PER_PX0)
    positive = tally["classes"][1]
    assert (positive["class_name"], positive["number"], positive["share"]) == ("positive", 3, 0.75)
    assert positive["per_mm2"] == pytest.approx(3 / (10_000 * MM2_PER_PX0))
    assert answer["change"] == app.ask(f"{ROOT}/changes").json()["change"]
    exported = rows_of_csv(app, "/counts.csv")
    assert [(row["class"], row["number"]) for row in exported] == [("negative", "1"), ("positive", "3")]
    assert float(exported[1]["per_mm2_scanned"]) == pytest.approx(3 / (10_000 * MM2_PER_PX0), rel=1e-5)


def test_marks_are_in_tiles_and_measurements_come_by_themselves(app: App) -> None:
    count = drawing("count", square(0, 0, 200))
    ruler = drawing("ruler", {"type": "LineString", "coordinates": [[0, 0], [30, 40]]})
    app.save(count, ruler, *marks(count, 2, "mitosis"))

    first = app.ask(f"{ROOT}/changes").json()

    assert sorted(one["kind"] for one in first["annotations"]) == ["count", "ruler"]
    assert first["classes"] == [["mitosis", 2, "0072b2"]]
    assert len(app.tile("0/0_0")["class_of"]) == 2


def test_the_size_of_a_circle_is_said_before_it_is_saved(app: App) -> None:
    body = {"areas": [square(WIDTH_PX0 - 50, 0, 100), square(10, 10, 20)]}
    beyond, inside = app.ask(f"{ROOT}/areas", body).json()["areas"]
    assert beyond["scanned_mm2"] == pytest.approx(beyond["area_mm2"] / 2)
    assert inside["scanned_mm2"] == pytest.approx(inside["area_mm2"])
    assert app.ask(f"{ROOT}/changes").json()["change"] == 0
    assert app.ask(f"{ROOT}/areas", {"areas": [square(0, 0, 5)] * 21}).status_code == 400


def test_the_table_is_filtered_sorted_and_summed(app: App) -> None:
    ruler = drawing("ruler", {"type": "LineString", "coordinates": [[0, 0], [30, 40]]}, note="=1+1")
    app.save(change(side=100), change(side=300, y=400, note="large"), drawing("point", point(250, 450)), ruler)
    app.save(drawing("reply", point(1, 1), note="agreed", parent=ruler["id"]))

    by_area = app.ask(f"{ROOT}/table?sort=area&order=down").json()
    assert [row["area_mm2"] for row in by_area["rows"][:2]] == pytest.approx(
        [90_000 * MM2_PER_PX0, 10_000 * MM2_PER_PX0]
    )
    assert [row["area_mm2"] for row in by_area["rows"][2:]] == [None, None]
    assert by_area["total"] == 4
    assert by_area["totals"] == [[None, 2, 0], ["tumour", 2, pytest.approx(100_000 * MM2_PER_PX0)]]
    rulers = app.ask(f"{ROOT}/table?kind=ruler").json()["rows"]
    assert [(row["length_um"], row["replies"]) for row in rulers] == [(50 * MPP0, 1)]
    inside = app.ask(f"{ROOT}/table?sort=inside&order=down&most=1").json()["rows"]
    assert inside[0]["note"] == "large"
    assert app.ask(f"{ROOT}/table?words=LARGE").json()["total"] == 1
    assert app.ask(f"{ROOT}/table?unclassed=1").json()["total"] == 2
    # A cell that a spreadsheet would run as a formula is defused.
    assert [row["note"] for row in rows_of_csv(app, "/table.csv?kind=ruler")] == ["'=1+1"]


@pytest.mark.parametrize(
    "path",
    ["/table?sort=geometry", "/table?order=1", "/table?kind=mark", "/table?offset=-1", "/table?most=0",
     "/some?ids=1", "/some?ids=", "/about?id='--", "/table.csv?sort=x"],
)  # fmt: skip
def test_a_bad_parameter_is_one_error(app: App, path: str) -> None:
    answer = app.ask(ROOT + path)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_link")


def test_an_author_is_told_once_what_others_did_and_has_their_own_version(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_person(monkeypatch, "ada")
    mine = change(note="mine")
    app.save(mine)
    as_person(monkeypatch, "bob")
    app.save({**mine, "revision": 1, "note": "bob's"})
    app.save({**mine, "revision": 2, "note": "bob's", "deleted": True})
    assert app.ask(f"{ROOT}/changed").json()["annotations"] == []

    as_person(monkeypatch, "ada")
    (told,) = app.ask(f"{ROOT}/changed").json()["annotations"]
    assert (told["changed_by"], told["deleted"]) == ("bob (web app)", True)
    assert app.ask(f"{ROOT}/about?id={mine['id']}").json()["own"]["note"] == "mine"
    assert app.ask(f"{ROOT}/noted", {"ids": [mine["id"], "nonsense"]}).status_code == 200
    assert app.ask(f"{ROOT}/changed").json()["annotations"] == []
    app.save({**mine, "revision": 3})
    as_person(monkeypatch, "bob")
    app.save({**mine, "revision": 4, "deleted": True})
    as_person(monkeypatch, "ada")
    assert len(app.ask(f"{ROOT}/changed").json()["annotations"]) == 1


def test_answers_stand_under_an_annotation_with_who_and_when(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = change()
    app.save(drawn)
    for name in ("ada", "bob"):
        as_person(monkeypatch, name)
        app.save(drawing("reply", point(10, 10), note=f"{name} agrees", parent=drawn["id"]))
    replies = app.ask(f"{ROOT}/about?id={drawn['id']}").json()["replies"]
    assert [(reply["author"], reply["note"]) for reply in replies] == [
        ("ada (web app)", "ada agrees"),
        ("bob (web app)", "bob agrees"),
    ]
    assert all(reply["made_utc"] for reply in replies)


def test_only_ones_own_can_be_changed_where_the_project_says_so(
    app: App, two_slides: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = two_slides.settings_path
    settings.write_text('[annotations]\nchange_others = "never"\n')
    try:
        as_person(monkeypatch, "ada")
        drawn = change()
        app.save(drawn)
        as_person(monkeypatch, "bob")
        answer = app.ask(ROOT, {"changes": [{**drawn, "revision": 1, "deleted": True}]})
        assert answer.status_code == 400
        assert "drawn by ada" in answer.json()["message"]
        assert app.ask(f"{ROOT}/changes").json()["only_own"]
    finally:
        settings.unlink()


def test_a_part_is_erased_from_an_area(app: App) -> None:
    answer = app.ask(f"{ROOT}/erase", {"areas": [square(0, 0, 100), square(50, 0, 100)]})
    (left,) = answer.json()["areas"]
    xs = [x for x, _ in left["coordinates"][0]]
    assert (min(xs), max(xs)) == (0, 50)
    nothing = app.ask(f"{ROOT}/erase", {"areas": [square(0, 0, 10), square(0, 0, 100)]})
    assert (nothing.status_code, nothing.json()["code"]) == (400, "bad_annotation")


def test_annotations_come_by_id_with_deleted_ones(app: App) -> None:
    kept, gone = change(), change(x=500)
    app.save(kept, gone)
    app.save({**gone, "revision": 1, "deleted": True})
    some = app.ask(f"{ROOT}/some?ids={kept['id']},{gone['id']},{uuid.uuid4()}").json()["annotations"]
    assert [(one["id"], one["deleted"]) for one in some] == [(kept["id"], False), (gone["id"], True)]


def test_ten_thousand_marks_are_counted_within_the_time_of_a_reload(app: App) -> None:
    count = drawing("count", square(0, 0, min(WIDTH_PX0, HEIGHT_PX0)))
    app.save(count)
    for start in range(0, 10_000, 500):
        app.save(*(
            drawing("mark", point(1 + (start + index) % 1200, 1 + (start + index) // 1200), parent=count["id"],
                    **{"class": "positive"}) for index in range(500)
        ))  # fmt: skip
    answer = app.ask(f"{ROOT}/counts")
    assert answer.json()["counts"][0]["classes"][0]["number"] == 10_000
    assert len(json.dumps(answer.json())) < 2000
    assert SLIDE_ID in ROOT


def test_the_wand_fills_what_is_similar_around_a_point(app: App) -> None:
    body = {"x_px0": 700.0, "y_px0": 500.0, "mpp": 1.0, "tolerance": 0.3}
    answer = app.ask(f"{ROOT}/wand", body)
    assert answer.status_code == 200, answer.text
    area = shape(answer.json()["areas"][0])
    assert area.is_valid
    assert area.buffer(4).contains(Point(700, 500))
    assert 100 < area.area < WIDTH_PX0 * HEIGHT_PX0
    wider = shape(app.ask(f"{ROOT}/wand", {**body, "tolerance": 1.0}).json()["areas"][0])
    assert wider.area > area.area


@pytest.mark.parametrize(
    "changed", [{"x_px0": -5}, {"mpp": 0}, {"mpp": "1"}, {"tolerance": 2}, {"y_px0": None}, {"x_px0": 1e300}]
)
def test_a_wand_beyond_the_slide_or_without_numbers_is_one_error(app: App, changed: dict[str, Any]) -> None:
    body = {"x_px0": 700.0, "y_px0": 500.0, "mpp": 1.0, "tolerance": 0.3, **changed}
    answer = app.ask(f"{ROOT}/wand", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_annotation")
