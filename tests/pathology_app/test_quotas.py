"""Nobody is locked out by other people's open connections."""

from __future__ import annotations

import asyncio

import pytest

from pathology_app.access import quotas
from pathology_app.access.error_response import RefusedError
from pathology_app.access.quotas import (
    MAX_PAGES,
    MAX_PAGES_EACH,
    MAX_REQUESTS_EACH,
    MAX_STRANGERS,
    MAX_STRANGERS_EACH,
    MAX_WAITING_EACH,
    Page,
    Pages,
    Requests,
)


def opened(pages: Pages, holder: str, closed: list[str], *, stranger: bool = False, own_limit: bool = True) -> None:
    pages.add(Page(holder, stranger, lambda: closed.append(holder)), has_own_limit=own_limit)


def test_one_person_has_so_many_pages_and_the_others_theirs() -> None:
    pages, closed = Pages(), []
    for _ in range(MAX_PAGES_EACH):
        opened(pages, "rita", closed)
    with pytest.raises(RefusedError, match="You have 20 pages open"):
        opened(pages, "rita", closed)
    opened(pages, "bob", closed)
    assert closed == []


def test_a_person_gets_in_where_others_have_filled_the_app() -> None:
    pages, closed = Pages(), []
    for number in range(MAX_PAGES):
        opened(pages, f"person {number // MAX_PAGES_EACH}", closed)
    opened(pages, "ada", closed)
    assert (len(closed), len(pages)) == (1, MAX_PAGES)


def test_strangers_of_one_address_or_of_many_keep_no_other_out() -> None:
    pages, closed = Pages(), []
    for _ in range(200):
        opened(pages, "from 203.0.113.1", closed, stranger=True)
    assert len(pages) == MAX_STRANGERS_EACH
    for number in range(200):
        opened(pages, f"from 198.51.100.{number}", closed, stranger=True)
    assert len(pages) == MAX_STRANGERS
    opened(pages, "from 192.0.2.1", closed, stranger=True)
    assert "from 192.0.2.1" not in closed
    opened(pages, "ada", closed)


def test_requests_of_one_person_wait_for_their_own_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "WAIT_S", 0.05)

    async def ask() -> None:
        requests, ends = Requests(), asyncio.Event()

        async def one(holder: str) -> str:
            try:
                async with requests.turn(holder):
                    await ends.wait()
                return "answered"
            except RefusedError:
                return "refused"

        many = [asyncio.create_task(one("rita")) for _ in range(MAX_REQUESTS_EACH + MAX_WAITING_EACH + 5)]
        await asyncio.sleep(0.2)
        other = asyncio.create_task(one("bob"))
        await asyncio.sleep(0)
        ends.set()
        assert await other == "answered"
        assert (await asyncio.gather(*many)).count("answered") == MAX_REQUESTS_EACH
        assert not requests._turns
        assert await one("rita") == "answered"

    asyncio.run(ask())
