"""A worker's loop, with work that takes no time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipeline.jobs.key import Key
from pipeline.jobs.stage import Stage, StageReport
from pipeline.progress import Advance
from pipeline.run_record import SlideOutcome
from pipeline.study.leases import Lease, Leases
from pipeline.study.ledger import Ledger
from pipeline.study.limits import Limits
from pipeline.study.owner import Owner, this_process
from pipeline.study.worker import Output, Worker


class Nothing(Stage):
    """A stage that is done at once."""

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


def dead_process() -> Owner:
    """Of this machine, and gone."""
    program = "from pipeline.study.owner import this_process; print(this_process())"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    owner = Owner.parse(said.stdout.strip())
    assert owner is not None
    return owner


def test_a_dead_workers_slide_does_not_wait_until_all_others_are_done(begun):
    Leases(begun, dead_process(), Limits(), actor="the dead").take("s")
    limits = Limits(backoff_s=0)
    mine = Worker(Leases(begun, this_process(), limits, actor="me"), limits, NoWork())
    assert mine.run("s", until=lambda: begun.counts("s").is_over) == 9
    lapsed = _seq(begun, "task S-1/ingest", "lease lapsed")
    assert lapsed < _seq(begun, "slide S-2", "slide ended") < _seq(begun, "slide S-4", "slide ended")


def _seq(ledger: Ledger, subject: str, action: str) -> int:
    return next(int(entry.seq) for entry in ledger.history("s", subject) if entry.action == action)
