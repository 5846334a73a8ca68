"""Ending a worker from outside: SIGTERM and Ctrl+C stop its work at once, and never a write to the ledger."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShutdownRequest:
    """Whether this worker was asked to end.

    A signal raises KeyboardInterrupt within `stoppable` blocks alone. Anywhere else it waits for the next of them: a
    task that is just being taken or given back would be left in nobody's hands.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        """The first that came."""
        self._is_stoppable = False

    def ask(self, number: int, _: object = None) -> None:
        """Handler of the signals. A second one changes nothing: the first is being obeyed."""
        if self.signal is None:
            self.signal = number
            self.check()

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """A block that may be left at any point. Raises KeyboardInterrupt, at once where the signal came before."""
        self._is_stoppable = True
        try:
            self.check()
            yield
        finally:
            self._is_stoppable = False

    def check(self) -> None:
        if self.signal is not None and self._is_stoppable:
            raise KeyboardInterrupt


@contextmanager
def handle_signals() -> Iterator[ShutdownRequest]:
    """Take SIGTERM and SIGINT, as long as the block lasts; in a thread that cannot, they are left as they are."""
    ending = ShutdownRequest()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return
    previous = [signal.signal(number, ending.ask) for number in _SIGNALS]
    try:
        yield ending
    finally:
        for number, handler in zip(_SIGNALS, previous, strict=True):
            signal.signal(number, handler)


@contextmanager
def restored_signals() -> Iterator[None]:
    """Put back what was to happen at SIGTERM and Ctrl+C, whatever the block made of it."""
    previous = [signal.getsignal(number) for number in _SIGNALS]
    try:
        yield
    finally:
        for number, handler in zip(_SIGNALS, previous, strict=True):
            signal.signal(number, handler)
