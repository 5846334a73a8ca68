"""Signing in and out, and the people behind sessions: one object per app, used by the guard, the routes and the
pages."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from pathology_app.people.account_file import Account, account_path
from pathology_app.people.accounts import Accounts
from pathology_app.people.one_time_links import Links
from pathology_app.people.passwords import is_password
from pathology_app.people.person import Person, SignedOutError
from pathology_app.people.provider import Provider, ProviderError, identity_of
from pathology_app.people.refusal_log import RefusalLog
from pathology_app.people.session_cache import SessionCache
from pathology_app.project.ledger import StudyLedger
from pipeline.ledger import Attempts, Change, Ledger, Session, Sessions, key_of
from pipeline.project import Project
from pipeline.settings.config import AppConfig
from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted

BY_NAME, BY_ADDRESS = 10, 50
"""Attempts to sign in within a quarter of an hour (`pipeline.ledger.attempts`)."""
EXCHANGE_S = 60.0
"""Seconds in which a browser back from the provider must fetch its session."""
OPEN = "open"
"""Used in place of a session where nobody signs in."""
NONE = "none"
"""The same where people do, but this one has not."""


class BadSignInError(GemslideError):
    """Name and password do not match; the message does not reveal which of them is wrong."""

    code = "bad_sign_in"


class TooManyAttemptsError(GemslideError):
    """Too many attempts to sign in."""

    code = "too_many_attempts"


@dataclass(frozen=True)
class Visitor:
    """Person behind a valid session.

    Attributes:
        left_s: seconds until it ends, if nothing happens.
    """

    person: Person
    left_s: float


class SignIn:
    """Sign-in of people to one app.

    Args:
        ledger: of the project; created when the first person signs in, not before.
        announce: shows the token of a link to the operator, and nobody else; None: this process issues none.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        ledger: StudyLedger,
        announce: Callable[[str], None] | None,
        *,
        provider: Provider | None = None,
        settings: AppConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.accounts = Accounts(account_path(ledger.project.root))
        self.provider = provider
        self.settings = settings or AppConfig()
        self._study_ledger, self._clock = ledger, clock
        self.session_cache = SessionCache(self._sessions_there, clock=clock)
        self.links = Links(self._sessions, announce)
        self.refusals = RefusalLog(self.ledger_for_log)
        _ALL[self.id] = self

    @property
    def is_by_account(self) -> bool:
        """Whether people sign in under their names. Otherwise they may be asked for a link."""
        return self.provider is not None or self.accounts.exist

    def ledger_for_log(self) -> Ledger | None:
        """The ledger, created where people sign in; elsewhere only if there is one. Raises: as `open_ledger`."""
        return self._study_ledger.made() if self.is_by_account else self._study_ledger.ledger()

    def sign_in(self, name: str, password: str, address: str) -> str:
        """Sign in with a name and its password. Returns the session's token.

        Raises:
            BadSignInError, TooManyAttemptsError: refused. GemslideError: the ledger or the accounts cannot be read.
        """
        ledger, account = self._study_ledger.made(), self.accounts.find(name)
        by_name, by_address = f"name {key_of(name)}", f"from {address:.60}"
        attempts = Attempts(ledger.database, clock=self._clock)
        if wait_s := attempts.take({by_name: BY_NAME, by_address: BY_ADDRESS}):
            self._note_refused("too many attempts to sign in", account, address)
            raise TooManyAttemptsError(f"Too many attempts. Try again in {counted(math.ceil(wait_s / 60), 'minute')}.")
        if not is_password(password, account.password or None if account else None) or account is None:
            self._note_refused("wrong name or password", account, address)
            raise BadSignInError("Name and password do not match.")
        attempts.forgive(forgotten=by_name, one_less=by_address)
        return self._begin(account, "password")

    def exchange(self, claims: Mapping[str, Any]) -> tuple[Account, str]:
        """Exchange a provider's claims for an account and a token that gives the browser its session, once.

        Raises:
            ProviderError: too old, already used, or unknown to this app.
        """
        identity = identity_of(claims, now=self._clock())
        account = self.accounts.find_by_provider(identity.subject, identity.email)
        if account is None:
            self.refusals.note(f"{identity.shown:.120} (provider)", "unknown person")
            raise ProviderError(
                f"{identity.shown} is not known here. Ask the app's operator to add you (`gemslide account add`)."
            )
        sessions = self._sessions()
        if not sessions.take(identity.key, "provider", identity.left_s):
            self.refusals.note(f"{account.name} (web app)", "sign-in used twice")
            raise ProviderError("This sign-in was used already. Sign in again.")
        return account, sessions.make("exchange", EXCHANGE_S, name=account.name, stamp=account.stamp)

    def spend(self, token: str) -> str | None:
        """Exchange the token of a link or an exchange, which is void from then on, for a session's token."""
        sessions = self._sessions_there()
        if sessions is None:  # none was ever issued
            return None
        if self.is_by_account:
            spent = sessions.spend(token, "exchange")
            account = self.accounts.find(spent.name) if spent and spent.name else None
            return self._begin(account, "provider") if account and spent and account.stamp == spent.stamp else None
        spent = sessions.spend(token, "link")
        if spent is None:
            return None
        self.links.offer()
        made: str = sessions.make("session", self.life_s)
        return made

    @property
    def life_s(self) -> float:
        return self.settings.session_hours * 3600

    def sign_out(self, key: str) -> None:
        """End a session, in every process."""
        visitor, sessions = self.visitor(key, active=False), self._sessions_there()
        if sessions and visitor:
            name = visitor.person.name
            changes = [Change(visitor.person.actor, "signed out", person_subject(name))] if name else []
            sessions.revoke(key, changes)
        self.session_cache.forget(key)

    @property
    def project(self) -> Project:
        """The project that people sign in to."""
        return self._study_ledger.project

    def began_s(self, key: str) -> float | None:
        """When a session began, in seconds since 1970; None if there is none. Raises: as `visitor`."""
        session = self.session_cache.find(key, active=False)
        return session.made if session else None

    def visitor(self, key: str, *, active: bool) -> Visitor | None:
        """Find the person behind a session; None if it is no longer valid, or never was.

        Args:
            active: whether the person is doing something now.

        Raises:
            GemslideError: the ledger is unavailable, or the accounts cannot be read.
        """
        return self.visitor_of(self.session_cache.find(key, active=active))

    def visitor_of(self, session: Session | None) -> Visitor | None:
        """The same for a session that was already looked up."""
        if session is None or session.kind != "session":
            return None
        idle_s = self.settings.idle_minutes * 60 if session.name else None
        if not (left_s := session.left_s(self._clock(), idle_s=idle_s)):
            return None
        if not self.is_by_account:
            return Visitor(Person(), left_s) if session.name is None else None
        account = self.accounts.find(session.name) if session.name else None
        return Visitor(account.person, left_s) if account and account.stamp == session.stamp else None

    def revoke_links(self) -> None:
        """Revoke the links of earlier starts and their sessions: a project from somebody else may hold some, too.

        Raises:
            GemslideError: the ledger is unavailable, or cannot be written.
        """
        if sessions := self._sessions_there():
            sessions.revoke_nameless()

    def close(self) -> None:
        """Log the waiting refusals."""
        self.refusals.close()

    def _begin(self, account: Account, by: str) -> str:
        change = Change(account.person.actor, "signed in", person_subject(account.name), details={"by": by})
        whose = {"name": account.name, "stamp": account.stamp}
        token: str = self._sessions().make("session", self.life_s, **whose, changes=[change])
        return token

    def _note_refused(self, kind: str, account: Account | None, address: str) -> None:
        # A password may have been typed as the name: only names that exist get into the log.
        who = f"{account.name}, not signed in" if account else "nobody (web app)"
        self.refusals.note(who, kind, address=address)

    def _sessions(self) -> Sessions:
        return Sessions(self._study_ledger.made().database, clock=self._clock)

    def _sessions_there(self) -> Sessions | None:
        ledger = self._study_ledger.ledger()
        return Sessions(ledger.database, clock=self._clock) if ledger else None


_ALL: WeakValueDictionary[str, SignIn] = WeakValueDictionary()
"""By id: a page's script finds the app that it runs in."""


def person_subject(name: str) -> str:
    """Subject of the log's entries about a person."""
    return f"person {name}"


def visitor_header(sign_in: SignIn, key: str) -> str:
    """Header from the guard to the pages: the app's sign-in, and the request's session."""
    return f"{sign_in.id} {key}"


def current_sign_in(header: str | None) -> tuple[SignIn | None, str]:
    """The app and the session that the guard named; no app where a page has no guard, as in tests."""
    if header is None:
        return None, OPEN
    name, _, key = header.partition(" ")
    return _ALL[name], key


def person_of_session(header: str | None) -> Person:
    """The person behind the session in a header from the guard. Raises: as `current_person`."""
    sign_in, key = current_sign_in(header)
    if sign_in is None or (key == OPEN and not sign_in.is_by_account):
        return Person()
    visitor = sign_in.visitor(key, active=False)
    if visitor is None:
        raise SignedOutError("You are signed out.")
    return visitor.person
