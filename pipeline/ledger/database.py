"""The database of a project's ledger: SQLite in a file by default, PostgreSQL by URL. Opens and migrates it, and
writes to it in atomic transactions."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from ssl import SSLError

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from pipeline.errors import DamagedStoreError
from pipeline.ledger.errors import BUSY_S, LedgerFullError, LedgerReadOnlyError, explain_sqlite, trouble_of
from pipeline.ledger.errors import LedgerUnavailableError as LedgerUnavailableError
from pipeline.ledger.file_system import check_local
from pipeline.ledger.postgres import connect_args, set_up
from training.foundation.errors import BadRecipeError, GemslideError, LockedError, UnreadableError

MIGRATIONS = Path(__file__).with_name("migrations")
_MIGRATING = 7_331_017
"""Key of PostgreSQL's advisory lock while tables are created or changed."""
_DAMAGED = ("not a database", "malformed")
"""SQLite's wording for a file that is not, or is no longer, a SQLite database."""
_FULL, _READ_ONLY, _IN_EACH_OTHERS_WAY = "53100", "25006", ("40001", "40P01", "55P03")
_FORBIDDEN, _THERE_ALREADY = "42501", "42P07"
"""SQLSTATEs of an action that a role may not perform, and of a table to be created that exists."""
_AWAY = frozenset({"57P01", "57P02", "57P03", "53300"})
"""SQLSTATEs of a PostgreSQL server that accepts no connections: it is shutting down, has crashed, is starting up, or
has none to spare."""
_REFUSING = ("28", "3D")
"""SQLSTATE prefixes: wrong user or password; no such database."""


class NoLedgerError(UnreadableError):
    """There is no ledger, and none was to be created."""


class Database:
    """Connections to a ledger's database.

    Args:
        url: "sqlite:///path", or "postgresql://user@host/name".
        make: whether to create a ledger if there is none.
        answer_s: how long a server may take to answer a query; None: as long as the network allows.

    Raises:
        BadRecipeError: not a valid URL, or SQLite on a network file system.
        LedgerUnavailableError: the server does not answer. UnreadableError: no database.
        NoLedgerError: there is none, and `make` is false.
        DamagedStoreError: not a ledger, or one from a later version.
    """

    def __init__(self, url: str, *, make: bool = True, answer_s: float | None = None) -> None:
        self.url = _checked(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            path = Path(self.url.database or "")
            if not make and not path.exists():
                raise NoLedgerError(_NONE.format(shown(self.url)))
            check_local(path)
            if not path.exists() and (trouble := trouble_of(path)):
                raise trouble
            path.parent.mkdir(parents=True, exist_ok=True)
        self._engine = _engine(self.url, answer_s)
        try:
            self._migrate(make=make)
        except BaseException:
            self.close()
            raise
        self._file = _file_of(self.url)

    def is_in_place(self) -> bool:
        """Whether the file at the path is still the one that was opened."""
        return self._file == _file_of(self.url)

    def trouble(self) -> str | None:
        """The reason why the ledger cannot be written now, as a sentence; None if none is known."""
        problem = trouble_of(Path(self.url.database or "")) if self.is_sqlite else None
        return str(problem) if problem else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection whose reads all see one consistent snapshot."""
        with _explained(self.url), self._engine.connect() as connection, connection.begin():
            if not self.is_sqlite:
                # Not as an execution option: SQLAlchemy undoes that outside of its error handling, so that a cut
                # there would reach the caller as the driver's own error.
                connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
                # Nobody waits for a reader, so it may be idle for as long as it likes.
                connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction: committed when the block ends, rolled back if it raises."""
        with _explained(self.url), self._engine.connect() as connection:
            if self.is_sqlite:
                connection.info["write"] = True
            with connection.begin():
                yield connection

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        self._engine.dispose()

    def compact(self) -> None:
        """Empty a SQLite ledger's write-ahead log. PostgreSQL's is left to the server's administrator."""
        if self.is_sqlite:
            with _explained(self.url), self._engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _migrate(self, *, make: bool) -> None:
        """Create the tables, or bring them to this version, once."""
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
        script = ScriptDirectory.from_config(config)
        with self.read() as connection:
            applied = self._revision(connection)
        if applied == script.get_current_head():
            return
        if applied is None and not make:
            raise NoLedgerError(_NONE.format(shown(self.url)))
        with self.write() as connection:
            if not self.is_sqlite:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATING})"))
            applied = self._revision(connection)
            if applied == script.get_current_head():
                return
            known = {revision.revision for revision in script.walk_revisions()}
            if applied is not None and applied not in known:
                raise DamagedStoreError(
                    f"{shown(self.url)}: is a ledger from a later gemslide (revision {applied}). Update gemslide."
                )
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _revision(self, connection: Connection) -> str | None:
        """The revision that the ledger says it has; None for a new one."""
        try:
            applied = MigrationContext.configure(connection).get_current_revision()
        except CommandError as error:
            raise UnreadableError(_REVISIONS.format(shown(self.url), "names several revisions")) from error
        if applied is None and inspect(connection).has_table("audit"):
            raise UnreadableError(_REVISIONS.format(shown(self.url), "names no revision, or is gone"))
        return applied


