"""`pytest -p tests.time_per_file`: processor seconds of each test file, its child processes' included.

Wall clock says how busy the machine was; processor time is nearly the same on a loaded one, so that two runs compare.
The sums go to the file that TIME_PER_FILE names (JSON), the largest onto the terminal.
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
    return sum(each.ru_utime + each.ru_stime for each in used)


class _Clock:
    """What the process has used since it was last asked."""

    def __init__(self) -> None:
        self._last = _cpu_s()

    def lap(self) -> float:
        now = _cpu_s()
        used, self._last = now - self._last, now
        return used


_CLOCK = _Clock()
_BY_FILE: Counter[str] = Counter()


def pytest_collection_finish() -> None:
    """What the imports of all test files took is no part of the first test."""
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
