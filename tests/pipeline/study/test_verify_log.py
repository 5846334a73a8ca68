"""Nothing in a study's log or its rows can be changed unnoticed, on either database."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from pipeline.ledger.chain import ERASABLE, FIRST, HASHED, Change, append, hash_of
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.rows import ENTRIES_ERASED, NEVER_ERASED, row_sha256
from pipeline.ledger.tables import metadata
from pipeline.study.proof.actions import CHANGE_ROWS
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from tests.pipeline.study import whole_ledger


@pytest.fixture
def worked(begun: Ledger) -> Ledger:
    """Study with some work done on its slides; its log may be changed, as by the owner of the database."""
    mine = Leases(begun, this_process(), Limits(), actor="worker")
    for state in ("done", "done", "done", "unreadable"):
        mine.finish(mine.take("s"), Ended(state, seconds=1.5))
    assert not verify_log(begun.database, "s").findings
    with begun.database.write() as connection:
        if begun.database.is_sqlite:
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER audit_no_{verb}"))
        else:
            connection.execute(text("ALTER TABLE audit DISABLE TRIGGER ALL"))
    return begun


def tamper(ledger: Ledger, *statements: str) -> None:
    with ledger.database.write() as connection:
        for statement in statements:
            assert connection.execute(text(statement)).rowcount, statement


def log_findings(ledger: Ledger, anchors: dict[int, str] | None = None) -> str:
    return "\n".join(verify_log(ledger.database, "s", anchors).findings)


EDITS = [(name, "'x'") for name in (*HASHED, *ERASABLE) if name not in ("study_id", "seq")]
EDITS += [(name, "NULL") for name in ERASABLE]  # no database allows the others to be empty


@pytest.mark.parametrize(("column", "value"), EDITS)
def test_an_edit_of_any_column_of_an_entry_is_found(worked, column, value):
    tamper(worked, f"UPDATE audit SET {column} = {value} WHERE seq = 9")
    assert "entry 9" in log_findings(worked)
    assert f"was changed: its {'hash' if column in HASHED else 'content'} differs" in log_findings(worked)


def test_an_entry_that_was_emptied_behind_the_log_s_back_is_found(begun):
    empty = ", ".join(f"{name} = NULL" for name in ERASABLE)
    tamper(begun, f"UPDATE audit SET {empty} WHERE seq = 3")  # as the database allows for an erasure
    assert "entry 3 was emptied, but no entry says that it was erased" in log_findings(begun)


@pytest.mark.parametrize("action", sorted(NEVER_ERASED))
def test_an_entry_about_the_study_stays_whole_whatever_claims_to_have_erased_it(begun, action):
    with begun.database.write() as connection:
        append(connection, "s", [Change("ada", action, "study", "why")])
        seq = connection.scalar(text("SELECT max(seq) FROM audit WHERE study_id = 's'"))
        empty = ", ".join(f"{name} = NULL" for name in ERASABLE)
        connection.execute(text(f"UPDATE audit SET {empty} WHERE study_id = 's' AND seq = {seq}"))
        append(connection, "s", [Change("ada", ENTRIES_ERASED, "study", "17", details={"entries": [[seq, seq]]})])

    assert f"entry {seq} ({action}) was emptied, which an erasure never does" in log_findings(begun)


def forge(ledger: Ledger, action: str, subject: str, table: str, key: str, values: str) -> None:
    """Change a row behind the log's back, and append an entry, with true hashes, that is to explain it."""
    source = metadata.tables[table]
    with ledger.database.write() as connection:
        before = dict(connection.execute(text(f"SELECT * FROM {table} WHERE {key}")).mappings().one())
        connection.execute(text(f"UPDATE {table} SET {values} WHERE {key}"))
        after = dict(connection.execute(text(f"SELECT * FROM {table} WHERE {key}")).mappings().one())
        hashes = row_sha256(source, before), row_sha256(source, after)
        append(connection, "s", [Change("mallory", action, subject, "", *hashes)])


OF_STUDY = ("study", "study_id = 's'", "protocol = '{}', protocol_sha256 = 'x'")
OF_SLIDE = ("slide", "slide_id = 'S-2'", "site = 'elsewhere'")


@pytest.mark.parametrize(
    ("action", "subject", "row", "finding"),
    [
        ("study running", "study", OF_STUDY, "changed more than the study's state"),
        (
            "study paused",
            "study",
            (*OF_STUDY[:2], OF_STUDY[2] + ", state = 'paused'"),
            "was changed since it was running",
        ),
        ("study exported", "study", OF_STUDY, "says that it changed a row, which this action never does"),
        ("anything", "study", OF_STUDY, "says that it changed a row, which this action never does"),
        ("report made", "study", OF_STUDY, "is about another subject than a report"),
        ("slide ended", "study", OF_STUDY, "is about another subject than a slide"),
        ("study running", "slide S-2", OF_SLIDE, "is about another subject than a study"),
        ("task done", "slide S-2", OF_SLIDE, "is about another subject than a task"),
        ("slide reviewed", "slide S-2", OF_SLIDE, "says that it changed a row, which this action never does"),
    ],
)
def test_a_forged_entry_explains_no_change_that_its_action_does_not_make(begun, action, subject, row, finding):
    forge(begun, action, subject, *row)
    assert finding in log_findings(begun)


