"""Every task is held by one worker at a time and completed once, whichever worker dies and however clocks step."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from pipeline.ledger.database import Database, LedgerUnavailableError
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import SET_ASIDE, Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import Owner, this_process
from tests.pipeline.study.conftest import STAGES

FAR = Owner("elsewhere", "boot-1", 7, "1")


class Clock:
    """Clock that stands still until it is moved."""

    def __init__(self, at: float = 1e9) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at


def worker(ledger: Ledger, owner: Owner = FAR, **given: object) -> Leases:
    return Leases(ledger, owner, Limits(), actor=f"worker {owner.pid}", **given)  # type: ignore[arg-type]


def slide(ledger: Ledger, slide_id: str):
    return next(row for row in ledger.slides("s") if row.slide_id == slide_id)


def test_a_slide_goes_through_its_stages_and_late_stages_come_first(begun):
    mine = worker(begun)
    taken = []
    lease = mine.take("s")
    while lease:
        taken.append((lease.slide_id, lease.stage))
        counted, lease = mine.finish(lease, Ended("done", output_sha256="ab", source_sha256="cd"), take_next=True)
        assert counted
    assert taken == [(slide_id, stage) for slide_id in ("S-1", "S-2", "S-4") for stage in STAGES]
    counts = begun.counts("s")
    assert counts.is_over
    assert counts.total == 4
    assert (counts.slides["done"], counts.slides["excluded"]) == (3, 1)
    assert slide(begun, "S-1").source_sha256 == "cd"
    assert not verify_log(begun.database, "s").findings


def test_the_urgent_are_taken_first(ledger):
    slides = [NewSlide("a"), NewSlide("b", priority=5), NewSlide("c", priority=9)]
    ledger.begin("s", {}, "0" * 64, slides, STAGES, actor="ada")
    mine = worker(ledger)
    assert [mine.take("s").slide_id for _ in range(3)] == ["c", "b", "a"]
    assert mine.take("s") is None


@pytest.mark.parametrize("state", ["no_tissue", "qc_failed", "refused", "unreadable", "failed"])
def test_what_ends_a_slide_ends_its_later_stages_and_no_other_slide(begun, state):
    mine = worker(begun)
    mine.finish(mine.take("s"), Ended(state, "why", "words for people"))
    assert (slide(begun, "S-1").state, slide(begun, "S-1").code) == (state, "why")
    assert [row.state for row in begun.tasks("s", "S-1")] == ["ended"] * 3
    assert mine.take("s").slide_id == "S-2"
    assert not verify_log(begun.database, "s").findings


def test_what_may_heal_is_tried_again_later_and_set_aside_in_the_end(begun):
    wall = Clock()
    mine = worker(begun, wall=wall)
    waits = []
    for attempt in range(3):
        lease = mine.take("s")
        assert (lease.slide_id, lease.attempts) == ("S-1", attempt + 1)
        mine.finish(lease, Ended("again", "disk_full", "no space"))
        began = wall.at
        while attempt < 2 and (other := mine.take("s")):  # all other tasks are held, until S-1 is due
            if other.slide_id == "S-1":
                mine.finish(other, Ended("again", "x"))
        if attempt < 2:
            while begun.tasks("s", "S-1")[0].not_before > wall.at:
                wall.at += 1
            waits.append(wall.at - began)
    assert waits == [5, 10]
    assert (slide(begun, "S-1").state, slide(begun, "S-1").code) == ("failed", SET_ASIDE)
    assert "after 3 attempts; the last: no space" in slide(begun, "S-1").message


@pytest.mark.parametrize("step", [-1e6, 1e6])
def test_a_clock_that_steps_makes_nothing_wait_for_ever(begun, step):
    wall = Clock()
    mine = worker(begun, wall=wall)
    for _ in range(3):
        lease = mine.take("s")
        mine.finish(lease, Ended("again", "locked"))
    assert mine.take("s") is None
    wall.at += step
    assert mine.take("s") is not None


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_steps_makes_nothing_wait_that_may_be_tried_often(begun, step):
    wall = Clock()
    mine = Leases(begun, FAR, Limits(max_attempts=100), actor="worker", wall=wall)
    for _ in range(3):
        lease = mine.take("s")
        mine.finish(lease, Ended("again", "locked"))
    wall.at += step
    assert mine.take("s") is not None


def test_nothing_waits_for_longer_than_an_hour():
    limits = Limits(max_attempts=100, backoff_s=5)
    assert [limits.wait_s(attempts) for attempts in (1, 2, 3, 10, 11, 100)] == [5, 10, 20, 2560, 3600, 3600]
    assert [Limits(backoff_s=seconds).wait_s(50) for seconds in (0, 7200)] == [0, 7200]


def test_a_lease_lapses_when_its_owner_was_silent_for_long_by_the_watchers_own_clock(begun):
    silent, watcher = worker(begun, replace(FAR, pid=1)), worker(begun, FAR, clock=(clock := Clock(50.0)))
    lease = silent.take("s")
    assert watcher.steal("s") == 0
    clock.at += 29
    assert silent.beat(lease)
    assert watcher.steal("s") == 0
    clock.at += 29
    assert watcher.steal("s") == 0, "it beat 29 s ago"
    clock.at += 2
    assert watcher.steal("s") == 1
    assert not silent.beat(lease)


def test_while_the_database_is_away_nobody_is_silent(postgres):
    with Ledger(Database(postgres.new_database())) as ledger:
        ledger.begin("s", {}, "0" * 64, [NewSlide("S-1")], STAGES, actor="ada")
        cut_off, watcher = worker(ledger, replace(FAR, pid=1)), worker(ledger, FAR, clock=(clock := Clock()))
        lease = cut_off.take("s")
        assert watcher.steal("s") == 0
        clock.at += 60
        with postgres.away(), pytest.raises(LedgerUnavailableError):
            watcher.steal("s")
        clock.at += 1
        assert watcher.steal("s") == 0, "nobody could beat"
        assert cut_off.beat(lease)
        clock.at += 31
        assert watcher.steal("s") == 0, "it beat meanwhile"
        clock.at += 31
        assert watcher.steal("s") == 1


def test_who_comes_back_late_is_refused_and_the_log_says_so(begun):
    late, thief = (
        worker(begun, replace(FAR, pid=1)),
        worker(begun, FAR, clock=(clock := Clock()), wall=(wall := Clock())),
    )
    lease = late.take("s")
    thief.steal("s")
    clock.at += 31
    assert thief.steal("s") == 1
    wall.at += 3600
    stolen = thief.take("s")
    assert (stolen.slide_id, stolen.token) == (lease.slide_id, lease.token + 1)
    assert late.finish(lease, Ended("done", output_sha256="late"))[0] is False
    assert thief.finish(stolen, Ended("done", output_sha256="good"))[0] is True
    assert late.finish(lease, Ended("unreadable"))[0] is False
    assert begun.tasks("s", "S-1")[0].output_sha256 == "good"
    actions = [entry.action for entry in begun.history("s", "task S-1/ingest")]
    assert actions == [
        "task taken", "lease lapsed", "task taken", "late result refused", "task done", "late result refused",
    ]  # fmt: skip
    assert not verify_log(begun.database, "s").findings


def test_a_worker_killed_on_this_machine_is_seen_at_once(begun):
    program = "from pipeline.study.work.owner import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as process:
        owner = Owner.parse(process.stdout.readline().strip())
        worker(begun, owner).take("s")
        watcher = worker(begun)
        assert watcher.steal("s") == 0
        process.kill()
        process.wait()
        assert watcher.steal("s") == 1


def test_a_process_with_a_dead_ones_number_is_not_taken_for_it():
    mine = this_process()
    assert not mine.is_gone()
    assert replace(mine, began="1").is_gone()
    assert not replace(mine, began="1", space="another container").is_gone()
    assert Owner.parse(str(mine)) == mine
    assert Owner.parse("nonsense") is None


def test_a_paused_study_gives_no_tasks_and_what_is_held_is_finished(begun):
    mine = worker(begun)
    lease = mine.take("s")
    assert begun.set_state("s", "paused", actor="ada", why="scanner recalled")
    assert not begun.set_state("s", "paused", actor="ada", why="x")
    assert mine.finish(lease, Ended("done"), take_next=True) == (True, None)
    assert begun.set_state("s", "running", actor="ada", why="x")
    assert mine.take("s").slide_id == "S-1"
    assert Counter(entry.why for entry in begun.history("s", "study")) == {"": 1, "scanner recalled": 1, "x": 1}
    assert not verify_log(begun.database, "s").findings
