"""Quotas on what one person, or one address of strangers, has open at once, so that nobody locks out others.

A holder is a person who has signed in, a browser that was let in by a link or, for strangers, an address.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pathology_app.access.error_response import RefusedError

MAX_PAGES = 200
"""Open pages (WebSockets) in the whole process."""
MAX_PAGES_EACH = 20
"""Per holder."""
MAX_STRANGERS, MAX_STRANGERS_EACH = 20, 4
"""Pages of people who are about to sign in at the provider."""
STRANGER_S = 120.0
"""Seconds that such a page may stay open."""
MAX_REQUESTS_EACH = 32
"""Per holder at once; further ones wait."""
MAX_WAITING_EACH = 400
WAIT_S = 20.0


@dataclass(eq=False)
class Page:
    """An open WebSocket.

    Attributes:
        end: closes it.
    """

    holder: str
    is_stranger: bool
    end: Callable[[], None]


class Pages:
    """Open pages, oldest first."""

    def __init__(self) -> None:
        self._open: dict[Page, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, page: Page, *, has_own_limit: bool = True) -> None:
        """Admit a page. If there are too many, close the oldest page of the holder who has most.

        Args:
            has_own_limit: whether its holder's limit applies; it does not to the one person of an app without sign-in.

        Raises:
            RefusedError: its holder has as many as anybody may have.
        """
        own = self._pages_held_by(page.holder, is_stranger=page.is_stranger)
        alike = [other for other in self._open if other.is_stranger == page.is_stranger]
        if page.is_stranger and len(own) >= MAX_STRANGERS_EACH:
            self._close(own[0])
        elif page.is_stranger and len(alike) >= MAX_STRANGERS:
            self._close(self._pages_of_largest_holder(alike)[0])
        elif not page.is_stranger and has_own_limit and len(own) >= MAX_PAGES_EACH:
            raise RefusedError(503, "too_many", f"You have {MAX_PAGES_EACH} pages open already. Close some.")
        if len(self._open) >= MAX_PAGES:
            most = self._pages_of_largest_holder(list(self._open))
            if len(most) <= len(own) + 1:
                raise RefusedError(503, "too_many", f"{MAX_PAGES} pages are open already. Close some.")
            self._close(most[0])
        self._open[page] = None

    def remove(self, page: Page) -> None:
        self._open.pop(page, None)

    def _close(self, page: Page) -> None:
        self.remove(page)
        page.end()

    def _pages_held_by(self, holder: str, *, is_stranger: bool) -> list[Page]:
        return [page for page in self._open if page.holder == holder and page.is_stranger == is_stranger]

    def _pages_of_largest_holder(self, pages: list[Page]) -> list[Page]:
        """Pages of the holder who has most of them, oldest first."""
        by_holder: dict[str, list[Page]] = {}
        for page in pages:
            by_holder.setdefault(page.holder, []).append(page)
        return max(by_holder.values(), key=len)


class Requests:
    """Requests that are being answered."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._asked: dict[str, int] = {}

    @asynccontextmanager
    async def turn(self, holder: str) -> AsyncIterator[None]:
        """Wait until few enough of a holder's requests are being answered.

        Raises:
            RefusedError: too many are waiting, or this one has waited too long.
        """
        if self._asked.get(holder, 0) >= MAX_REQUESTS_EACH + MAX_WAITING_EACH:
            raise _too_many()
        self._asked[holder] = self._asked.get(holder, 0) + 1
        turns = self._turns.setdefault(holder, asyncio.Semaphore(MAX_REQUESTS_EACH))
        try:
            try:
                async with asyncio.timeout(WAIT_S):
                    await turns.acquire()
            except TimeoutError as error:
                raise _too_many() from error
            try:
                yield
            finally:
                turns.release()
        finally:
            self._asked[holder] -= 1
            if not self._asked[holder]:
                del self._asked[holder], self._turns[holder]


def _too_many() -> RefusedError:
    return RefusedError(503, "too_many", "You have sent too many requests at once. Try again in a moment.")
