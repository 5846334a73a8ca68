"""The pool and the runner: every task ends once, a crash or error loses one task, and our own bugs are not hidden."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.jobs.key import differences, is_finished
from pipeline.jobs.pool import Pool, WorkerCrashedError
from pipeline.jobs.runner import run_overlapping, run_stages
from pipeline.jobs.stage import Stage, StageReport
from pipeline.run_record import SlideOutcome
from training.foundation.errors import UnreadableError


def work(task: str) -> str:
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "refuse":
        raise UnreadableError("refused: damaged")
    if task == "bug":
        raise AttributeError("a bug of ours")
    if task == "memory":
        raise MemoryError
    return task.upper()


@dataclass(frozen=True)
class Toy(Stage):
    name: ClassVar[str] = "toy"
    slide_id: str
    folder: Path

    def key(self):
        return {"of": self.slide_id, "sizes": (1, 2)}

    def made_from(self):
        return self.key() if self.outputs()[0].exists() else None

    def outputs(self):
        return (self.folder / self.slide_id,)

    def run(self, advance):
        result = work(self.slide_id)
        self.outputs()[0].write_text(result)
        return StageReport(SlideOutcome(self.slide_id, "done", message=result))


def own_pid(task: str) -> int:
    return os.getpid()


def test_a_process_that_is_ended_between_two_tasks_costs_none():
    with Pool(own_pid, 1) as pool:
        pids = []
        for number in range(4):
            (pid,) = pool.in_order([f"task {number}"])
            pids.append(pid)
            os.kill(pid, signal.SIGKILL)
    assert len(set(pids)) == 4


def end_with(code: int) -> None:
    os._exit(code)


def test_an_exit_code_is_kept_while_another_process_starts(monkeypatch):
    """Starting a process collects the children that have ended. Here it collects the one that is being waited for, and
    is interrupted before it notes the exit code."""
    collect, is_waiting, is_collected, has_ended = os.waitpid, threading.Event(), threading.Event(), threading.Event()

    def collect_slowly(pid, options):
        if options == os.WNOHANG:
            collected = collect(pid, options)
            if collected[0] and is_waiting.is_set():
                is_collected.set()
                has_ended.wait(1)
            return collected
        if not is_waiting.is_set():
            is_waiting.set()
            is_collected.wait(1)
        return collect(pid, options)

    def start_another():
        is_waiting.wait()
        with Pool(own_pid, 1) as other:
            list(other.in_order(["a task"]))

    starter = threading.Thread(target=start_another)
    starter.start()
    with Pool(end_with, 1) as pool:
        monkeypatch.setattr(os, "waitpid", collect_slowly)
        (end,) = pool.in_order([12])
        has_ended.set()
    starter.join()
    assert end.exit_code == 12


@pytest.mark.parametrize("workers", [1, 2])
def test_every_slide_ends_once_and_an_error_a_crash_or_a_bug_costs_one(tmp_path, capfd, workers):
    names = ["a", "refuse", "b", *(["crash"] if workers > 1 else []), "memory", "bug", "c"]
    good, bug, memory = ("done", None), ("failed", "internal_error"), ("failed", "failed_process")
    expected = {"bug": bug, "memory": memory, **dict.fromkeys("abc", good)}
    reports = []

    run_stages([Toy(name, tmp_path) for name in names], reports.append, workers=workers)

    ended = {report.outcome.slide_id: (report.outcome.status, report.outcome.code) for report in reports}
    assert len(reports) == len(names)
    assert ended == {name: expected.get(name, ("unreadable", "unreadable")) for name in names}
    messages = {report.outcome.slide_id: report.outcome.message for report in reports}
    assert "(exit code -11)" in messages.get("crash", "(exit code -11)")
    assert "memory ran out" in messages["memory"]
    assert "gemslide itself failed (AttributeError: a bug of ours)" in messages["bug"]
    assert "in work" in capfd.readouterr().err


@dataclass(frozen=True)
class InTurn(Stage):
    """Stage that uses the scarce resource in steps, then writes until the next slide has begun."""

    name: ClassVar[str] = "in turn"
    slide_id: str
    turn: threading.Lock
    begun: dict[str, threading.Event]
    steps: list[str]
    endless: str = ""

    def key(self):
        return {}

    def made_from(self):
        return None

    def outputs(self):
        return ()

    def run(self, advance):
        with self.turn:
            self.begun[self.slide_id].set()
            for _ in range(2) if self.slide_id != self.endless else itertools.count():
                self.steps.append(self.slide_id)
                advance(1)
        following = chr(ord(self.slide_id) + 1)
        assert following not in self.begun or self.begun[following].wait(60)
        if self.slide_id == "b":
            raise UnreadableError("refused: damaged")
        return StageReport(SlideOutcome(self.slide_id, "done"))


def in_turn(**how):
    turn, begun, steps = threading.Lock(), {name: threading.Event() for name in "abc"}, []
    return [InTurn(name, turn, begun, steps, **how) for name in "abc"], steps


def test_a_slide_is_written_while_the_next_one_has_its_turn():
    stages, steps = in_turn()
    reports = []

    run_overlapping(stages, reports.append)

    assert "".join(steps) in ("aabbcc", "bbaacc")
    assert {report.outcome.slide_id: report.outcome.status for report in reports} == {
        "a": "done", "b": "unreadable", "c": "done",
    }  # fmt: skip


def test_memory_that_runs_out_under_one_of_two_slides_costs_that_slide_alone(tmp_path):
    reports = []

    run_overlapping([Toy(name, tmp_path) for name in ("a", "memory", "b")], reports.append)

    ended = {report.outcome.slide_id: (report.outcome.status, report.outcome.code) for report in reports}
    assert ended == {"a": ("done", None), "b": ("done", None), "memory": ("failed", "failed_process")}


def test_an_interrupted_run_stops_its_slides_at_their_next_step():
    stages, steps = in_turn(endless="c")

    def interrupt(_):
        stages[2].begun["c"].wait(60)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_overlapping(stages, interrupt)
    assert steps[-1] == "c"


def test_results_come_in_the_order_of_the_tasks_when_asked_for():
    with Pool(work, 2) as pool:
        results = list(pool.in_order(["x", "crash", "y", "refuse", "z"]))

    assert [result if isinstance(result, str) else type(result) for result in results] == [
        "X", WorkerCrashedError, "Y", UnreadableError, "Z",
    ]  # fmt: skip


def test_a_bug_of_ours_in_a_worker_is_raised_here_with_its_traceback():
    with Pool(work, 1) as pool, pytest.raises(AttributeError, match="a bug of ours") as caught:
        list(pool.as_completed(["a", "bug"]))

    assert "in work" in "".join(caught.value.__notes__)


def test_work_is_finished_when_its_output_was_made_from_what_is_asked_for(tmp_path):
    toy = Toy("a", tmp_path)

    assert not toy.is_finished()
    run_stages([toy], lambda _: None)
    assert toy.is_finished()


@pytest.mark.parametrize(
    ("made_from", "differing"),
    [
        ({"source": "s", "settings": {"a": [1, 2]}}, ()),
        ({"source": "t", "settings": {"a": [1, 2]}}, ("source",)),
        ({"source": "s", "settings": {"a": [1, 3]}}, ("settings",)),
        ({"source": "s"}, ("settings",)),
        ({"source": "s", "settings": {"a": [1, 2]}, "method": 1}, ("method",)),
        (None, ("source", "settings")),
    ],
)
def test_keys_differ_in_the_parts_that_are_named(made_from, differing):
    key = {"source": "s", "settings": {"a": (1, 2)}}

    assert differences(made_from, key) == differing
    assert is_finished(made_from, key) == (differing == ())
