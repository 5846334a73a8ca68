"""Work on foreign data ends within its time and memory limits, reports that, and harms no other work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.bounded import BoundedProcesses, Limits
from pipeline.errors import BadAnnotationError
from tests.hostile_shapes import crossed_combs, polygon

JOIN = "pathology_app.annotating.work:join"
SQUARES = json.dumps({"areas": [polygon([[x, 0], [x + 9, 0], [x + 9, 9], [x, 9]]) for x in (0, 5)]}).encode()
COSTLY = json.dumps({"areas": crossed_combs(760, 10_000)}).encode()
"""Outline with 36,000 crossings: allowed, and a second of work."""


@pytest.fixture
def processes() -> Iterator[BoundedProcesses]:
    made = BoundedProcesses(Limits(seconds=20, mib=512), most=1)
    yield made
    made.close()


def joined(processes: BoundedProcesses, body: bytes = SQUARES) -> str:
    (shape,) = processes.run(JOIN, body, "what was sent")
    return str(shape["type"])


def test_one_process_does_one_piece_of_work_after_the_other(processes: BoundedProcesses) -> None:
    assert [joined(processes) for _ in range(3)] == ["Polygon"] * 3
    assert len(processes._idle) == 1
    with pytest.raises(BadAnnotationError, match="not JSON"):
        joined(processes, b"{")
    with pytest.raises(BadAnnotationError, match="not a function that this program may run"):
        processes.run("os:system", b"true", "what was sent")
    assert joined(processes) == "Polygon"


def test_work_that_takes_too_long_is_killed_and_the_next_goes_on(processes: BoundedProcesses) -> None:
    hasty = BoundedProcesses(Limits(seconds=0.05, mib=512), most=1)
    with pytest.raises(BadAnnotationError, match=r"what was sent: its outlines take more than 0 s.*Simplify"):
        joined(hasty, COSTLY)
    hasty.close()
    assert joined(processes) == "Polygon"


def test_work_that_takes_too_much_memory_is_refused_and_the_next_goes_on() -> None:
    narrow = BoundedProcesses(Limits(seconds=30, mib=24), most=1)
    joined(narrow)
    with pytest.raises(BadAnnotationError, match=r"what was sent: its outlines take more than 24 MiB of memory"):
        joined(narrow, COSTLY)
    assert joined(narrow) == "Polygon"
    narrow.close()


def test_a_process_that_is_killed_costs_one_piece_of_work(processes: BoundedProcesses) -> None:
    joined(processes)
    (process,) = processes._idle
    process._process.kill()
    process._process.wait()
    assert joined(processes) == "Polygon"


def test_threads_that_ask_at_once_get_their_own_answers(processes: BoundedProcesses) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda _: joined(processes), range(6))) == ["Polygon"] * 6


WITHIN = """
import resource
import time
from pipeline.bounded import Limits, within
from pipeline.errors import BadAnnotationError
before = resource.getrlimit(resource.RLIMIT_AS)
for limits in (Limits(seconds=30, mib=64), Limits(seconds=0.02, mib=64)):
    try:
        with within(limits, "a file"):
            bytearray(1 << 28) if limits.seconds > 1 else time.sleep(30)
    except BadAnnotationError as error:
        print(error)
assert resource.getrlimit(resource.RLIMIT_AS) == before
bytearray(1 << 28)
"""


def test_limits_within_a_command_end_with_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHIN], capture_output=True, text=True, check=True)

    memory, clock = done.stdout.splitlines()
    assert "a file: its outlines take more than 64 MiB" in memory
    assert "a file: its outlines take more than 0 s" in clock
