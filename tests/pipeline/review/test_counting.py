"""A count divides by what was scanned, keeps its classes apart, and is deleted and restored with its marks."""

from __future__ import annotations

import math
import uuid
from pathlib import Path

import numpy as np
import pytest
from shapely.geometry import LineString, Point, Polygon, box

from pipeline.errors import BadAnnotationError
from pipeline.ledger import PROJECT_LOG, Ledger
from pipeline.project import Project
from pipeline.review import (
    Draft,
    SlideMasks,
    annotations_of,
    count_rows,
    only_own,
    save,
    tally_slide,
    wilson_interval,
)
from pipeline.store.layers.labels import write_tissue
from pipeline.store.reading.reader import StoreReader
from pipeline.study import verify_log
from tests.pathology_app.small_project import (
    HEIGHT_PX0,
    MPP0,
    SLIDE_ID,
    WIDTH_PX0,
    make_damaged_project,
    make_project,
)

SIZE = (WIDTH_PX0, HEIGHT_PX0)
MM2_PER_PX0 = (MPP0 / 1000) ** 2
RADIUS_1_MM2_PX0 = math.sqrt(1 / math.pi) * 1000 / MPP0


def circle(x: float, y: float, radius: float = RADIUS_1_MM2_PX0) -> Polygon:
    return Point(x, y).buffer(radius, quad_segs=64)


def count(shape: Polygon, **fields: object) -> Draft:
    return Draft(shape, "count", **fields)  # type: ignore[arg-type]