def _file_of(url: URL) -> tuple[int, int] | None:
    """Device and inode of a SQLite file, to notice a replacement; None for a server's database or a missing file."""
    if url.get_backend_name() != "sqlite":
        return None
    try:
        status = Path(url.database or "").stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def shown(url: URL) -> str:
    """Location of a database, for people: a file's path, or a URL without its password."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.render_as_string(hide_password=True)


def _checked(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise BadRecipeError(f"[study] ledger: not a database URL. Write {_FORMS}.") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+pg8000")
    raise BadRecipeError(f"[study] ledger = {shown(parsed)!r}: cannot be used. Write {_FORMS}.")


_REVISIONS = (
    "{}: the ledger was changed or damaged: its table alembic_version {}, although there is a log. Restore it from a "
    "backup."
)
_NONE = "{}: there is no ledger. `gemslide study run` creates one when a study begins."
_FORMS = '"sqlite:////local/path/gemslide.db" or "postgresql://user@host/database"'


def _engine(url: URL, answer_s: float | None) -> Engine:
    if url.get_backend_name() != "sqlite":
        # Otherwise SQLAlchemy logs a traceback when it cannot close a connection that the server has cut.
        logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)
        arguments = connect_args(url) | ({} if answer_s is None else {"timeout": answer_s})
        engine = create_engine(url.set(query={}), connect_args=arguments, pool_pre_ping=True)
        engine.dialect.use_insertmanyvalues_wo_returning = True  # otherwise pg8000 sends many rows one by one
        event.listen(engine, "connect", set_up)
        return engine
    engine = create_engine(url, connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # Left alone, Python's sqlite3 begins transactions itself, and late: two writers would both begin by reading.
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.info.pop("write", False) else "BEGIN")


@contextmanager
def _explained(url: URL) -> Iterator[None]:
    """Turn the database's own errors into ones that say what to do."""
    try:
        yield
    except ConnectionError as error:  # pg8000 lets some of them through unchanged
        raise LedgerUnavailableError(
            f"{shown(url)}: the connection to the ledger was cut: {error.strerror}."
        ) from error
    except (OperationalError, InterfaceError) as error:
        if url.get_backend_name() == "sqlite":
            raise explain_sqlite(Path(url.database or ""), error, _reason(error)) from error
        raise LedgerUnavailableError(
            f"{shown(url)}: the ledger cannot be reached or written: {_reason(error)}."
        ) from error
    except SSLError as error:
        raise UnreadableError(f"{shown(url)}: no encrypted connection to the ledger: {error}.") from error
    except DBAPIError as error:
        if explained := _server_error(url, error):
            raise explained from error
        raise


def _server_error(url: URL, error: DBAPIError) -> GemslideError | None:
    """Explain a database server's own error; None if the defect is ours."""
    where, state = shown(url), _sqlstate(error) or ""
    if state in _AWAY:
        return LedgerUnavailableError(f"{where}: the ledger is not answering: {_reason(error)}.")
    if state == _FULL:
        return LedgerFullError(
            f"{where}: the disk of the ledger's server is full: {_reason(error)}. Free some space; workers wait until "
            "then and continue. Nothing half-written was kept."
        )
    if state == _READ_ONLY:
        return LedgerReadOnlyError(
            f"{where}: the ledger is read-only here: {_reason(error)}. Name a server that can be written to. "
            "Nothing was changed."
        )
    if state in _IN_EACH_OTHERS_WAY:
        return LockedError(f"{where}: another process has written to the same rows. Try again.")
    if state.startswith(_REFUSING):
        return UnreadableError(f"{where}: the server refused the connection: {_reason(error)}.")
    if error.connection_invalidated:
        return LedgerUnavailableError(f"{where}: the connection to the ledger was cut.")
    if any(words in str(error.orig) for words in _DAMAGED):
        return UnreadableError(f"{where}: the ledger cannot be read: {_reason(error)}.")
    if state == _THERE_ALREADY:
        return UnreadableError(
            f"{where}: the ledger was changed or damaged: it has tables of a later revision than it says: "
            f"{_reason(error)}. Restore it from a backup."
        )
    if state == _FORBIDDEN:
        return UnreadableError(
            f"{where}: {url.username} may not do this: {_reason(error)}. If gemslide is newer than the ledger, open "
            "it once as the role that owns its tables (`gemslide study status`)."
        )
    return None


def _reason(error: DBAPIError) -> str:
    message = _server_fields(error).get("M") or (str(error.orig).splitlines()[0] if error.orig else "no reason given")
    return message[:300]


def _sqlstate(error: DBAPIError) -> str | None:
    """PostgreSQL's code for an error; None if it gave none."""
    return _server_fields(error).get("C")


def _server_fields(error: DBAPIError) -> Mapping[str, str]:
    """The fields of a server's message, as pg8000 returns them: C is its code, M its text."""
    arguments = error.orig.args[0] if error.orig and error.orig.args else None
    return arguments if isinstance(arguments, dict) else {}
