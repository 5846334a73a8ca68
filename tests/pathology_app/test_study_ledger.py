"""The ledger is opened once for everybody, queried less often the slower it is, and its errors are cached, too."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pathology_app.people.actors import IncompleteError, actor_text, reason_text
from pathology_app.project.ledger import Remembered, StudyLedger
from pipeline.ledger.opening import actor_here, open_ledger
from pipeline.project import Project
from tests.pathology_app.small_study import STUDY, make_study
from training.foundation.errors import UnreadableError


class Slow:
    """A query with a set duration on its own clock."""

    def __init__(self, takes_s: float) -> None:
        self.now, self.takes_s, self.asked = 0.0, takes_s, 0
        self.error: Exception | None = None

    def clock(self) -> float:
        return self.now

    def ask(self) -> int:
        self.now += self.takes_s
        self.asked += 1
        if self.error:
            raise self.error
        return self.asked


@pytest.mark.parametrize(("takes_s", "rests_s"), [(0.5, 10.0), (0.001, 0.02), (10.0, 30.0)])
def test_an_answer_is_kept_for_twenty_times_what_it_took_and_thirty_seconds_at_most(
    takes_s: float, rests_s: float
) -> None:
    slow = Slow(takes_s)
    remembered = Remembered(slow.ask, clock=slow.clock)
    assert [remembered.get(), remembered.get()] == [1, 1]
    slow.now += rests_s * 0.99
    assert remembered.get() == 1
    slow.now += rests_s * 0.02
    assert remembered.get() == 2
    remembered.forget()
    assert remembered.get() == 3


def test_an_error_is_kept_like_an_answer() -> None:
    slow = Slow(1.0)
    slow.error = UnreadableError("away")
    remembered = Remembered(slow.ask, clock=slow.clock)
    for _ in range(3):
        with pytest.raises(UnreadableError, match=r"^away$"):
            remembered.get()
    assert slow.asked == 1
    slow.error, slow.now = None, slow.now + 21
    assert remembered.get() == 2


def test_a_ledger_is_opened_once_and_closed_whole(tmp_path: Path) -> None:
    make_study(tmp_path)
    shared = StudyLedger(Project(tmp_path))
    ledger = shared.ledger()
    assert ledger is not None
    assert shared.ledger() is ledger
    assert shared.names() == [STUDY]
    assert shared.progress(ledger, STUDY).counts.total == 7
    shared.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gemslide.db"]
    assert shared.names() == [STUDY]
    shared.close()


def test_a_ledger_that_is_made_later_is_found(tmp_path: Path) -> None:
    shared = StudyLedger(Project(tmp_path))
    assert shared.ledger() is None
    open_ledger(Project(tmp_path)).database.close()
    shared.forget()
    shared.close()
    assert shared.ledger() is not None
    shared.close()


def test_a_ledger_that_was_replaced_is_opened_again(tmp_path: Path) -> None:
    make_study(tmp_path)
    shared = StudyLedger(Project(tmp_path))
    before = shared.ledger()
    open_ledger(Project(tmp_path / "other")).database.close()
    for name in ("gemslide.db-wal", "gemslide.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    os.replace(tmp_path / "other" / "gemslide.db", tmp_path / "gemslide.db")
    now = shared.ledger()
    assert now is not None
    assert now is not before
    assert now.study_ids() == []
    shared.close()


def test_who_acts_is_who_typed_a_name_into_the_app_of_a_user() -> None:
    assert actor_text("  Ada   Lovelace ") == f"Ada Lovelace (web app, {actor_here()})"
    assert reason_text(" copied\nagain ") == "copied again"
    assert len(actor_text("x" * 80)) <= 200


@pytest.mark.parametrize("text", ["", "  ", "\n", "a\u202eb", "a\x00b", "x" * 1001])
def test_a_name_or_reason_that_is_none_is_refused(text: str) -> None:
    for check in (actor_text, reason_text):
        with pytest.raises(IncompleteError):
            check(text)
