"""Without a terminal, long work reports its progress every minute, and reports when it hangs."""

from __future__ import annotations

import sys
import threading

import pytest
from rich.progress import Progress

from training.foundation.progress import Advance, bar
from training.foundation.progress_lines import ProgressLines, in_minutes, report_periodically


class Clock:
    """Clock that stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def work():
    """A task, a clock, and the lines that are written."""
    progress, clock, written = Progress(disable=True), Clock(), []
    task = progress.add_task("infer S-1", total=None)
    return progress, task, clock, written, ProgressLines(progress.tasks[0], written.append, clock)


def test_a_line_says_done_total_rate_and_time_left(work):
    progress, task, clock, written, lines = work
    progress.update(task, total=1500)
    progress.advance(task, 300)
    clock.now += 60
    lines.tell()
    progress.advance(task, 30)
    clock.now += 600
    lines.tell()

    assert written == [
        "infer S-1: 300 of 1500 (20%) after 1 min, 5 per s, 4 min left",
        "infer S-1: 330 of 1500 (22%) after 11 min, 30 per min, 39 min left",
    ]


def test_what_was_done_before_says_nothing_of_the_speed(work):
    progress, task, clock, written, lines = work
    progress.update(task, total=10_000)
    Advance(progress, task).begin_at(9000)
    progress.advance(task, 20)
    clock.now += 60
    lines.tell()

    assert written == ["infer S-1: 9020 of 10000 (90%) after 1 min, 20 per min, 49 min left"]


def test_work_that_hangs_is_said_to_hang_and_for_how_long(work):
    progress, task, clock, written, lines = work
    clock.now += 60
    lines.tell()
    progress.advance(task, 2)
    clock.now += 60
    lines.tell()
    clock.now += 180
    lines.tell()

    assert written == [
        "infer S-1: 0 after 1 min, nothing finished for 1 min",
        "infer S-1: 2 after 2 min, 1 per min",
        "infer S-1: 2 after 5 min, nothing finished for 3 min",
    ]


def test_hours_are_said_as_hours():
    assert [in_minutes(seconds) for seconds in (1, 61, 3600, 7500)] == ["1 min", "2 min", "1 h 00 min", "2 h 05 min"]


def test_lines_come_while_the_work_does_nothing_and_end_with_it(work):
    progress, _, clock, *_ = work
    came = threading.Event()
    lines = ProgressLines(progress.tasks[0], lambda _: came.set(), clock)

    with report_periodically(lines, every_s=0.001):
        assert came.wait(60)

    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_a_log_gets_no_bar(capsys):
    assert not sys.stderr.isatty()

    with bar("infer S-1", total=2) as advance:
        advance(2)

    assert capsys.readouterr().err == ""
