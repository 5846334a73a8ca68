"""Slides are retried by name, state or code; and only once, however many people request it at a time."""

from __future__ import annotations

import threading

import pytest

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import NewSlide
from pipeline.study.outcomes.retries import retry
from pipeline.study.outcomes.search import NO_CODE
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process


@pytest.fixture
def failed(ledger):
    """Study with nine refused slides, six as locked and three without a code; one is done."""
    names = [f"S-{number:02}" for number in range(10)]
    ledger.begin("s", {}, "0" * 64, [NewSlide(name) for name in names], ("ingest",), actor="ada")
    mine = Leases(ledger, this_process(), Limits(), actor="worker")
    for number in range(9):
        mine.finish(mine.take("s"), Ended("refused", "locked" if number < 6 else None))
    mine.finish(mine.take("s"), Ended("done"))
    return ledger


@pytest.mark.parametrize(("code", "number"), [(None, 9), ("locked", 6), (NO_CODE, 3), ("disk_full", 0)])
def test_all_of_a_state_or_of_a_code_go_on(failed, code, number):
    retried = retry(failed, "s", [], "refused", actor="ada", why="lock is gone", code=code)
    assert len(retried) == number
    assert failed.counts("s").slides["pending"] == number
    assert not verify_log(failed.database, "s").findings


def test_two_who_retry_at_a_time_retry_each_slide_once(failed):
    """Without a check of the slide in the same transaction, one done in between would never end again."""
    retried: list[list[str]] = []
    together = threading.Barrier(2)

    def ask(actor: str) -> None:
        together.wait()
        retried.append(retry(failed, "s", [], "refused", actor=actor, why="both"))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("ada", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(retried) == 2
    assert sorted(retried[0] + retried[1]) == [f"S-{number:02}" for number in range(9)]
    for number in (0, 8):
        actions = [entry.action for entry in failed.history("s", f"slide S-{number:02}")]
        assert actions.count("slide retried") == 1
    assert not verify_log(failed.database, "s").findings


def test_what_has_not_ended_without_a_result_is_refused(failed):
    retry(failed, "s", ["S-00"], None, actor="ada", why="once")
    for name, message in (("S-00", "has not ended"), ("S-09", "is done"), ("x", "is not in the study")):
        with pytest.raises(BadManifestError, match=f"slide {name}: {message}"):
            retry(failed, "s", [name], None, actor="ada", why="twice")
