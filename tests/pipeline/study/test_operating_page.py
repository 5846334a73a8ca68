"""The operator's guide is correct: its commands run, its roles have just the rights they need, its back-ups restore."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from typer.main import get_command

from pipeline.cli import cli
from pipeline.ledger import PROJECT_LOG, Attempts, Change, Sessions, key_of
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.settings.config import load_settings
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from tests.postgres import Postgres
from training.foundation.errors import UnreadableError

PAGE = (Path(__file__).parents[3] / "docs/how_to/operating.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SLIDES = [NewSlide("S-1"), NewSlide("S-2")]


def block(language: str, word: str) -> str:
    """The only block of a language that contains a word."""
    (matching_block,) = [content for kind, content in BLOCKS if kind == language and word in content]
    return matching_block


def begin_and_work(coordinator: Ledger, worker: Ledger) -> Leases:
    """Begin a study of two slides, one of which is done and the other held."""
    coordinator.begin("s", {"question": "?"}, "0" * 64, SLIDES, ("ingest",), actor="ada")
    leases = Leases(worker, this_process(), Limits(), actor="worker")
    lease = leases.take("s")
    assert lease
    assert leases.beat(lease)
    assert leases.finish(lease, Ended("done", output_sha256="ab"), take_next=True)[1]
    return leases


def run(script: str, **names: str) -> None:
    given = {**os.environ, **names}
    done = subprocess.run(["bash", "-euc", script], env=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def test_every_command_is_one_that_there_is():
    lines = [line for kind, written in BLOCKS if not kind for line in written.splitlines()]
    commands = [shlex.split(line.partition("  #")[0]) for line in lines if line.startswith("gemslide")]
    assert len(commands) > 10
    for _, *words in commands:
        command = get_command(cli)
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, words


def test_the_settings_are_settings(tmp_path):
    (tmp_path / "gemslide.toml").write_text(block("toml", "[study.slurm]"))
    assert load_settings(tmp_path / "gemslide.toml").study.slurm.extra == ("--qos=long", "--constraint=a100")


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 is not installed (Debian's package sqlite3)")
def test_a_sqlite_ledger_is_backed_up_while_workers_write_and_restored(tmp_path):
    project, backup = tmp_path / "study", tmp_path / "backup"
    backup.mkdir()
    url = f"sqlite:///{project}/gemslide.db"

    def on_this_machine(script: str) -> str:
        return script.replace("/data/study", str(project)).replace("/backup", str(backup))

    ledger = Ledger(Database(url))
    leases = begin_and_work(ledger, ledger)
    assert (project / "gemslide.db-wal").stat().st_size  # would be missing from a copy of the file alone
    before = verify_log(ledger.database, "s")
    run(on_this_machine(block("sh", ".backup")))
    leases.steal("s")
    ledger.set_state("s", "paused", actor="ada", why="x")
    ledger.database.close()
    (project / "gemslide.db").write_bytes(b"lost")
    (project / "gemslide.db-wal").write_bytes(b"of another")
    run(on_this_machine(block("sh", "rm -f")))
    with Ledger(Database(url)) as restored:
        assert verify_log(restored.database, "s") == before
        assert restored.study("s").state == "running"


@pytest.fixture
def roles(postgres: Postgres) -> Iterator[dict[str, Database]]:
    """Database of the page, opened by each of its roles; the owner made the tables."""
    drop = ["DROP DATABASE IF EXISTS gemslide", "DROP DATABASE IF EXISTS restored"]
    names = ("owner", "coordinator", "worker", "viewer")
    drop += [f"DROP ROLE IF EXISTS gemslide_{name}" for name in names]
    postgres.execute("postgres", *drop)
    postgres.execute("postgres", *statements(block("sql", "CREATE ROLE")))
    opened = {}
    with pytest.raises(UnreadableError, match=r"gemslide_coordinator may not do this.*role that owns its tables"):
        Database(postgres.url("gemslide", user="gemslide_coordinator"))
    for name in names:
        opened[name] = Database(postgres.url("gemslide", user=f"gemslide_{name}"))
        if name == "owner":
            with opened[name].write() as connection:
                for statement in statements(block("sql", "GRANT SELECT")):
                    connection.execute(text(statement))
    yield opened
    for database in opened.values():
        database.close()
    postgres.execute("postgres", *drop)


def statements(sql: str) -> list[str]:
    return [statement.strip() for statement in sql.split(";") if statement.strip()]


CHANGE_THE_LOG = (
    "UPDATE audit SET why = 'nothing'", "DELETE FROM audit", "TRUNCATE audit", "ALTER TABLE audit DISABLE TRIGGER ALL",
    "DROP TRIGGER audit_no_update ON audit",
)  # fmt: skip
FORBIDDEN = {
    "worker": [
        *CHANGE_THE_LOG, "UPDATE study SET protocol = '{}'", "DELETE FROM task", "DELETE FROM slide",
        "INSERT INTO slide SELECT * FROM slide", "INSERT INTO answer SELECT * FROM answer", "CREATE TABLE x (y int)",
        "SELECT * FROM session", "DELETE FROM attempt",
    ],
    "coordinator": [*CHANGE_THE_LOG, "UPDATE alembic_version SET version_num = 'x'", "CREATE TABLE x (y int)"],
    "viewer": [
        "UPDATE task SET state = 'ready'", "INSERT INTO audit SELECT * FROM audit", "DELETE FROM answer",
        "SELECT token_sha256 FROM session", "UPDATE session SET revoked = NULL",
    ],
}  # fmt: skip


def test_each_role_may_do_what_it_must_and_no_more(roles, postgres, tmp_path):
    begin_and_work(Ledger(roles["coordinator"]), Ledger(roles["worker"]))
    assert Ledger(roles["coordinator"]).set_state("s", "paused", actor="ada", why="x")
    sessions, attempts = Sessions(roles["coordinator"]), Attempts(roles["coordinator"])
    assert attempts.take({"name ada": 3}) == 0
    token = sessions.make("session", 60, name="ada", changes=[Change("ada (web app)", "signed in", "person ada")])
    assert sessions.revoke(key_of(token))
    assert verify_log(roles["viewer"], PROJECT_LOG).findings == ()
    assert verify_log(roles["viewer"], "s").findings == ()
    assert Ledger(roles["viewer"]).counts("s").slides["done"] == 1
    for name, forbidden in FORBIDDEN.items():
        for statement in forbidden:
            with pytest.raises((DBAPIError, UnreadableError), match=r"may not do this|only added to"):
                attempt(roles[name], statement)
    assert verify_log(roles["viewer"], "s").findings == ()

    before = verify_log(roles["owner"], "s")
    postgres.execute("postgres", "CREATE DATABASE restored OWNER gemslide_owner")
    names = {"LEDGER": postgres.url("gemslide"), "RESTORED": postgres.url("restored", user="gemslide_owner")}
    names["PATH"] = f"{postgres.bin}{os.pathsep}{os.environ['PATH']}"
    for written in (block("sh", "pg_dump"), block("sh", "pg_restore")):
        run(written.replace("/backup", str(tmp_path)), **names)
    restored = Database(postgres.url("restored", user="gemslide_owner"))
    assert verify_log(restored, "s") == before
    with pytest.raises(DBAPIError, match="only added to"):
        attempt(restored, "UPDATE audit SET why = 'nothing'")
    restored.close()


def attempt(database: Database, statement: str) -> None:
    with database.write() as connection:
        connection.execute(text(statement))
