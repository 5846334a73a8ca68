"""A connection to the ledger's server that is cut at any moment is named as that, and the next one works."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import text

from pipeline.ledger.database import Database, LedgerUnavailableError
from tests.postgres import Postgres


class Line:
    """A way to the server that is cut once, at a chosen message of the client's or at the answer to it."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._left: int | None = None
        self._lose_answer = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_at(self, message: int, *, lose_answer: bool) -> None:
        """Cut the line at the client's `message`-th message from now on; `lose_answer`: once the server has it."""
        self._left, self._lose_answer = message, lose_answer

    @property
    def was_cut(self) -> bool:
        return self._left is not None and self._left < 0

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the test has ended
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
            threading.Thread(target=self._to_client, args=(server, client), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        while data := _received(client):
            cut = self._left == 0
            if self._left is not None:
                self._left -= 1
            if cut and self._lose_answer:
                client.shutdown(socket.SHUT_RDWR)
                server.sendall(data)
                break
            if cut:
                break
            server.sendall(data)
        _hang_up(client, server)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        while data := _received(server):
            try:
                client.sendall(data)
            except OSError:  # cut
                break
        _hang_up(client, server)


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(65536)
    except OSError:
        return b""


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):  # the other side was faster
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def line_to(port: int) -> Iterator[Line]:
    line = Line(port)
    try:
        yield line
    finally:
        line.close()


@pytest.mark.parametrize("kind", ["read", "write"])
@pytest.mark.parametrize("lose_answer", [False, True])
def test_a_cut_at_any_message_of_a_transaction_is_a_ledger_that_does_not_answer(
    postgres: Postgres, kind: str, lose_answer: bool
) -> None:
    name = postgres.new_database().rsplit("/", 1)[1]
    with line_to(postgres.port) as line:
        database = Database(f"postgresql://postgres@127.0.0.1:{line.port}/{name}?sslmode=disable")
        message, refused = 0, 0
        while True:
            line.cut_at(message, lose_answer=lose_answer)
            refused += is_refused(database, kind)
            if not line.was_cut:
                break
            assert not is_refused(database, "read"), "the next transaction makes a connection of its own"
            message += 1
        assert refused >= 3, "the cuts hit the transaction"
        database.close()


def is_refused(database: Database, kind: str) -> bool:
    """Whether a transaction ends with the one error that a lost connection may raise."""
    try:
        with getattr(database, kind)() as connection:
            assert connection.execute(text("SELECT 7")).scalar_one() == 7
    except LedgerUnavailableError:
        return True
    return False
