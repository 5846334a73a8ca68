"""The database's own guards of the log: triggers that refuse to change or delete entries. Verifying a log does not need
them, but whoever removed them meant to change it, or left the way open to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

from pipeline.ledger.chain import ERASABLE, HASHED
from pipeline.ledger.database import Database

_IS_ERASURE = " AND ".join(
    [f"NEW.{name} IS OLD.{name}" for name in (*HASHED, "hash")] + [f"NEW.{name} IS NULL" for name in ERASABLE]
)
_REFUSE = "BEGIN SELECT RAISE(ABORT, 'the log of a study is only added to'); END"
_SQLITE: Mapping[str, Any] = {
    "audit_no_update": f"CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit WHEN NOT ({_IS_ERASURE}) {_REFUSE}",
    "audit_no_delete": f"CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit {_REFUSE}",
}
_BODY = "BEGIN RAISE EXCEPTION 'the log of a study is only added to'; END"
_POSTGRES: Mapping[str, Any] = {"audit_no_update": (19, _BODY), "audit_no_delete": (42, _BODY)}
"""The server's code for the trigger's events, and the body of its function."""
_ASK_POSTGRES = text(
    "SELECT tgname, tgtype, btrim(prosrc) FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid "
    "WHERE tgrelid = 'audit'::regclass AND NOT tgisinternal AND tgenabled IN ('O', 'A')"
)


def missing_guards(database: Database) -> list[str]:
    """Findings on triggers that are missing, switched off or not as gemslide made them, and on foreign ones."""
    with database.read() as connection:
        present, expected = (_in_sqlite(connection), _SQLITE) if database.is_sqlite else (_on(connection), _POSTGRES)
    findings = [
        f"trigger {name}: {'was changed' if name in present else 'was removed or switched off'}, so that the database "
        "no longer refuses to change entries of the log"
        for name in expected
        if present.get(name) != expected[name]
    ]
    strange = sorted(present.keys() - expected.keys())
    return findings + [f"trigger {name!s:.64}: was added to the ledger, and not by gemslide" for name in strange]


def _in_sqlite(connection: Connection) -> dict[str, Any]:
    rows = connection.execute(text("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    return {str(name): sql for name, sql in rows}


def _on(connection: Connection) -> dict[str, Any]:
    return {name: (kind, body) for name, kind, body in connection.execute(_ASK_POSTGRES)}
