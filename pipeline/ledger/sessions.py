"""Sessions of the web app and single-use links, shared by all of its processes through the ledger's database.

Only a token's SHA-256 is kept: nobody can sign in with what the database holds.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, insert, select, update

from pipeline.ledger.attempts import WINDOW_S as WINDOW_S
from pipeline.ledger.attempts import Attempts as Attempts
from pipeline.ledger.chain import Change
from pipeline.ledger.database import Database
from pipeline.ledger.project_log import append_to_project
from pipeline.ledger.tables import session

Kind = Literal["session", "link", "exchange", "provider"]

_KEPT_S = 24 * 3600
"""Time that rows are kept after they end, so that an expired session can be told from a forged one."""
SEEN_AGAIN_S = 60.0
"""Interval at which a session in use is updated."""


@dataclass(frozen=True)
class Session:
    """One row.

    Attributes:
        name: of its owner; None where nobody has a name.
        stamp: state of the account when the session was made; if it has changed since, the session is over.
        made, seen, ends, revoked: seconds since 1970.
    """

    key: str
    kind: Kind
    name: str | None
    stamp: str | None
    made: float
    seen: float
    ends: float
    revoked: float | None

    def left_s(self, now: float, *, idle_s: float | None = None) -> float:
        """Seconds until it ends; 0 if it has.

        Args:
            idle_s: how long it may go unused; None: indefinitely.
        """
        if self.revoked is not None:
            return 0.0
        ends = self.ends if idle_s is None else min(self.ends, self.seen + idle_s)
        return max(0.0, ends - now)


class Sessions:
    """All sessions and links of one project.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self.database, self._clock = database, clock

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock()

    def make(
        self,
        kind: Kind,
        life_s: float,
        *,
        name: str | None = None,
        stamp: str | None = None,
        changes: Sequence[Change] = (),
    ) -> str:
        """A new token, valid for `life_s` seconds; its entries in the project's log are in the same transaction."""
        token = new_token()
        self.put(key_of(token), kind, life_s, name=name, stamp=stamp, changes=changes)
        return token

    def put(
        self,
        key: str,
        kind: Kind,
        life_s: float,
        *,
        name: str | None = None,
        stamp: str | None = None,
        changes: Sequence[Change] = (),
    ) -> None:
        """The same for a given key. Raises: SQLAlchemy's IntegrityError if it is there already."""
        row = self._row(key, kind, life_s) | {"name": name, "stamp": stamp}
        with self.database.write() as connection:
            connection.execute(delete(session).where(session.c.ends < row["made"] - _KEPT_S))
            connection.execute(insert(session).values(row))
            append_to_project(connection, changes)

    def take(self, key: str, kind: Kind, life_s: float) -> bool:
        """Store a single-use key; returns whether it was new."""
        with self.database.write() as connection:
            if not self.database.is_sqlite:
                connection.exec_driver_sql("LOCK TABLE session IN SHARE ROW EXCLUSIVE MODE")
            if connection.execute(select(session.c.kind).where(session.c.token_sha256 == key)).first():
                return False
            connection.execute(insert(session).values(self._row(key, kind, life_s)))
            return True

    def _row(self, key: str, kind: Kind, life_s: float) -> dict[str, Any]:
        now = self._clock()
        return {"token_sha256": key, "kind": kind, "made": now, "seen": now, "ends": now + life_s}

    def find(self, key: str) -> Session | None:
        """A session or link by its key, even one that has ended; None if there is none."""
        with self.database.read() as connection:
            row = connection.execute(select(session).where(session.c.token_sha256 == key)).one_or_none()
        return Session(*row) if row else None

    def see(self, found: Session) -> Session:
        """Record now and then that a session is in use."""
        now = self._clock()
        if now - found.seen < SEEN_AGAIN_S:
            return found
        with self.database.write() as connection:
            connection.execute(update(session).where(session.c.token_sha256 == found.key).values(seen=now))
        return Session(**{**vars(found), "seen": now})

    def spend(self, token: str, kind: Kind) -> Session | None:
        """Use up a single-use token; from then on it is invalid in every process.

        Returns:
            Its session; None for a token that was spent, has ended, or is not of this kind.
        """
        key, now = key_of(token), self._clock()
        chosen = (session.c.token_sha256 == key, session.c.kind == kind)
        unspent = update(session).where(*chosen, session.c.revoked.is_(None), session.c.ends > now).values(revoked=now)
        with self.database.write() as connection:
            if connection.execute(unspent).rowcount != 1:
                return None
            row = connection.execute(select(session).where(*chosen)).one()
        return Session(*row)

    def revoke(self, key: str, changes: Sequence[Change] = ()) -> bool:
        """Revoke a session; returns whether it was not revoked before."""
        living = update(session).where(session.c.token_sha256 == key, session.c.revoked.is_(None))
        with self.database.write() as connection:
            if connection.execute(living.values(revoked=self._clock())).rowcount != 1:
                return False
            append_to_project(connection, changes)
            return True

    def revoke_nameless(self) -> None:
        """Revoke all links, and all sessions begun by one."""
        now = self._clock()
        living = session.c.name.is_(None) & session.c.revoked.is_(None) & session.c.kind.in_(("session", "link"))
        with self.database.read() as connection:
            if connection.execute(select(session.c.kind).where(living).limit(1)).first() is None:
                return  # nothing is written to a ledger that may be read-only
        with self.database.write() as connection:
            connection.execute(update(session).where(living).values(revoked=now))


def new_token() -> str:
    """256 random bits, as written in a link or a cookie."""
    return secrets.token_urlsafe(32)


def key_of(token: str) -> str:
    """The key by which a token is looked up, so that the time of a look-up reveals nothing about existing tokens."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
