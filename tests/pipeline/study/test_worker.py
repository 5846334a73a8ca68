"""A worker's loop, with work that takes no time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.ledger.errors import LedgerUnavailableError
from pipeline.ledger.ledger import Ledger
from pipeline.run_record import SlideOutcome
from pipeline.study.work.leases import Lease, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import Owner, this_process
from pipeline.study.work.worker import Output, Worker
from training.foundation.progress import Advance


class Nothing(Stage):
    """Stage that is done at once."""

    def __init__(self, slide_id: str) -> None:
        self.slide_id = slide_id

    def key(self) -> Key:
        return {}

    def made_from(self) -> Key | None:
        return None

    def outputs(self) -> tuple[Path, ...]:
        return ()

    def run(self, advance: Advance) -> StageReport:
        return StageReport(SlideOutcome(self.slide_id, "done"))


class NoWork:
    def stage_of(self, lease: Lease) -> Stage:
        return Nothing(lease.slide_id)

    def output_of(self, lease: Lease) -> Output:
        return Output("0" * 64, "{}")

    def cleaned(self, lease: Lease, message: str) -> str:
        return message


def dead_process() -> Owner:
    """Owner of a process of this machine that has died."""
    program = "from pipeline.study.work.owner import this_process; print(this_process())"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    owner = Owner.parse(process.stdout.strip())
    assert owner is not None
    return owner


def test_a_dead_workers_slide_does_not_wait_until_all_others_are_done(begun):
    Leases(begun, dead_process(), Limits(), actor="the dead").take("s")
    limits = Limits(backoff_s=0)
    mine = Worker(Leases(begun, this_process(), limits, actor="me"), limits, NoWork())
    assert mine.run("s", until=lambda: begun.counts("s").is_over) == 9
    lapsed = _seq(begun, "task S-1/ingest", "lease lapsed")
    assert lapsed < _seq(begun, "slide S-2", "slide ended") < _seq(begun, "slide S-4", "slide ended")


class AwayOnce(NoWork):
    """Work that queries a ledger that does not answer at first: before the work, and during it."""

    def __init__(self) -> None:
        self.away = {"before", "within"}

    def stage_of(self, lease: Lease) -> Stage:
        self._ask("before")
        return super().stage_of(lease)

    def output_of(self, lease: Lease) -> Output:
        self._ask("within")
        return super().output_of(lease)

    def _ask(self, when: str) -> None:
        if when in self.away:
            self.away.remove(when)
            raise LedgerUnavailableError("the ledger does not answer now")


def test_a_ledger_that_is_away_under_a_slide_says_nothing_of_the_slide(begun):
    limits = Limits(backoff_s=0)
    mine = Worker(Leases(begun, this_process(), limits, actor="me"), limits, AwayOnce())

    mine.run("s", until=lambda: begun.counts("s").is_over)

    assert {(row.state, row.code) for row in begun.slides("s")} == {("done", None), ("excluded", None)}


def _seq(ledger: Ledger, subject: str, action: str) -> int:
    return next(int(entry.seq) for entry in ledger.history("s", subject) if entry.action == action)
