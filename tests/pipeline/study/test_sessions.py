"""Sessions and attempts apply to every process that uses the same database."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from pipeline.ledger import PROJECT_LOG, Attempts, Change, Ledger, Sessions, key_of
from pipeline.ledger.attempts import WINDOW_S
from pipeline.ledger.database import Database
from pipeline.study import verify_log


class Clock:
    """Clock that stands still."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def here(ledger: Ledger, clock: Clock) -> Sessions:
    return Sessions(ledger.database, clock=clock)


@pytest.fixture
def elsewhere(url: str, here: Sessions, clock: Clock) -> Iterator[Sessions]:
    """Another process with its own connections."""
    database = Database(url)
    yield Sessions(database, clock=clock)
    database.close()


def test_a_session_made_in_one_process_holds_in_another_and_is_over_in_both(
    here: Sessions, elsewhere: Sessions, clock: Clock
) -> None:
    token = here.make("session", 600, name="ada", stamp="s")
    session = elsewhere.find(key_of(token))
    assert session
    assert (session.name, session.left_s(clock.now)) == ("ada", 600)
    assert elsewhere.revoke(session.key)
    ended = here.find(session.key)
    assert ended
    assert ended.left_s(clock.now) == 0
    assert not here.revoke(session.key)


def test_the_database_does_not_say_the_token(here: Sessions) -> None:
    token = here.make("session", 600, name="ada")
    with here.database.read() as connection:
        rows = connection.execute(text("SELECT * FROM session")).all()
    assert token not in str(rows)


def test_a_link_is_good_once_whoever_comes_first(here: Sessions, elsewhere: Sessions) -> None:
    token = here.make("link", 600)
    starts, spent = threading.Barrier(2), []

    def spend(sessions: Sessions) -> None:
        starts.wait()
        spent.append(sessions.spend(token, "link"))

    threads = [threading.Thread(target=spend, args=(store,)) for store in (here, elsewhere)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [session is None for session in spent].count(False) == 1


def test_a_link_is_no_session_and_a_session_no_link(here: Sessions) -> None:
    assert here.spend(here.make("session", 600), "link") is None
    assert here.spend(here.make("link", 600), "exchange") is None
    assert here.spend("guessed", "link") is None


def test_a_link_that_has_ended_lets_nobody_in(here: Sessions, clock: Clock) -> None:
    token = here.make("link", 600)
    clock.now += 601
    assert here.spend(token, "link") is None


def test_a_sign_in_elsewhere_counts_once(here: Sessions, elsewhere: Sessions) -> None:
    assert here.take("ab" * 32, "provider", 600)
    assert not elsewhere.take("ab" * 32, "provider", 600)


def test_what_ended_a_day_ago_is_forgotten(here: Sessions, clock: Clock) -> None:
    key = key_of(here.make("session", 600))
    clock.now += 600 + 25 * 3600
    here.make("session", 600)
    assert here.find(key) is None


def test_an_unused_session_ends_early_and_a_used_one_goes_on(here: Sessions, clock: Clock) -> None:
    key = key_of(here.make("session", 6000))
    clock.now += 500
    session = here.find(key)
    assert session
    assert session.left_s(clock.now, idle_s=400) == 0
    assert here.see(session).left_s(clock.now, idle_s=400) == 400
    again = here.find(key)
    assert again
    assert again.seen == clock.now


def test_a_session_and_its_entry_in_the_log_are_one(here: Sessions) -> None:
    token = here.make("session", 60, name="ada", changes=[Change("ada (web app)", "signed in", "person ada")])
    here.revoke(key_of(token), [Change("ada (web app)", "signed out", "person ada")])
    verified = verify_log(here.database, PROJECT_LOG)
    assert (verified.entries, verified.findings) == (3, ())


def test_attempts_of_all_processes_are_counted_together(ledger: Ledger, url: str, clock: Clock) -> None:
    other = Database(url)
    tries = [Attempts(database, clock=clock) for database in (ledger.database, other)]
    limits = {"name ada": 4, "from 10.0.0.7": 100}
    assert [tries[turn % 2].take(limits) for turn in range(4)] == [0, 0, 0, 0]
    assert [limiter.take(limits) for limiter in tries] == [WINDOW_S, WINDOW_S]
    assert tries[0].take({"name bob": 4, "from 10.0.0.7": 100}) == 0
    clock.now += WINDOW_S
    assert tries[1].take(limits) == 0
    other.close()


def test_a_success_forgives_the_name_and_itself(ledger: Ledger, clock: Clock) -> None:
    attempts = Attempts(ledger.database, clock=clock)
    limits = {"name ada": 2, "from x": 3}
    for _ in range(10):
        assert attempts.take(limits) == 0
        attempts.forgive(forgotten="name ada", one_less="from x")


def test_many_attempts_at_once_are_counted_one_by_one(ledger: Ledger, clock: Clock) -> None:
    attempts = Attempts(ledger.database, clock=clock)
    allowed: list[float] = []
    threads = [threading.Thread(target=lambda: allowed.append(attempts.take({"name ada": 3}))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allowed.count(0) == 3
