"""The project's own log is stored among the studies' logs, but is not one of them."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import text

from pipeline.errors import BadManifestError
from pipeline.ledger import PROJECT_LOG, Change, Ledger, log_in_project
from pipeline.study import verify_log


def _looked(name: str) -> Change:
    return Change("ada (web app)", "slide looked at", f"slide {name}", details={"page": "slide"})


def test_what_was_done_is_logged_in_order_and_verifies(ledger: Ledger) -> None:
    for name in ("S-1", "S-2"):
        log_in_project(ledger, [_looked(name)])
    verified = verify_log(ledger.database, PROJECT_LOG)
    assert verified.entries == 3
    assert not verified.findings
    (entry,) = ledger.history(PROJECT_LOG, "slide S-2")
    assert (entry.actor, entry.action) == ("ada (web app)", "slide looked at")


def test_nothing_done_begins_no_log(ledger: Ledger) -> None:
    log_in_project(ledger, [])
    with pytest.raises(BadManifestError):
        verify_log(ledger.database, PROJECT_LOG)


def test_the_log_is_not_among_the_studies(begun: Ledger) -> None:
    log_in_project(begun, [_looked("S-1")])
    assert begun.study_ids() == ["s"]
    assert [row.study_id for row, _ in begun.studies()] == ["s"]
    with pytest.raises(BadManifestError) as raised:
        begun.study("another")
    assert PROJECT_LOG not in str(raised.value)


def test_several_who_begin_it_at_once_write_one_log(ledger: Ledger) -> None:
    starts = threading.Barrier(4)

    def write(name: str) -> None:
        starts.wait()
        log_in_project(ledger, [_looked(name)])

    threads = [threading.Thread(target=write, args=(f"S-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verified = verify_log(ledger.database, PROJECT_LOG)
    assert (verified.entries, verified.findings) == (5, ())


def test_a_log_changed_behind_its_back_is_found(ledger: Ledger) -> None:
    log_in_project(ledger, [_looked("S-1"), _looked("S-2")])
    with ledger.database.write() as connection:
        for trigger in ("audit_no_update", "audit_no_delete"):
            connection.execute(text(f"DROP TRIGGER {trigger}{'' if ledger.database.is_sqlite else ' ON audit'}"))
        connection.execute(text("UPDATE audit SET actor = 'nobody' WHERE seq = 2"))
    assert verify_log(ledger.database, PROJECT_LOG).findings
