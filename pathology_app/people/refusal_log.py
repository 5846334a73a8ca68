"""Refusals in the project's log: the first of a kind at once, and the number of later ones once a minute, so that a
flood cannot fill the disk."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pipeline.ledger import Change, Ledger, log_in_project
from training.foundation.errors import GemslideError

EVERY_S = 60.0
MAX_KINDS = 100
"""Of entries per minute: further ones are counted together."""
MAX_SHOWN = 5
ACTION = "refused"
_LOG = logging.getLogger(__name__)


@dataclass
class _Counted:
    """Refusals that wait to be logged."""

    number: int = 0
    about: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)

    def add(self, about: str, address: str) -> None:
        self.number += 1
        for text, seen in ((about, self.about), (address, self.addresses)):
            if text and len(seen) < MAX_SHOWN:
                seen.add(text)


class RefusalLog:
    """Logs refusals, from any thread, without waiting.

    Args:
        ledger: where they are logged; None: nowhere, since the project has no ledger and nobody signs in.
    """

    def __init__(
        self,
        ledger: Callable[[], Ledger | None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ledger, self._every_s, self._clock = ledger, every_s, clock
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], _Counted] = {}
        self._logged: dict[tuple[str, str], float] = {}
        self._timer: threading.Timer | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="refusals")

    def note(self, actor: str, kind: str, *, about: str = "", address: str = "") -> None:
        """Count one refusal.

        Args:
            actor: as named in the log.
            kind: one of our own terms.
            about: the requested item, a text that strangers may have written.
        """
        about = "".join(letter if letter.isprintable() else "\ufffd" for letter in about[:120])
        with self._lock:
            now = self._clock()
            self._logged = {key: at for key, at in self._logged.items() if now - at < self._every_s}
            key = (actor, kind)
            if len(self._waiting) >= MAX_KINDS and key not in self._waiting:
                key = ("others (web app)", kind)
            self._waiting.setdefault(key, _Counted()).add(about, address)
            if key not in self._logged and len(self._logged) < MAX_KINDS:
                self._logged[key] = now
                self._submit()
            elif self._timer is None:
                self._timer = threading.Timer(self._every_s, self._tick)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Log the waiting refusals."""
        with self._lock:
            timer, self._timer = self._timer, None
            self._submit()
        if timer is not None:
            timer.cancel()
        self._writer.shutdown(wait=True)

    def written(self) -> None:
        """Wait until everything submitted is written."""
        self._writer.submit(lambda: None).result()

    def _tick(self) -> None:
        with self._lock:
            self._timer = None
            self._submit()

    def _submit(self) -> None:
        waiting, self._waiting = self._waiting, {}
        if waiting:
            self._writer.submit(self._write, waiting)

    def _write(self, waiting: dict[tuple[str, str], _Counted]) -> None:
        changes = [_entry(actor, kind, counted) for (actor, kind), counted in waiting.items()]
        try:
            if ledger := self._ledger():
                log_in_project(ledger, changes)
        except (GemslideError, OSError) as error:
            _LOG.warning("%d refusals could not be logged: %s", len(changes), error)


def _entry(actor: str, kind: str, counted: _Counted) -> Change:
    details: dict[str, object] = {"number": counted.number}
    if counted.about:
        details["about"] = sorted(counted.about)
    if counted.addresses:
        details["from"] = sorted(counted.addresses)
    return Change(actor, ACTION, kind, details=details)
