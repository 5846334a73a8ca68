"""The project's own log is stored among the studies' logs, but is not one of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from pipeline.errors import BadManifestError
from pipeline.ledger import PROJECT_LOG, Change, Ledger, append, log_in_project
from pipeline.ledger.chain import ERASABLE
from pipeline.ledger.opening import open_ledger
from pipeline.ledger.rows import ENTRIES_ERASED
from pipeline.project import Project
from pipeline.study import verify_log, verify_project_log
from pipeline.study.proof.verify import verify_ledger
from tests.pipeline.study.whole_ledger import behind_its_back
from training.foundation.errors import UnreadableError


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


def empty_entries(ledger: Ledger, study_id: str, *actions: str) -> None:
    """Empty entries as an erasure does, with an entry that claims to have erased them."""
    empty = ", ".join(f"{name} = NULL" for name in ERASABLE)
    with ledger.database.write() as connection:
        for action in actions:
            of = {"study": study_id, "action": action}
            chosen = "WHERE study_id = :study AND action = :action"
            seq = connection.scalar(text(f"SELECT seq FROM audit {chosen}"), of)
            connection.execute(text(f"UPDATE audit SET {empty} {chosen}"), of)
            claim = Change("ada", ENTRIES_ERASED, "study", "17", details={"entries": [[seq, seq]]})
            append(connection, study_id, [claim])


@pytest.mark.parametrize("action", ["study begun", "signed in", "run started", "refused", "annotation class added"])
def test_only_entries_about_slides_can_have_been_erased(begun: Ledger, action: str) -> None:
    if action != "study begun":
        log_in_project(begun, [Change("ada", action, "anything")])
    empty_entries(begun, PROJECT_LOG, action)
    assert f"({action}) was emptied, which an erasure never does" in "\n".join(
        verify_log(begun.database, PROJECT_LOG).findings
    )


@pytest.fixture
def local(tmp_path: Path):
    """A project and its ledger, in a file."""
    project = Project(tmp_path)
    with open_ledger(project) as ledger:
        yield project, ledger


def test_a_log_that_was_deleted_whole_is_missed_wherever_the_project_shows_that_there_was_one(local) -> None:
    project, ledger = local
    with pytest.raises(UnreadableError, match="the log has no entries"):
        verify_project_log(project, ledger)
    (project.root / "studies" / "gone" / "reports").mkdir(parents=True)
    (finding,) = verify_project_log(project, ledger).findings
    assert finding == "the project's log was deleted: there is studies/gone/reports"


def test_a_study_whose_projects_log_was_deleted_does_not_verify(begun: Ledger, tmp_path: Path) -> None:
    assert verify_ledger(begun.database, "s").findings == ()
    with behind_its_back(begun) as connection:
        if begun.database.is_sqlite:
            connection.execute(text("DROP TRIGGER audit_no_delete"))
        for table in ("audit", "study"):
            connection.execute(text(f"DELETE FROM {table} WHERE study_id = '{PROJECT_LOG}'"))
    (finding,) = verify_ledger(begun.database, "s").findings
    assert finding == "study s: is in the ledger, but the project's log has no entry for its start"
    findings = "\n".join(verify_project_log(Project(tmp_path), begun).findings)
    assert "the project's log was deleted: the ledger has 1 row in its table study" in findings


_SWITCH_OFF = {
    "DROP TRIGGER audit_no_update{on}": "trigger audit_no_update: was removed or switched off",
    "DROP TRIGGER audit_no_delete{on}": "trigger audit_no_delete: was removed or switched off",
}


@pytest.mark.parametrize("statement", _SWITCH_OFF)
def test_a_trigger_that_no_longer_guards_the_log_is_found(begun: Ledger, tmp_path: Path, statement: str) -> None:
    assert verify_project_log(Project(tmp_path), begun).findings == ()
    with begun.database.write() as connection:
        connection.execute(text(statement.format(on="" if begun.database.is_sqlite else " ON audit")))
    (finding,) = verify_project_log(Project(tmp_path), begun).findings
    assert finding.startswith(_SWITCH_OFF[statement])


def test_a_trigger_that_was_weakened_or_added_is_found(begun: Ledger, tmp_path: Path) -> None:
    other = "audit_no_delete BEFORE DELETE ON audit WHEN 0 BEGIN SELECT 1; END"
    statements = ["DROP TRIGGER audit_no_delete", f"CREATE TRIGGER {other}"]
    statements.append("CREATE TRIGGER more AFTER INSERT ON task BEGIN UPDATE slide SET site = 'x'; END")
    expected = ["trigger audit_no_delete: was changed", "trigger more: was added to the ledger, and not by gemslide"]
    if not begun.database.is_sqlite:
        statements = ["ALTER TABLE audit DISABLE TRIGGER audit_no_update"]
        expected = ["trigger audit_no_update: was removed or switched off"]
    with begun.database.write() as connection:
        for statement in statements:
            connection.execute(text(statement))
    findings = verify_project_log(Project(tmp_path), begun).findings
    assert [finding[: len(words)] for finding, words in zip(findings, expected, strict=True)] == expected


def test_what_is_erased_is_counted_and_a_deleted_log_ends_with_exit_code_1(local, gemslide) -> None:
    project, ledger = local
    log_in_project(ledger, [_looked("S-1"), Change("ada", "signed in", "person ada")])
    empty_entries(ledger, PROJECT_LOG, "slide looked at")
    done = gemslide("log", "verify", "--project", project.root)
    assert (done.code, "4 entries, 1 of them erased, the last" in done.out) == (0, True)
    with behind_its_back(ledger) as connection:
        connection.execute(text("DROP TRIGGER audit_no_delete"))
        connection.execute(text("DELETE FROM audit"))
        connection.execute(text("DELETE FROM study"))
        connection.execute(text("INSERT INTO annotation_class VALUES ('tumour', 0)"))
    done = gemslide("log", "verify", "--project", project.root)
    assert (done.code, "its table annotation_class" in done.err) == (1, True)
