"""A worker stops at once on request and leaves no task without an owner, whenever the signal comes."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import pytest
from sqlalchemy import text

from pipeline.ledger.ledger import NewSlide
from pipeline.study.proof.verify import verify_log
from pipeline.study.work.leases import Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.shutdown import handle_signals
from pipeline.study.work.worker import Output, Worker


class ShortStage:
    """Stage that takes a few milliseconds."""

    def run(self, advance: object) -> object:
        time.sleep(0.002)
        return type("Report", (), {"inputs": [], "warning": None})


class ShortWork:
    def stage_of(self, lease: object) -> ShortStage:
        return ShortStage()

    def output_of(self, lease: object) -> Output:
        return Output("ab", "{}")

    def cleaned(self, lease: object, message: str) -> str:
        return message


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_at_any_moment_leaves_no_task_held(ledger, number):
    slides = [NewSlide(f"S-{n}") for n in range(400)]
    ledger.begin("s", {"question": "?"}, "0" * 64, slides, ("ingest",), actor="ada")
    drawn = random.Random(int(number))
    ends = 0
    for _ in range(25):
        timer = threading.Timer(drawn.uniform(0, 0.08), os.kill, (os.getpid(), number))
        with handle_signals() as ending:
            worker = Worker(Leases(ledger, this_process(), Limits(), actor="w"), Limits(), ShortWork(), ending=ending)
            timer.start()
            try:
                worker.run("s", until=lambda: ledger.counts("s").is_over)
            except KeyboardInterrupt:
                ends += 1
            timer.join()
            assert ending.signal == number
        tasks = ledger.counts("s").tasks["ingest"]
        assert tasks["leased"] == 0
    assert ends
    assert tasks["done"] > 0
    with ledger.database.read() as connection:
        assert connection.scalar(text("SELECT max(attempts) FROM task")) == 1
    assert verify_log(ledger.database, "s").findings == ()


def test_outside_the_main_thread_signals_are_left_as_they_are():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with handle_signals() as ending:
            seen.extend([signal.getsignal(signal.SIGTERM), ending.signal])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before, None]


def test_a_second_signal_changes_nothing():
    with handle_signals() as ending:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), ending.stoppable():
            raise AssertionError
        os.kill(os.getpid(), signal.SIGINT)
        assert ending.signal == signal.SIGTERM
