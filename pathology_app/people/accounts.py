"""Accounts of people who may sign in, as they are in the file now: every request checks whether it has changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from pathology_app.people.account_file import Account, read_accounts
from training.foundation.errors import GemslideError
from training.foundation.words.names import comparable

Stamp = tuple[int, int, int, int, int] | None


class Accounts:
    """The accounts of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._stamp: Stamp = None
        self._known: Mapping[str, Account] | GemslideError = {}
        self._were_there = False

    @property
    def exist(self) -> bool:
        """Whether people sign in here. Once they did, a missing file lets nobody in, instead of everybody."""
        self._were_there = self._were_there or self.path.exists()
        return self._were_there

    def all(self) -> Mapping[str, Account]:
        """All accounts by name. Raises: as `read_accounts`."""
        with self._lock:
            stamp = _stamp(self.path)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._known = {account.name: account for account in read_accounts(self.path).person}
                except GemslideError as error:
                    self._known = error
            known = self._known
        if isinstance(known, GemslideError):
            raise type(known)(str(known))
        return known

    def find(self, name: str) -> Account | None:
        """The account of a name; None where there is none. Raises: as `read_accounts`."""
        return self.all().get(name)

    def find_by_provider(self, subject: str, email: str | None) -> Account | None:
        """Find the account that a provider means: by its name for the person, else by an address it has verified."""
        known = self.all().values()
        subject, email = comparable(subject), comparable(email or "")
        by_subject = next((account for account in known if account.subject and account.subject == subject), None)
        if by_subject or not email:
            return by_subject
        return next(
            (
                account
                for account in known
                if not account.subject and account.email and account.email.casefold() == email.casefold()
            ),
            None,
        )


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
