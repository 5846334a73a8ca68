"""Annotations are saved with author and time, never over another person's change, and their full history is kept."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from itertools import pairwise

import pytest
import shapely
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from shapely.geometry import LineString, Point, Polygon, box
from sqlalchemy import select

from pipeline.errors import BadAnnotationError, BadManifestError
from pipeline.ledger import PROJECT_LOG, Ledger, metadata
from pipeline.review import (
    Draft,
    annotations_of,
    changes_since,
    class_colours,
    find_annotations,
    merge_annotations,
    save,
    split_annotation,
)
from pipeline.review.annotations import saving, shapes
from pipeline.review.rows.tables import annotation_revision
from pipeline.study import verify_log

SIZE = (2000, 1000)


def square(x: float = 10, side: float = 100, **fields: object) -> Draft:
    return Draft(box(x, 10, x + side, 10 + side), "rectangle", **fields)  # type: ignore[arg-type]


def test_the_migrations_make_the_tables_that_hold_annotations(ledger: Ledger) -> None:
    with ledger.database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_what_was_drawn_is_there_with_who_and_when(ledger: Ledger) -> None:
    saved = save(ledger, "S-1", [square(class_name="tumour", note="edge?\nsecond line")], "ada", size_wh_px0=SIZE)

    (annotation,) = annotations_of(ledger, "S-1")
    assert saved.saved == (annotation,)
    assert (annotation.class_name, annotation.note, annotation.revision, annotation.author) == (
        "tumour",
        "edge?\nsecond line",
        1,
        "ada",
    )
    assert annotation.shape.equals(box(10, 10, 110, 110))
    assert annotation.made_utc == annotation.changed_utc
    assert annotations_of(ledger, "S-2") == []
    assert class_colours(ledger) == {"tumour": "0072b2"}


def test_every_change_is_in_the_projects_log_and_the_log_verifies(ledger: Ledger) -> None:
    (made,) = save(ledger, "S-1", [square()], "ada").saved
    (changed,) = save(ledger, "S-1", [made.draft(note="n")], "bob").saved
    (gone,) = save(ledger, "S-1", [changed.draft(is_deleted=True)], "bob").saved
    save(ledger, "S-1", [gone.draft(is_deleted=False)], "ada")

    entries = ledger.history(PROJECT_LOG, "slide S-1")
    assert [(entry.actor, entry.action) for entry in entries] == [
        ("ada", "annotation drawn"), ("bob", "annotation changed"), ("bob", "annotation deleted"),
        ("ada", "annotation restored"),
    ]  # fmt: skip
    details = [json.loads(entry.details) for entry in entries]
    assert [one["after"] == two["before"] for one, two in pairwise(details)] == [True] * 3
    assert not verify_log(ledger.database, PROJECT_LOG).findings


def test_an_earlier_revision_is_kept_with_who_and_when(ledger: Ledger) -> None:
    (made,) = save(ledger, "S-1", [square(class_name="tumour")], "ada").saved
    save(ledger, "S-1", [made.draft(class_name="stroma", shape=box(0, 0, 5, 5))], "bob")

    (now,) = annotations_of(ledger, "S-1")
    assert (now.revision, now.author, now.changed_by, now.class_name) == (2, "ada", "bob", "stroma")
    with ledger.database.read() as connection:
        (earlier,) = connection.execute(select(annotation_revision)).mappings()
    assert (earlier["revision"], earlier["class_name"], earlier["changed_by"]) == (1, "tumour", "ada")
    assert shapely.from_geojson(earlier["geometry"]).equals(made.shape)


def test_a_change_of_an_older_revision_overwrites_nothing(ledger: Ledger) -> None:
    (made,) = save(ledger, "S-1", [square()], "ada").saved
    (theirs,) = save(ledger, "S-1", [made.draft(note="theirs")], "bob").saved

    result = save(ledger, "S-1", [made.draft(note="mine"), square(300)], "ada")

    assert result.conflicts == (theirs,)
    assert [annotation.note for annotation in annotations_of(ledger, "S-1")] == ["theirs", ""]


def test_the_same_sent_twice_changes_nothing(ledger: Ledger) -> None:
    """The response to the first request was lost."""
    draft = square(note="n")
    first = save(ledger, "S-1", [draft], "ada")
    again = save(ledger, "S-1", [draft], "ada")
    changed = first.saved[0].draft(note="m")
    save(ledger, "S-1", [changed], "ada")
    save(ledger, "S-1", [changed], "ada")

    assert (again.saved, again.conflicts, again.change) == (first.saved, (), first.change)
    assert [annotation.revision for annotation in annotations_of(ledger, "S-1")] == [2]
    assert len(ledger.history(PROJECT_LOG, "slide S-1")) == 2


def test_two_who_change_one_at_once_are_told_apart(ledger: Ledger) -> None:
    (made,) = save(ledger, "S-1", [square()], "ada").saved
    starts, results = threading.Barrier(4), []

    def change(name: str) -> None:
        starts.wait()
        results.append(save(ledger, "S-1", [made.draft(note=name)], name))

    threads = [threading.Thread(target=change, args=(f"p{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(len(result.conflicts) for result in results) == [0, 1, 1, 1]
    assert annotations_of(ledger, "S-1")[0].revision == 2


def test_changes_come_since_a_counter_with_what_was_deleted(ledger: Ledger) -> None:
    one, two = save(ledger, "S-1", [square(), square(300)], "ada").saved
    before = changes_since(ledger, "S-1", 0).change
    save(ledger, "S-1", [one.draft(is_deleted=True)], "ada")

    changes = changes_since(ledger, "S-1", before)

    assert changes.annotations is not None
    assert [(annotation.annotation_id, annotation.is_deleted) for annotation in changes.annotations] == [
        (one.annotation_id, True)
    ]
    assert changes_since(ledger, "S-1", changes.change).annotations == ()
    assert changes_since(ledger, "S-1", 0, most=1).annotations is None
    assert [annotation.annotation_id for annotation in annotations_of(ledger, "S-1")] == [two.annotation_id]
    assert len(annotations_of(ledger, "S-1", with_deleted=True)) == 2


def test_the_same_id_on_another_slide_is_another_annotation(ledger: Ledger) -> None:
    draft = square(note="first")
    save(ledger, "S-1", [draft], "ada")
    save(ledger, "S-2", [replace(draft, note="second")], "ada")
    assert [annotation.note for name in ("S-1", "S-2") for annotation in annotations_of(ledger, name)] == [
        "first",
        "second",
    ]


def test_words_are_found_in_class_note_and_author_as_they_stand(ledger: Ledger) -> None:
    save(ledger, "S-1", [square(class_name="Tumour", note="50% of it"), square(300, note="500 of it")], "ada")
    assert [annotation.note for annotation in find_annotations(ledger, "S-1", ["TUMOUR", "ada"])] == ["50% of it"]
    assert [annotation.note for annotation in find_annotations(ledger, "S-1", ["0%"])] == ["50% of it"]
    assert find_annotations(ledger, "S-1", ["_"]) == []


def test_an_outline_that_crosses_itself_is_repaired(ledger: Ledger) -> None:
    bow_tie = Polygon([(0, 0), (100, 100), (100, 0), (0, 100)])
    (saved,) = save(ledger, "S-1", [Draft(bow_tie, "freehand")], "ada").saved
    assert saved.shape.is_valid
    assert saved.shape.area == pytest.approx(5000)


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft(box(1990, 10, 2100, 20)), "the slide only 2000×1000"),
        (Draft(box(-50, 10, 20, 20)), "the slide only"),
        (Draft(Polygon()), "empty or not finite"),
        (Draft(Polygon([(0, 0), (1, 1), (2, 2)])), "encloses no area"),
        (Draft(Point(float("nan"), 1), "point"), "empty or not finite"),
        (Draft(Point(1, 1), "polygon"), "cannot be a Point"),
        (Draft(LineString([(0, 0), (1, 1)]), "spiral"), "expected one of point"),
        (Draft(box(0, 0, 9, 9), class_name=" tumour"), "begins or ends with a space"),
        (Draft(box(0, 0, 9, 9), class_name="a\u202eb"), "cannot be printed"),
        (Draft(box(0, 0, 9, 9), note="x" * 2001), "at most 2000 are allowed"),
        (Draft(box(0, 0, 9, 9), note="a\x00b"), "cannot be printed"),
        (Draft(box(0, 0, 9, 9), annotation_id="'; drop table"), "not a lower-case UUID"),
        (Draft(box(0, 0, 9, 9), revision=-1), "out of range"),
        (Draft(box(0, 0, 9, 9), object_type="ghost"), "expected one of"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_saved(ledger: Ledger, draft: Draft, says: str) -> None:
    with pytest.raises(BadAnnotationError, match=says):
        save(ledger, "S-1", [square(), draft], "ada", size_wh_px0=SIZE)
    assert annotations_of(ledger, "S-1") == []


def test_what_is_too_much_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MAX_DRAFTS", 3)
    monkeypatch.setattr(saving, "MAX_LIVE", 2)
    monkeypatch.setattr(shapes, "MAX_VERTICES", 100)
    with pytest.raises(BadAnnotationError, match="4 annotations at once"):
        save(ledger, "S-1", [square(x) for x in range(4)], "ada")
    with pytest.raises(BadAnnotationError, match=r"3 annotations with 15 corners.*Nothing was saved"):
        save(ledger, "S-1", [square(x) for x in range(3)], "ada")
    with pytest.raises(BadAnnotationError, match="Simplify"):
        save(ledger, "S-1", [Draft(Point(50, 50).buffer(20, quad_segs=40))], "ada")
    with pytest.raises(BadAnnotationError, match="saved twice"):
        save(ledger, "S-1", [draft := square(), draft], "ada")
    with pytest.raises(BadManifestError):
        save(ledger, "../S-1", [square()], "ada")
    assert annotations_of(ledger, "S-1") == []


def test_a_million_crossings_are_refused_at_once(ledger: Ledger) -> None:
    corners = [((i * 7919) % 2000, 1000 * (i % 2)) for i in range(3000)]
    with pytest.raises(BadAnnotationError, match=r"the outlines cross [\d,]+ times or more; the limit is 40,000"):
        save(ledger, "S-1", [Draft(Polygon(corners), "freehand")], "ada", size_wh_px0=SIZE)


def test_what_was_never_saved_need_not_be_deleted(ledger: Ledger) -> None:
    result = save(ledger, "S-1", [square(is_deleted=True, annotation_id=str(uuid.uuid4()))], "ada")
    assert (result.saved, result.conflicts, result.change) == ((), (), 0)


def test_areas_are_joined_and_split() -> None:
    whole = merge_annotations([box(0, 0, 10, 10), box(5, 0, 20, 10)])
    assert whole.equals(box(0, 0, 20, 10))
    assert merge_annotations([box(0, 0, 1, 1), box(5, 5, 6, 6)]).geom_type == "MultiPolygon"
    large, small = split_annotation(whole, LineString([(5, -1), (5, 11)]))
    assert (large.area, small.area) == (150, 50)
    with pytest.raises(BadAnnotationError, match="does not cut through"):
        split_annotation(whole, LineString([(5, -1), (5, 5)]))
    with pytest.raises(BadAnnotationError, match="2 to 500 areas"):
        merge_annotations([whole])
    with pytest.raises(BadAnnotationError, match="not a Point"):
        merge_annotations([whole, Point(1, 1)])
