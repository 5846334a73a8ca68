"""Refused requests are logged, and a flood of them takes a few entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pathology_app.people.refusal_log import MAX_KINDS, RefusalLog
from pathology_app.project.ledger import StudyLedger
from pipeline.ledger import PROJECT_LOG, Ledger, LogFilter, open_ledger, project_history
from pipeline.project import Project
from pipeline.study import verify_log


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(Project(tmp_path)) as ledger:
        yield ledger


def logged(ledger: Ledger) -> list[tuple[str, str, dict[str, object]]]:
    rows = project_history(ledger, LogFilter(), newest=1000)
    return [(row.actor, row.subject, json.loads(row.details)) for row in rows if row.action == "refused"]


def test_the_first_is_logged_at_once_and_a_flood_is_one_more_entry(ledger: Ledger) -> None:
    refusals = RefusalLog(lambda: ledger)
    refusals.note("nobody (web app)", "unknown_host", about="/", address="10.0.0.7")
    refusals.written()
    assert logged(ledger) == [("nobody (web app)", "unknown_host", {"number": 1, "about": ["/"], "from": ["10.0.0.7"]})]
    for number in range(10_000):
        refusals.note("nobody (web app)", "unknown_host", about=f"/{number}", address=f"10.0.{number % 250}.7")
    refusals.written()
    assert len(logged(ledger)) == 1
    refusals.close()
    newest = logged(ledger)[0][2]
    assert newest["number"] == 10_000
    assert len(newest["about"]) == len(newest["from"]) == 5  # type: ignore[arg-type]
    assert verify_log(ledger.database, PROJECT_LOG).findings == ()


def test_however_many_there_are_the_entries_are_bounded(ledger: Ledger) -> None:
    refusals = RefusalLog(lambda: ledger)
    for number in range(5 * MAX_KINDS):
        refusals.note(f"person {number}", "forbidden")
    refusals.close()
    entries = logged(ledger)
    assert len(entries) <= 2 * MAX_KINDS + 1
    assert sum(int(str(details["number"])) for _, _, details in entries) == 5 * MAX_KINDS


def test_after_a_while_the_next_is_logged_at_once(ledger: Ledger) -> None:
    now = [0.0]
    refusals = RefusalLog(lambda: ledger, clock=lambda: now[0])
    for _ in range(2):
        refusals.note("ada (web app)", "forbidden")
        refusals.written()
        now[0] += 61
    assert len(logged(ledger)) == 2
    refusals.close()


def test_what_strangers_wrote_is_shortened_and_can_be_printed(ledger: Ledger) -> None:
    refusals = RefusalLog(lambda: ledger)
    refusals.note("nobody (web app)", "not_found", about="/\x1b[2J\n" + "x" * 5000)
    refusals.close()
    (subject,) = logged(ledger)[0][2]["about"]  # type: ignore[misc]
    assert len(subject) == 120
    assert subject.isprintable()


def test_without_a_ledger_none_is_made(tmp_path: Path) -> None:
    refusals = RefusalLog(StudyLedger(Project(tmp_path)).ledger)
    refusals.note("nobody (web app)", "unknown_host")
    refusals.close()
    assert list(tmp_path.iterdir()) == []
