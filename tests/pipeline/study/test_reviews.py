"""Views and reviews of slides: one log entry each, on either database, verified and erased."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from shapely import box
from sqlalchemy import text

from pipeline.errors import BadManifestError, ChangedSourceError
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import PROJECT_LOG, slide_subject
from pipeline.review import Draft, save
from pipeline.review.judging.coverage import Coverage, CoverageGrid, Viewing, code_of, grid_for, packed, tissue_cells
from pipeline.review.judging.coverage_store import coverage_of, save_looks
from pipeline.review.judging.hotspots import HotspotKey, hotspot_states, judge_hotspots
from pipeline.review.judging.seen_rule import SeenRule
from pipeline.review.judging.slides import SlideReview, add_review, reviews_of
from pipeline.review.rows.tables import coverage as coverage_table
from pipeline.review.rows.view_context import ViewContext
from pipeline.review.verify import verify_reviews
from pipeline.study.proof.verify import verify_log
from training.foundation.errors import BadRecipeError, UnreadableError

ALONE = ViewContext("S-1", "ada (web app)", "ada (web app)")
READING = ViewContext("S-1", "r1", "r1 (web app)", "s", "r1/1/3")
GRID = CoverageGrid(128.0, 8, 6)
SHA = "ab" * 32
SPOT = HotspotKey("tumour", 480, 864)
RULE = SeenRule()


def look(
    left: float,
    top: float,
    right: float,
    bottom: float,
    um_per_px: float = 1.0,
    seconds: float = 1.0,
    rested_s: float = 1.5,
) -> Viewing:
    return Viewing(((left, top), (right, top), (right, bottom), (left, bottom)), um_per_px, seconds, rested_s)


def screen(
    x: float, y: float, width_px: int, height_px: int, um_per_px: float, degrees: float = 0, mpp0: float = 0.5
) -> Viewing:
    """A screen of so many pixels around a point of the slide."""
    turn = np.exp(1j * np.radians(degrees))
    halves = [complex(across, down) for across, down in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    corners = [
        complex(x, y) + turn * complex(half.real * width_px, half.imag * height_px) * um_per_px / 2 / mpp0
        for half in halves
    ]
    return Viewing(tuple((corner.real, corner.imag) for corner in corners), um_per_px, 2.0, 2.0)


def findings(ledger: Ledger, study_id: str) -> list[str]:
    return [*verify_log(ledger.database, study_id).findings, *verify_reviews(ledger.database, study_id)]


def test_cells_in_view_get_the_finest_magnification_and_the_sum_of_seconds():
    seen = Coverage.empty(GRID, RULE).add_viewings(
        [look(0, 0, 512, 256, 2.0, 1.5), look(256, 0, 512, 256, 0.5, 0.5)], mpp0=1.0, seconds=2.5
    )
    assert (seen.finest_yx[:2, :2] == code_of(2.0)).all()
    assert (seen.finest_yx[:2, 2:4] == code_of(1.0)).all(), "finer than it was scanned shows no more"
    assert (seen.ticks_yx[:2, :4] == [[6, 6, 8, 8]] * 2).all()
    assert not seen.finest_yx[2:].any()
    assert not seen.finest_yx[:, 4:].any()
    assert seen.seconds == 2.5
    tissue = np.zeros((6, 8), bool)
    tissue[:2, :5] = True
    assert seen.share_seen(tissue) == seen.share_seen(tissue, 10) == pytest.approx(0.4)
    assert seen.share_seen(tissue, 5) == pytest.approx(0.8)
    assert seen.share_seen(np.zeros((6, 8), bool), 5) is None


def test_a_turned_screen_shows_what_lies_inside_it_and_a_tiny_one_the_cell_at_its_middle():
    diamond = Viewing(((512, 0), (1024, 384), (512, 768), (0, 384)), 4.0, 1, 1)
    seen = Coverage.empty(GRID, RULE).add_viewings([diamond], mpp0=1.0, seconds=1)
    other_way = replace(diamond, corners_xy0=diamond.corners_xy0[::-1])
    assert (Coverage.empty(GRID, RULE).add_viewings([other_way], mpp0=1.0, seconds=1).finest_yx == seen.finest_yx).all()
    assert not seen.finest_yx[0, 0]
    assert seen.finest_yx[3, 4]
    assert seen.finest_yx[0, 4]
    tiny = Coverage.empty(GRID, RULE).add_viewings([look(130, 130, 140, 140)], mpp0=1.0, seconds=1)
    assert np.argwhere(tiny.finest_yx).tolist() == [[1, 1]]
    outside = Coverage.empty(GRID, RULE).add_viewings(
        [look(-900, -900, -500, -500), look(5e6, 5e6, 6e6, 6e6)], mpp0=1, seconds=1
    )
    assert not outside.finest_yx.any()


def test_the_same_path_covers_the_same_cells_on_a_small_and_on_a_large_screen():
    grid = CoverageGrid(128.0, 23, 17)
    path = [(1500, 1000, 1.0), (2100, 1777, 0.5), (3000, 2900, 0.25), (4444, 1111, 2.0), (2500, 2222, 1.0)]
    seen = [
        Coverage.empty(grid, RULE).add_viewings(
            [screen(*at[:2], *size, at[2], turn) for at in path], mpp0=0.5, seconds=9
        )
        for *size, turn in ((1040, 660, 0), (3500, 1990, 0), (720, 900, 90), (2400, 1300, 37))
    ]
    assert 20 < np.count_nonzero(seen[0].finest_yx) < grid.cells / 2
    for other in seen[1:]:
        np.testing.assert_array_equal(other.finest_yx, seen[0].finest_yx)
        np.testing.assert_array_equal(other.ticks_yx, seen[0].ticks_yx)


def test_an_area_is_seen_only_in_the_field_and_after_the_time_at_rest():
    grid = CoverageGrid(10.0, 200, 150)
    whole = Coverage.empty(grid, RULE).add_viewings([screen(2000, 1500, 1900, 1400, 1.0)], mpp0=0.5, seconds=2)
    rows, columns = np.nonzero(whole.finest_yx)
    distances_um = np.hypot((columns + 0.5) * 10 - 1000, (rows + 0.5) * 10 - 750)
    assert 295 < distances_um.max() <= 300
    assert len(rows) == pytest.approx(np.pi * 30**2, rel=0.01)

    low = Coverage.empty(grid, RULE).add_viewings([screen(2000, 1500, 1900, 200, 1.0)], mpp0=0.5, seconds=2)
    assert np.abs((np.nonzero(low.finest_yx)[0] + 0.5) * 10 - 750).max() < 100, "cut off by a low screen"

    passing = Coverage.empty(GRID, RULE).add_viewings(
        [look(0, 0, 512, 256, rested_s=0.99, seconds=0.9)] * 9, mpp0=1, seconds=9
    )
    assert not passing.finest_yx.any(), "nine short stops are not a long one"
    assert passing.ticks_yx[0, 0] == 36
    patient = SeenRule(seconds=3)
    for rested_s, expected in ((2.9, False), (3.0, True)):
        seen = Coverage.empty(GRID, patient).add_viewings([look(0, 0, 512, 256, rested_s=rested_s)], mpp0=1, seconds=1)
        assert seen.finest_yx.any() == expected


def test_areas_recorded_by_another_rule_do_not_count_and_the_time_stays(begun):
    save_looks(begun, READING, GRID, [look(0, 0, 512, 512)], rule=RULE, mpp0=0.5, seconds=3)
    assert coverage_of(begun, READING, RULE).finest_yx.any()
    other = coverage_of(begun, READING, SeenRule(seconds=2))
    assert (other.finest_yx.any(), other.seconds, other.rule.seconds) == (False, 3, 2)
    on_screen = np.full((GRID.rows, GRID.columns), code_of(0.5), np.uint8)
    with begun.database.write() as connection:  # as stored before there was a rule: every cell on the screen counted
        connection.execute(coverage_table.update().values(finest=packed(on_screen)))
    earlier = coverage_of(begun, READING, RULE)
    assert (earlier.finest_yx.any(), earlier.ticks_yx.any(), earlier.seconds) == (False, False, 3)
    for damaged in (b'{"magnification": 0}\n', b"{", b'{"magnification":10.0,"seconds":1.0,"field_px":600}\nx'):
        with begun.database.write() as connection:
            connection.execute(coverage_table.update().values(finest=damaged))
        with pytest.raises(UnreadableError, match="the stored coverage is damaged"):
            coverage_of(begun, READING, RULE)


def test_cells_of_a_huge_slide_are_wider_and_any_tissue_in_a_cell_counts():
    assert grid_for((46_000, 32_914), 0.25) == CoverageGrid(128.0, 90, 64)
    huge = grid_for((400_000, 400_000), 0.25)
    assert huge.cell_um == 256.0
    assert huge.cells < 250_000
    mask = np.zeros((12, 16), np.uint8)
    mask[5, 3] = 1
    assert np.argwhere(tissue_cells(CoverageGrid(128.0, 8, 6), mask, 64.0)).tolist() == [[2, 1]]


def test_looks_are_added_to_what_is_stored_and_come_back_as_they_were(begun):
    assert coverage_of(begun, READING, RULE) is None
    save_looks(begun, READING, GRID, [look(0, 0, 512, 512, 2.0)], rule=RULE, mpp0=0.5, seconds=3)
    after = save_looks(begun, READING, GRID, [look(256, 0, 512, 256, 0.5)], rule=RULE, mpp0=0.5, seconds=4)
    stored = coverage_of(begun, READING, RULE)
    assert stored is not None
    assert stored.seconds == 7
    assert (stored.finest_yx == after.finest_yx).all()
    assert (stored.ticks_yx == after.ticks_yx).all()
    assert stored.finest_yx[0].tolist()[:3] == [code_of(2.0), code_of(0.5), 0]
    entries = begun.history("s", slide_subject("S-1"))
    assert [entry.action for entry in entries] == ["slide entered", "slide looked at", "slide looked at"]
    assert {entry.actor for entry in entries[1:]} == {"r1 (web app)"}
    assert findings(begun, "s") == []
    with pytest.raises(ChangedSourceError, match="its size has changed"):
        save_looks(begun, READING, CoverageGrid(128.0, 9, 6), [], rule=RULE, mpp0=0.5, seconds=0)
    with pytest.raises(BadRecipeError, match="four corners"):
        save_looks(
            begun, READING, GRID, [replace(look(0, 0, 1, 1), um_per_px=float("nan"))], rule=RULE, mpp0=0.5, seconds=0
        )
    assert coverage_of(begun, READING, RULE).seconds == 7


def test_a_hotspot_is_seen_accepted_and_taken_back_and_the_log_has_every_word(begun):
    for state in ("seen", "accepted", "seen"):
        judge_hotspots(begun, READING, "m-0", SHA, [(SPOT, state)])
    judge_hotspots(begun, ALONE, "m-0", SHA, [(SPOT, "rejected")])
    assert hotspot_states(begun, READING, "m-0", SHA) == {SPOT: "seen"}
    assert hotspot_states(begun, ALONE, "m-0", SHA) == {SPOT: "rejected"}
    assert hotspot_states(begun, READING, "m-0", "cd" * 32) == {}, "predictions made anew are judged anew"
    actions = [entry.action for entry in begun.history("s", slide_subject("S-1"))]
    assert actions[1:] == ["hotspot seen", "hotspot accepted", "hotspot seen"]
    assert [entry.action for entry in begun.history(PROJECT_LOG, slide_subject("S-1"))] == ["hotspot rejected"]
    with pytest.raises(BadRecipeError, match="expected one of seen"):
        judge_hotspots(begun, ALONE, "m-0", SHA, [(SPOT, "maybe")])
    assert findings(begun, "s") == findings(begun, PROJECT_LOG) == []


def test_a_review_is_signed_and_a_second_one_stands_beside_it(begun):
    review = SlideReview("disagree", "Ada", "benign", "crush artefact", "m-0", "tumour", SHA)
    add_review(begun, ALONE, review)
    add_review(begun, ALONE, SlideReview("agree", "Bob"))
    reviews = reviews_of(begun, "S-1")
    assert [(review.verdict, review.name, review.comment) for review in reviews] == [
        ("disagree", "Ada", "crush artefact"),
        ("agree", "Bob", ""),
    ]
    assert reviews[0].person == "ada (web app)"
    (entry, _) = begun.history(PROJECT_LOG, slide_subject("S-1"))
    assert entry.action == "slide reviewed"
    assert "crush artefact" not in entry.details
    for wrong, why in ((replace(review, name=" "), "type your name"), (replace(review, verdict="no"), "choose one of")):
        with pytest.raises(BadManifestError, match=why):
            add_review(begun, ALONE, wrong)
    assert findings(begun, PROJECT_LOG) == []


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE review SET comment = 'fine'", "review of ada .* was changed without an entry"),
        ("DELETE FROM review", "review .* was deleted from the ledger"),
        ("UPDATE hotspot_review SET state = 'accepted'", "hotspot_review of ada .* was changed"),
        ("UPDATE coverage SET seconds = 600", "coverage of ada .* was changed"),
        ("UPDATE coverage SET person = 'bob'", "coverage of bob .* no log entry created it"),
        ("UPDATE annotation SET note = 'benign'", "annotation .* on slide S-1: revision 1 was changed"),
        ("UPDATE annotation SET revision = 7", "annotation .* on slide S-1: revision 7 .* no log entry created it"),
        ("DELETE FROM annotation", "annotation .* was deleted from the ledger"),
    ],
)
def test_what_is_changed_behind_the_logs_back_is_found(begun, statement, finding):
    add_review(begun, ALONE, SlideReview("disagree", "Ada", "benign", "crush artefact"))
    judge_hotspots(begun, ALONE, "m-0", SHA, [(SPOT, "rejected")])
    save_looks(begun, ALONE, GRID, [look(0, 0, 256, 256)], rule=RULE, mpp0=0.5, seconds=3)
    save(begun, ALONE.slide_id, [Draft(box(1, 2, 30, 40), "rectangle")], "ada")
    assert findings(begun, PROJECT_LOG) == []
    with begun.database.write() as connection:
        connection.execute(text(statement))
    finding_text = "\n".join(verify_reviews(begun.database, PROJECT_LOG))
    assert re.search(finding, finding_text), finding_text


def test_a_damaged_grid_is_one_clear_error(begun):
    save_looks(begun, ALONE, GRID, [look(0, 0, 256, 256)], rule=RULE, mpp0=0.5, seconds=3)
    with begun.database.write() as connection:
        connection.execute(text("UPDATE coverage SET columns = 9"))
    with pytest.raises(UnreadableError, match="stored coverage is damaged: 48 bytes, 54"):
        coverage_of(begun, ALONE, RULE)
