"""The pool and the runner: every task ends once, a crash or an error costs one, and our own bugs are not hidden."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pipeline.errors import UnreadableError
from pipeline.jobs.key import differences, is_finished
from pipeline.jobs.pool import Pool, WorkerCrashedError
from pipeline.jobs.runner import run_stages
from pipeline.jobs.stage import Stage, StageReport
from pipeline.run_record import SlideOutcome


def work(task: str) -> str:
    if task == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if task == "refuse":
        raise UnreadableError("refused: damaged")
    if task == "bug":
        raise AttributeError("a bug of ours")
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


@pytest.mark.parametrize("workers", [1, 2])
def test_every_slide_ends_once_and_an_error_or_a_crash_costs_one(tmp_path, workers):
    names = ["a", "refuse", "b", *(["crash"] if workers > 1 else []), "c"]
    reports = []

    run_stages([Toy(name, tmp_path) for name in names], reports.append, workers=workers)

    ended = {report.outcome.slide_id: (report.outcome.status, report.outcome.code) for report in reports}
    assert len(reports) == len(names)
    assert ended == {
        name: ("unreadable", "unreadable") if name in ("refuse", "crash") else ("done", None) for name in names
    }
    for report in reports:
        if report.outcome.slide_id == "crash":
            assert "crashed or was ended (exit code -11)" in report.outcome.message


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