def mark(of: Draft, x: float, y: float, class_name: str = "positive") -> Draft:
    return Draft(Point(x, y), "mark", class_name, parent_id=of.annotation_id)


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> SlideMasks:
    """A slide whose left 600 px are tissue."""
    project = make_project(tmp_path_factory.mktemp("counted"))
    store = project.store_path(SLIDE_ID)
    mask = np.zeros((-(-HEIGHT_PX0 // 10), WIDTH_PX0 // 10), bool)
    mask[:, :60] = True
    write_tissue(store, mask, 10 * MPP0, MPP0, len(StoreReader(store).levels))
    return SlideMasks(StoreReader(store))


def test_a_density_divides_by_what_was_scanned(ledger: Ledger, masks: SlideMasks) -> None:
    # Most of this circle of 1 mm² lies beyond the slide's corner.
    drawn = count(circle(-400, -400))
    save(ledger, SLIDE_ID, [drawn, *(mark(drawn, 10 + index, 20) for index in range(3))], "ada", size_wh_px0=SIZE)

    (tally,) = tally_slide(ledger, SLIDE_ID, masks.areas)

    inside_mm2 = circle(-400, -400).intersection(box(0, 0, *SIZE)).area * MM2_PER_PX0
    assert tally.areas.area_mm2 == pytest.approx(1, rel=1e-3)
    assert tally.areas.scanned_mm2 == pytest.approx(inside_mm2, rel=1e-6)
    assert inside_mm2 < 0.15
    assert tally.classes[0].per_mm2 == pytest.approx(3 / inside_mm2)
    assert not tally.areas.is_all_scanned


def test_tissue_is_measured_in_the_scanned_part(masks: SlideMasks) -> None:
    areas = masks.areas(box(500, 100, 900, 500))

    assert areas.is_all_scanned
    assert areas.scanned_mm2 == pytest.approx(400 * 400 * MM2_PER_PX0)
    assert areas.tissue_mm2 == pytest.approx(100 * 400 * MM2_PER_PX0, rel=5e-3)


def test_an_area_beyond_the_slide_has_nothing_scanned(masks: SlideMasks) -> None:
    areas = masks.areas(box(WIDTH_PX0 + 10, 0, WIDTH_PX0 + 50, 40))
    assert (areas.scanned_mm2, areas.tissue_mm2) == (0, 0)
    assert areas.area_mm2 == pytest.approx(1600 * MM2_PER_PX0)


def test_damaged_parts_are_not_scanned(tmp_path: Path) -> None:
    reader = StoreReader(make_damaged_project(tmp_path).store_path(SLIDE_ID))
    # Three of the damaged tiles of 256 px: columns 1 and 2 of row 1, column 2 of row 2.
    areas = SlideMasks(reader).areas(box(256, 256, 768, 768))
    assert areas.scanned_mm2 == pytest.approx(256 * 256 * MM2_PER_PX0, rel=5e-3)


def test_holes_of_an_area_do_not_count(masks: SlideMasks) -> None:
    ring = Polygon(box(100, 100, 500, 500).exterior, [box(200, 200, 400, 400).exterior.coords])
    areas = masks.areas(ring)
    assert areas.tissue_mm2 == pytest.approx((160_000 - 40_000) * MM2_PER_PX0, rel=5e-3)


def test_classes_are_counted_apart_with_their_share_and_its_interval(ledger: Ledger, masks: SlideMasks) -> None:
    drawn = count(box(100, 100, 300, 300))
    marks = [mark(drawn, 110 + index, 150) for index in range(30)]
    others = [mark(drawn, 110 + index, 250, "negative") for index in range(10)]
    save(ledger, SLIDE_ID, [drawn, *marks, *others, mark(drawn, 500, 500)], "ada", size_wh_px0=SIZE)

    (tally,) = tally_slide(ledger, SLIDE_ID, masks.areas)

    assert [(row.class_name, row.number) for row in tally.classes] == [("negative", 10), ("positive", 30)]
    assert tally.outside == 1
    positive = tally.classes[1]
    # Wilson's formula, worked out by hand for 30 of 40.
    assert (positive.share_low, positive.share_high) == pytest.approx((0.5981, 0.8581), abs=1e-4)
    rows = list(count_rows(SLIDE_ID, [tally]))
    assert [row["number"] for row in rows] == ["10", "30"]
    assert rows[0]["scanned_mm2"] == "0.01"


def test_several_counts_are_added_up(ledger: Ledger, masks: SlideMasks) -> None:
    one, two, empty = count(box(0, 0, 200, 200)), count(box(400, 0, 600, 200)), count(box(800, 0, 1000, 200))
    save(ledger, SLIDE_ID, [one, two, empty, mark(one, 5, 5), mark(two, 500, 5), mark(two, 510, 5)], "ada")

    tallies = tally_slide(ledger, SLIDE_ID, masks.areas)

    assert [tally.name for tally in tallies] == ["Count 1", "Count 2", "Count 3", "All counts"]
    assert sorted(tally.number for tally in tallies[:3]) == [0, 1, 2]
    assert tallies[-1].number == 3
    assert tallies[-1].areas.scanned_mm2 == pytest.approx(3 * 40_000 * MM2_PER_PX0)
    assert [row["class"] for row in count_rows(SLIDE_ID, tallies) if row["number"] == "0"] == [""]


def test_a_count_is_deleted_and_restored_with_its_marks_and_the_log_verifies(ledger: Ledger) -> None:
    drawn = count(box(0, 0, 200, 200))
    marks = [mark(drawn, 10 * index, 20) for index in range(1, 4)]
    saved = save(ledger, SLIDE_ID, [drawn, *marks], "ada").saved
    save(ledger, SLIDE_ID, [saved[3].draft(is_deleted=True)], "ada")

    (gone,) = save(ledger, SLIDE_ID, [saved[0].draft(is_deleted=True)], "bob").saved
    assert annotations_of(ledger, SLIDE_ID) == []
    save(ledger, SLIDE_ID, [gone.draft(is_deleted=False)], "ada")

    # The mark that was deleted before stays deleted.
    assert {one.annotation_id for one in annotations_of(ledger, SLIDE_ID)} == {one.annotation_id for one in saved[:3]}
    assert not verify_log(ledger.database, PROJECT_LOG).findings


def test_two_people_on_one_count_lose_nothing(ledger: Ledger) -> None:
    drawn = count(box(0, 0, 200, 200))
    save(ledger, SLIDE_ID, [drawn], "ada")
    for index in range(5):
        for actor in ("ada", "bob"):
            save(ledger, SLIDE_ID, [mark(drawn, 10 + index, 20)], actor)
    authors = [one.author for one in annotations_of(ledger, SLIDE_ID, kinds=["mark"])]
    assert (authors.count("ada"), authors.count("bob")) == (5, 5)


@pytest.mark.parametrize(
    ("draft", "says"),
    [
        (Draft(Point(5, 5), "mark", "positive"), "needs the id"),
        (Draft(Point(5, 5), "mark", "positive", parent_id=str(uuid.uuid4())), "was deleted, or is on another slide"),
        (Draft(Point(5, 5), "mark", "positive", parent_id="x"), "not a lower-case UUID"),
        (Draft(Point(5, 5), "point", parent_id=str(uuid.uuid4())), "belongs to no other annotation"),
        (Draft(Point(5, 5), "text"), "needs a text"),
        (Draft(Point(5, 5), "bookmark"), "needs a saved view"),
        (Draft(Point(5, 5), "point", view="at=1"), "cannot have a saved view"),
        (Draft(Point(5, 5), "bookmark", view="x" * 1001), "at most 1000"),
        (Draft(LineString([(0, 0), (5, 5), (9, 0)]), "arrow"), "3 points"),
        (Draft(box(0, 0, 5, 5), "ruler"), "cannot be a Polygon"),
        (Draft(circle(-90_000, 0), "count"), "Was it drawn on another slide?"),
        (Draft(box(WIDTH_PX0 + 9, 0, WIDTH_PX0 + 20, 9), "count"), "Was it drawn on another slide?"),
        (Draft(box(-20, 0, 50, 50), "area"), "Was it drawn on another slide?"),
    ],
)
def test_a_kind_without_what_it_needs_is_refused(ledger: Ledger, draft: Draft, says: str) -> None:
    with pytest.raises(BadAnnotationError, match=says):
        save(ledger, SLIDE_ID, [draft], "ada", size_wh_px0=SIZE)
    assert annotations_of(ledger, SLIDE_ID) == []


def test_a_mark_belongs_to_a_count_and_stays_with_it(ledger: Ledger) -> None:
    first, second, area = count(box(0, 0, 9, 9)), count(box(20, 0, 29, 9)), Draft(box(40, 0, 50, 9), "area")
    save(ledger, SLIDE_ID, [first, second, area], "ada")
    (made,) = save(ledger, SLIDE_ID, [mark(first, 5, 5)], "ada").saved

    with pytest.raises(BadAnnotationError, match="cannot be changed"):
        save(ledger, SLIDE_ID, [made.draft(parent_id=second.annotation_id)], "ada")
    with pytest.raises(BadAnnotationError, match="a mark belongs to a count, and this is one of kind"):
        save(ledger, SLIDE_ID, [mark(area, 45, 5)], "ada")


def test_where_only_own_ones_may_be_changed_others_can_be_answered(ledger: Ledger) -> None:
    (drawn,) = save(ledger, SLIDE_ID, [count(box(0, 0, 50, 50))], "ada", only_own=True).saved
    with pytest.raises(BadAnnotationError, match="drawn by ada"):
        save(ledger, SLIDE_ID, [drawn.draft(is_deleted=True)], "bob", only_own=True)
    reply = Draft(Point(25, 25), "reply", note="I count fewer.", parent_id=drawn.annotation_id)
    own_mark = Draft(Point(5, 5), "mark", "mitosis", parent_id=drawn.annotation_id)
    save(ledger, SLIDE_ID, [reply, own_mark], "bob", only_own=True)
    with pytest.raises(BadAnnotationError, match="bob has counted in it"):
        save(ledger, SLIDE_ID, [drawn.draft(is_deleted=True)], "ada", only_own=True)


def test_the_project_says_whether_others_annotations_may_be_changed(ledger: Ledger, tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert not only_own(project, ledger, SLIDE_ID)
    project.settings_path.write_text('[annotations]\nchange_others = "never"\n')
    assert only_own(project, None, SLIDE_ID)


def test_the_interval_of_a_share_is_wilsons() -> None:
    low, high = wilson_interval(0, 10)
    assert (low, high) == pytest.approx((0, 0.2775), abs=1e-4)
