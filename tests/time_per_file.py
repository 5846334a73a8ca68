"""`pytest -p tests.time_per_file`: processor seconds per test file, including its child processes.

Wall-clock time depends on how busy the machine is; processor time hardly does, so that two runs can be compared.
The sums are written to the file named by TIME_PER_FILE (JSON), and the largest are printed.
"""

from __future__ import annotations

import json
import os
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHOWN = 20


def _cpu_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class _Clock:
    """Stopwatch of the processor time that the process has used."""

    def __init__(self) -> None:
        self._last = _cpu_s()

    def lap(self) -> float:
        now = _cpu_s()
        used, self._last = now - self._last, now
        return used


_CLOCK = _Clock()
_BY_FILE: Counter[str] = Counter()


def pytest_collection_finish() -> None:
    """Exclude the time that the imports of all test files took from the first test."""
    _CLOCK.lap()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    report = yield
    report.cpu_s = _CLOCK.lap()  # travels from a worker of xdist to the process that prints
    return report


def pytest_runtest_logreport(report: Any) -> None:
    _BY_FILE[report.nodeid.partition("::")[0]] += getattr(report, "cpu_s", 0.0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    total = sum(_BY_FILE.values())
    terminalreporter.write_line(f"processor time {total / 60:.1f} min; the largest files:")
    for name, seconds in _BY_FILE.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")
    target = os.environ.get("TIME_PER_FILE")
    if target:
        rounded = {name: round(seconds, 2) for name, seconds in _BY_FILE.most_common()}
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
