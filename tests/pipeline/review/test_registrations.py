"""Saved registrations: by points, in either direction, each change a revision with an entry in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from pipeline.errors import BadAnnotationError
from pipeline.ledger import PROJECT_LOG, LogFilter, project_history
from pipeline.ledger.ledger import Ledger
from pipeline.registration import Affine
from pipeline.review import (
    Registration,
    SlidePixels,
    describe_error,
    describe_transform,
    register_points,
    registrations_of,
    remove_registration,
    save_registration,
    verify_reviews,
)
from training.foundation.errors import UnreadableError

ONE = SlidePixels("S-1", "a" * 64, (4000, 3000), 0.5)
OTHER = SlidePixels("S-2", "b" * 64, (9000, 7000), 0.25)
BENT = Affine(1.9, -0.4, 300.0, 0.4, 1.9, -50.0)
FOUND = Registration("S-2", "S-1", BENT, "features", 12.5, 80, "b" * 64, "a" * 64, 300, 0.9, 0.95)


def test_the_last_save_counts_whichever_way_it_was_given(ledger: Ledger) -> None:
    assert save_registration(ledger, FOUND, "ada").transform.numbers == pytest.approx(BENT.numbers)
    again = save_registration(ledger, replace(FOUND.inverse(), error_um=9.0), "bob")
    assert (again.moving_id, again.revision, again.person) == ("S-1", 2, "bob")
    [saved] = registrations_of(ledger)
    assert (saved.moving_id, saved.fixed_id, saved.error_um) == ("S-1", "S-2", 9.0)
    assert saved.inverse().transform.numbers == pytest.approx(BENT.numbers)
    assert verify_reviews(ledger.database, PROJECT_LOG) == []


def test_only_pairs_among_the_named_slides_are_found_and_a_removed_one_is_not(ledger: Ledger) -> None:
    save_registration(ledger, FOUND, "ada")
    save_registration(ledger, replace(FOUND, fixed_id="S-3"), "ada")
    assert {given.fixed_id for given in registrations_of(ledger, {"S-2", "S-3"})} == {"S-3"}
    remove_registration(ledger, "S-3", "S-2", "bob")
    assert registrations_of(ledger, {"S-2", "S-3"}) == []
    with pytest.raises(UnreadableError, match="no registration is saved"):
        remove_registration(ledger, "S-3", "S-2", "bob")
    assert save_registration(ledger, replace(FOUND, fixed_id="S-3"), "ada").revision == 3
    assert verify_reviews(ledger.database, PROJECT_LOG) == []


def test_each_change_is_an_entry_that_does_not_name_the_other_slide(ledger: Ledger) -> None:
    save_registration(ledger, FOUND, "ada (web app)")
    remove_registration(ledger, "S-2", "S-1", "ada (web app)")
    entries = project_history(ledger, LogFilter(subject="slide S-2"), newest=5)
    assert [entry.action for entry in entries] == ["registration removed", "slides registered"]
    assert not any("S-1" in entry.details for entry in entries)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE registration SET m13 = m13 + 40", "registration of slides S-1 and S-2, revision 1: was changed"),
        ("DELETE FROM registration", "was deleted from the ledger"),
        ("UPDATE registration SET revision = 7", "is in the ledger, but no log entry created it"),
    ],
)
def test_what_is_changed_behind_the_log_is_found(ledger: Ledger, statement: str, finding: str) -> None:
    save_registration(ledger, FOUND, "ada")
    with ledger.database.write() as connection:
        connection.execute(text(statement))
    assert finding in "\n".join(verify_reviews(ledger.database, PROJECT_LOG))


def test_a_slide_is_not_registered_to_itself(ledger: Ledger) -> None:
    with pytest.raises(BadAnnotationError, match="not registered to itself"):
        save_registration(ledger, replace(FOUND, fixed_id="S-2"), "ada")


def test_a_slide_of_other_pixels_makes_it_outdated() -> None:
    assert not FOUND.is_outdated(OTHER, ONE)
    assert FOUND.is_outdated(OTHER, replace(ONE, sha256="c" * 64))


def test_two_points_turn_and_shift_and_state_by_how_much_they_differ() -> None:
    given = register_points(ONE, OTHER, [((1000, 1000), (4000, 2000)), ((3000, 1000), (4000, 6040))])
    in_um = given.in_um(0.5, 0.25)
    assert (in_um.degrees, in_um.scale) == (pytest.approx(90), pytest.approx(1))
    assert given.error_um == pytest.approx(5, abs=1e-6), "half of 10 µm"
    assert describe_error(given) == "error 5 µm from 2 points"


def test_more_points_give_an_affine_transform_and_the_error_of_one_left_out() -> None:
    places = [(100, 100), (3900, 150), (2000, 2900), (300, 2500), (3500, 2600)]
    pairs = [((x, y), tuple(BENT.moved([(x, y)])[0])) for x, y in places]
    exact = register_points(ONE, OTHER, pairs)
    assert exact.transform.numbers == pytest.approx(BENT.numbers)
    assert exact.error_um == pytest.approx(0, abs=1e-6)
    wrong = [*pairs[:4], (pairs[4][0], (pairs[4][1][0] + 400, pairs[4][1][1]))]
    assert register_points(ONE, OTHER, wrong).error_um > 30
    assert register_points(ONE, OTHER, pairs[:3]).error_um is None
    assert "click one more" in describe_error(register_points(ONE, OTHER, pairs[:3]))


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([((1, 1), (1, 1))], "1 pairs of points; 2 to 50"),
        ([((1, 1), (1, 1))] * 51, "51 pairs"),
        ([((1, 1), (1, 1)), ((float("nan"), 1), (500, 1))], "is not on the slide"),
        ([((1, 1), (1, 1)), ((1e9, 1), (500, 1))], "is not on the slide, which has 4000 × 3000 px"),
        ([((1, 1), (1, 1)), ((5, 1), (800, 1))], "within 2.0 µm of each other"),
        ([((1, 1), (1, 1)), ((500, 500), (900, 900)), ((1000, 1000), (1800, 1800))], "on one line"),
        ([((0, 0), (0, 0)), ((100, 0), (8000, 0)), ((0, 100), (0, 6000))], "change sizes by a factor"),
    ],
)
def test_points_that_cannot_be_meant_are_refused(pairs, message: str) -> None:
    with pytest.raises(BadAnnotationError, match=message):
        register_points(ONE, OTHER, pairs)


def test_a_transform_is_told_in_plain_words() -> None:
    turn = Affine(0.0, 1.02, 1200.0, -1.02, 0.0, -430.0)
    assert describe_transform(turn) == (
        "turned by 90.0° counter-clockwise, enlarged to 102.0%, top left corner shifted by 1.20 mm right and 0.43 mm up"
    )
    assert describe_transform(Affine(-1, 0, 0, 0, 1, 0)).startswith("mirrored left to right, turned by 0.0°,")
