"""Debian's PostgreSQL server, for tests: started on a free port, with its data in a temporary folder."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import create_engine, text

from tests.free_ports import free_ports

START_S = 240
"""Time that a server has to start and recover, on a busy machine."""


class Postgres:
    """One server, in which every test makes its own database.

    Args:
        net: network of several hosts: the server listens on all its addresses, and trusts every client from this net.
        inside: command prefix that runs another command where the server is to run.
    """

    def __init__(self, folder: Path, *, net: str | None = None, inside: Sequence[str] = ()) -> None:
        self.bin = _programs()
        self._data = folder / "data"
        self.folder = folder
        self._inside = list(inside)
        self._listens = "*" if net else "127.0.0.1"
        self._count = 0
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            for parent in [folder, *folder.parents][:4]:
                parent.chmod(parent.stat().st_mode | 0o011)
            shutil.chown(folder, "postgres")
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        (self.port,) = free_ports(1)
        if net:
            with (self._data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {net} trust\n")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses={self._listens} -c unix_socket_directories={self.folder}"
        # Tests kill the server, never the machine: nothing is lost without fsync, and a busy disk delays no recovery.
        options += " -c fsync=off"
        self._run("pg_ctl", "-D", self._data, "-l", self.folder / "log", "-w", "-t", START_S, "-o", options, "start")

    def end(self) -> None:
        """Shut down at once, regardless of connected clients."""
        process = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
        process.send_signal(signal.SIGQUIT)  # PostgreSQL's "immediate"
        process.wait(60)

    def stop(self, mode: str = "fast", *, wait: bool = True) -> None:
        """Shut down in order; `start` reuses its port.

        Args:
            mode: "fast" disconnects clients; "smart" waits for them and admits no others.
        """
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w" if wait else "-W", "stop")

    @contextmanager
    def away(self) -> Iterator[None]:
        """Shut down for the duration of the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def new_database(self) -> str:
        """Create a database and return its URL."""
        self._count += 1
        self.execute("postgres", f"CREATE DATABASE ledger_{self._count}")
        return self.url(f"ledger_{self._count}")

    def url(self, database: str, *, driver: str = "", user: str = "postgres", host: str = "127.0.0.1") -> str:
        return f"postgresql{driver}://{user}@{host}:{self.port}/{database}"

    def set_option(self, name: str, value: str) -> None:
        """Set an option that the server reloads while it runs."""
        self.execute("postgres", f"ALTER SYSTEM SET {name} = '{value}'", "SELECT pg_reload_conf()")

    def execute(self, database: str, *statements: str) -> None:
        """Execute SQL as the superuser."""
        engine = create_engine(self.url(database, driver="+pg8000"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    def give(self, path: Path) -> None:
        """Make the server the owner of a file."""
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, "postgres")

    def _run(self, program: str, *arguments: object) -> None:
        command: Sequence[str] = [str(self.bin / program), *map(str, arguments)]
        if os.geteuid() == 0:
            command = [*self._inside, "runuser", "-u", "postgres", "--", *command]
        output_file = self.folder / "said"
        with output_file.open("wb") as output:  # not a pipe: the server that pg_ctl starts would hold it open
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=self.folder, check=False)
        assert done.returncode == 0, output_file.read_text()


def _programs() -> Path:
    """Folder of the newest PostgreSQL's programs."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs or (os.geteuid() == 0 and "postgres" not in {user.pw_name for user in pwd.getpwall()}):
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    return programs[-1].parent
