"""Authors learn of every change by others to their annotations, on every slide, until they have noted it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shapely.geometry import box
from sqlalchemy import event

from pipeline.ledger import Ledger
from pipeline.review import Draft, changed_by_others, note_changes, save, slides_with_notices
from pipeline.review.annotations import notices


def changed(ledger: Ledger, slide_id: str, number: int = 1) -> list[str]:
    """Ids of rectangles by ada that bob deleted, one after the other."""
    drafts = [Draft(box(10 * n, 10, 10 * n + 8, 20), "rectangle") for n in range(number)]
    save(ledger, slide_id, drafts, "ada")
    for draft in drafts:
        save(ledger, slide_id, [replace(draft, revision=1, is_deleted=True)], "bob")
    return [draft.annotation_id for draft in drafts]


def test_a_change_is_listed_however_many_others_are_noted(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MAX_NOTICES", 3)
    first, *others = changed(ledger, "S-9", 6)
    assert [one.annotation_id for one in changed_by_others(ledger, "S-9", "ada")] == others[:1:-1]
    for slide_id in ("S-1", "S-2", "S-3", "S-4"):
        changed(ledger, slide_id)
    assert slides_with_notices(ledger, "ada") == ["S-1", "S-2", "S-3", "S-4", "S-9"]

    for slide_id in ("S-1", "S-2", "S-3", "S-4"):
        note_changes(ledger, slide_id, "ada", [one.annotation_id for one in changed_by_others(ledger, slide_id, "ada")])
    for annotation_id in reversed(others):
        note_changes(ledger, "S-9", "ada", [annotation_id])
    assert [one.annotation_id for one in changed_by_others(ledger, "S-9", "ada")] == [first]
    assert slides_with_notices(ledger, "ada") == ["S-9"]
    assert slides_with_notices(ledger, "bob") == []


def test_the_slides_of_all_changes_are_found_by_two_queries(ledger: Ledger) -> None:
    for number in range(20):
        changed(ledger, f"S-{number}")
    queries: list[str] = []
    with ledger.database.read() as connection:
        engine = connection.engine
    event.listen(engine, "before_cursor_execute", lambda _c, _k, text, *_: queries.append(text))

    assert len(slides_with_notices(ledger, "ada")) == 20

    asked = [text for text in queries if text.startswith("SELECT annotation") or text.startswith("SELECT audit")]
    assert len(asked) == 2