def test_pausing_resuming_and_amending_a_study_is_no_finding(begun):
    for state in ("paused", "running", "paused", "running", "paused"):
        begun.set_state("s", state, actor="ada", why="a reason")
    assert log_findings(begun) == ""


def test_every_action_that_changes_a_row_is_one_that_verify_knows(ledger):
    whole_ledger.fill(ledger)
    with ledger.database.read() as connection:
        chosen = "SELECT DISTINCT action, subject FROM audit WHERE before IS NOT NULL OR after IS NOT NULL"
        seen = connection.execute(text(chosen)).all()
    assert len({action for action, _ in seen}) > 12
    assert {action for action, subject in seen if CHANGE_ROWS.get(action) != subject.split()[0]} == set()


@pytest.mark.parametrize(
    "details", ["no JSON", "[]", '{"tasks": 3}', '{"tasks": []}', '{"tasks": [[1]]}', '{"tasks": ["x"]}', "null"]
)
def test_an_entry_by_which_tasks_came_is_found_however_it_was_edited(worked, details):
    tamper(worked, f"UPDATE audit SET details = '{details}' WHERE seq = 2")
    assert "entry 2 (slide entered, slide S-1) was changed: its content differs" in log_findings(worked)
    assert "task S-1/" in log_findings(worked)


def test_an_entry_that_was_edited_with_its_hash_is_found(worked):
    with worked.database.write() as connection:
        row = dict(connection.execute(text("SELECT * FROM audit WHERE seq = 9")).mappings().one())
        row["actor"] = "mallory"
        connection.execute(text("UPDATE audit SET actor = 'mallory', hash = :h WHERE seq = 9"), {"h": hash_of(row)})
    assert "entry 10 does not follow the entry before it" in log_findings(worked)


@pytest.mark.parametrize(
    ("statements", "finding"),
    [
        (["DELETE FROM audit WHERE seq = 9"], "entries 9 to 9 are missing"),
        (["DELETE FROM audit WHERE seq >= 9"], "the log ends with entry 8"),
        (["DELETE FROM audit"], "the log ends with entry 0"),
        (
            ["UPDATE audit SET seq = -5 WHERE seq = 9", "UPDATE audit SET seq = 9 WHERE seq = 8",
             "UPDATE audit SET seq = 8 WHERE seq = -5"],
            "entry 8",
        ),
        (
            ["INSERT INTO audit SELECT study_id, -1, utc, actor, action, salt, subject, why, NULL, NULL, details, "
             "content, previous, hash FROM audit WHERE seq = 9"],
            "entry -1 was inserted",
        ),
        (["UPDATE slide SET state = 'done' WHERE slide_id = 'S-2'"], "slide S-2: was changed without an entry"),
        (["UPDATE slide SET source_sha256 = 'x' WHERE slide_id = 'S-4'"], "slide S-4: was changed"),
        (["UPDATE task SET output_sha256 = 'x' WHERE slide_id = 'S-1' AND position = 2"], "task S-1/infer"),
        (["UPDATE task SET state = 'done' WHERE slide_id = 'S-4' AND position = 0"], "task S-4/ingest: was changed"),
        (["UPDATE study SET protocol_sha256 = 'x'"], "study: was changed"),
        (["DELETE FROM task WHERE slide_id = 'S-4'", "DELETE FROM slide WHERE slide_id = 'S-4'"],
         "slide S-4: was deleted"),
        (["UPDATE study SET audit_seq = 5"], "its tail was cut or replaced"),
    ],
)  # fmt: skip
def test_deletion_insertion_reordering_truncation_and_changed_rows_are_found(worked, statements, finding):
    tamper(worked, *statements)
    assert finding in log_findings(worked)


def test_a_log_rewritten_consistently_is_found_by_an_anchor_outside_the_database(worked):
    whole = verify_log(worked.database, "s")
    with worked.database.write() as connection:
        of_study = "WHERE study_id = 's'"
        rows = connection.execute(text(f"SELECT * FROM audit {of_study} ORDER BY seq")).mappings()
        entries = [dict(row) for row in rows]
        connection.execute(text(f"DELETE FROM audit {of_study}"))
        connection.execute(text(f"UPDATE study SET audit_seq = 0, audit_hash = :first {of_study}"), {"first": FIRST})
        names = ("action", "subject", "why", "before", "after")
        rewritten = [
            Change("mallory", **{name: entry[name] for name in names}, details=json.loads(entry["details"]))
            for entry in entries
        ]
        append(connection, "s", rewritten)
    assert log_findings(worked) == ""
    assert "is not the one that was anchored" in log_findings(worked, {whole.entries: whole.head})


def test_a_tail_that_was_cut_with_the_head_is_found_by_an_anchor(worked):
    whole = verify_log(worked.database, "s")
    tamper(
        worked,
        "DELETE FROM audit WHERE seq = (SELECT max(seq) FROM audit)",
        "UPDATE study SET audit_seq = (SELECT max(seq) FROM audit), "
        "audit_hash = (SELECT hash FROM audit WHERE seq = (SELECT max(seq) FROM audit))",
    )
    assert "was anchored, but the log ends with" in log_findings(worked, {whole.entries: whole.head})


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit"])
def test_the_database_itself_refuses_to_change_the_log(begun, statement):
    with pytest.raises(DBAPIError, match="only added to"), begun.database.write() as connection:
        connection.execute(text(statement))
    assert not verify_log(begun.database, "s").findings
