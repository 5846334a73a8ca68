"""The ledger's database: made once, refused if it would lose data, and never left half-written."""

from __future__ import annotations

import gc
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

import pipeline.review.rows.tables  # noqa: F401 - they belong to the same database
from pipeline.errors import DamagedStoreError
from pipeline.ledger.chain import Change, append
from pipeline.ledger.database import Database, LedgerUnavailableError, NoLedgerError
from pipeline.ledger.file_system import Mount, check_local, file_system_of, mounts
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.tables import metadata
from training.foundation.errors import BadRecipeError, UnreadableError

MOUNTED = [Mount("/", "ext4"), Mount("/data", "nfs4"), Mount("/data/fast", "xfs"), Mount("/lab", "xfs"),
           Mount("/lab", "lustre")]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/a.db", "ext4"), ("/data/a.db", "nfs4"), ("/data/fast/a.db", "xfs"), ("/database/a.db", "ext4"),
     ("/lab/x/y/a.db", "lustre")],
)  # fmt: skip
def test_the_file_system_is_the_one_mounted_nearest_and_last(path, kind):
    assert file_system_of(path, MOUNTED) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "fuse.sshfs", "9p"])
def test_sqlite_on_a_network_file_system_is_refused_with_the_remedy(tmp_path, kind):
    with pytest.raises(BadRecipeError, match=rf"network file system \({kind}\).*local disk.*PostgreSQL"):
        check_local(tmp_path / "a.db", [Mount("/", "ext4"), Mount(str(tmp_path), kind)])


def test_this_machines_mounts_are_read(tmp_path):
    assert file_system_of(tmp_path, mounts())
    check_local(tmp_path / "a.db")


def test_the_migrations_make_the_tables_that_the_code_writes(ledger):
    with ledger.database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_several_processes_make_one_ledger(url):
    program = "import sys; from pipeline.ledger.database import Database; Database(sys.argv[1])"
    processes = [subprocess.Popen([sys.executable, "-c", program, url], stderr=-1, text=True) for _ in range(4)]
    assert [(process.communicate()[1], process.returncode) for process in processes] == [("", 0)] * 4


def test_a_ledger_of_a_later_version_is_refused(ledger, url):
    with ledger.database.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'later'"))
    with pytest.raises(DamagedStoreError, match=r"later gemslide \(revision later\). Update"):
        Database(url)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM alembic_version", "names no revision"),
        ("DROP TABLE alembic_version", "names no revision"),
        ("UPDATE alembic_version SET version_num = '0003'", "the ledger was changed or damaged: .*already exists"),
        ("INSERT INTO alembic_version VALUES ('0003')", "names several revisions"),
    ],
)
def test_a_ledger_whose_revision_was_changed_is_refused_whether_it_is_to_be_made_or_not(ledger, url, statement, words):
    with ledger.database.write() as connection:
        connection.execute(text(statement))
    for make in (True, False):
        with pytest.raises(UnreadableError, match=words):
            Database(url, make=make)


def test_what_raises_within_a_transaction_leaves_nothing(begun):
    before = begun.history("s", "study")

    def append_and_fail() -> None:
        with begun.database.write() as connection:
            append(connection, "s", [Change("ada", "lost", "study")])
            raise KeyError

    with pytest.raises(KeyError):
        append_and_fail()
    assert begun.history("s", "study") == before


@pytest.mark.parametrize("url", ["nonsense", "mysql://x/y", "sqlite://", "sqlite:///:memory:"])
def test_what_is_no_ledgers_url_is_refused_with_the_forms(url):
    with pytest.raises(BadRecipeError, match="postgresql://user@host/database"):
        Database(url)


def test_a_password_is_in_no_message(tmp_path):
    with pytest.raises(UnreadableError) as error:
        Database(f"postgresql://ada:secret@127.0.0.1:1/{tmp_path.name}")
    assert "secret" not in str(error.value)
    assert "cannot be" in str(error.value)


def test_a_server_that_ends_a_connection_is_away_and_one_that_is_there_again_is_used_again(postgres):
    with Ledger(Database(postgres.new_database())) as ledger:
        with pytest.raises(LedgerUnavailableError), ledger.database.write() as connection:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        assert ledger.study_ids() == []
        with postgres.away(), pytest.raises(LedgerUnavailableError):
            ledger.study_ids()
        assert ledger.study_ids() == []


def test_a_server_that_lets_nobody_in_yet_or_any_more_is_away(postgres):
    url = postgres.new_database()
    with Ledger(Database(url)) as ledger:
        try:
            with ledger.database.read() as connection:
                connection.execute(text("SELECT 1"))
                postgres.stop("smart", wait=False)  # while a client is connected, it only refuses new ones
                with pytest.raises(LedgerUnavailableError, match="not answering: the database system is shutting down"):
                    Database(url)
        finally:
            postgres.stop()
            postgres.start()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # pg8000 leaves its socket to the garbage collector
def test_a_connection_that_is_cut_while_it_is_made_is_a_server_that_is_away():
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        cut = thread.submit(accept_and_reset, server)
        with pytest.raises(LedgerUnavailableError, match="connection to the ledger was cut: Connection reset by peer"):
            Database(f"postgresql://ada@127.0.0.1:{server.getsockname()[1]}/x")
        cut.result()
    gc.collect()


def accept_and_reset(server: socket.socket) -> None:
    connection, _ = server.accept()
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_a_database_that_the_server_does_not_have_is_one_clear_error(postgres):
    with pytest.raises(UnreadableError, match='refused the connection: database "none" does not exist') as error:
        Database(postgres.url("none"))
    assert not isinstance(error.value, LedgerUnavailableError)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(UnreadableError, match=r"a\.db"):
        Database(f"sqlite:///{tmp_path}/a.db")


@pytest.mark.parametrize(
    "statement", ["DROP TABLE audit", "ALTER TABLE task RENAME COLUMN measures TO zz", "DELETE FROM alembic_version"]
)
def test_a_ledger_without_a_part_of_it_says_to_restore_a_backup(tmp_path, statement):
    url = f"sqlite:///{tmp_path}/a.db"
    database = Database(url)
    database.close()
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute(statement)

    def read() -> None:
        ledger = Ledger(Database(url))
        ledger.tasks("s", "S-1")
        ledger.history("s", "study")

    with pytest.raises(UnreadableError, match=r"was changed or damaged: .* Restore it from a backup") as error:
        read()
    assert not isinstance(error.value, LedgerUnavailableError)


def test_looking_makes_no_ledger(url):
    with pytest.raises(NoLedgerError, match="there is no ledger"):
        Database(url, make=False)
    Database(url).close()
    database = Database(url, make=False)
    assert database.is_in_place()
    database.close()


def test_looking_makes_no_file_and_no_folder(tmp_path):
    with pytest.raises(NoLedgerError):
        Database(f"sqlite:///{tmp_path}/a/b.db", make=False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_put_in_the_ledgers_place_is_seen(tmp_path):
    database = Database(f"sqlite:///{tmp_path}/a.db")
    shutil.copy(tmp_path / "a.db", tmp_path / "b.db")
    assert database.is_in_place()
    (tmp_path / "b.db").replace(tmp_path / "a.db")
    assert not database.is_in_place()
    (tmp_path / "a.db").unlink()
    assert not database.is_in_place()
    database.close()


def test_a_server_without_the_database_is_said_in_a_sentence(postgres):
    with pytest.raises(UnreadableError, match=r'refused the connection: database "nowhere" does not exist\.$'):
        Database(postgres.url("nowhere"))
