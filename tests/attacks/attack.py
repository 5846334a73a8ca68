"""Code shared by all attacks: findings and their report."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Attack = Callable[[int, int], "Result"]

LONGEST_WAIT = 12 if "PYTEST_XDIST_WORKER" in os.environ else 2
"""Largest allowed ratio of wall-clock time to processor time; higher when other tests run in parallel."""


@dataclass
class Result:
    """Number of attempts of one attack, and every promise that did not hold."""

    what: str
    attempts: int = 0
    findings: list[str] = field(default_factory=list)

    def check(self, holds: bool, finding: str) -> None:
        """Record a finding if a promise does not hold."""
        if not holds:
            self.findings.append(finding)

    def expect_refusal(
        self,
        what: str,
        work: Callable[[], object],
        refusal: type[Exception] | tuple[type[Exception], ...],
        *,
        longest_s: float = 5.0,
    ) -> None:
        """Attempt something that must soon be refused with an explanation; `longest_s` is processor time."""
        self.attempts += 1
        start, started = time.process_time(), time.perf_counter()
        try:
            work()
        except refusal as error:
            self.check(len(str(error)) > 20, f"{what}: says only {error!s}")
        except Exception as error:
            self.findings.append(f"{what}: {type(error).__name__}: {error!s:.200}")
        else:
            self.findings.append(f"{what}: was accepted")
        used, waited = time.process_time() - start, time.perf_counter() - started
        self.check(used < longest_s, f"{what}: took {used:.1f} s")
        self.check(waited < LONGEST_WAIT * longest_s, f"{what}: ended after {waited:.1f} s")

    def __str__(self) -> str:
        return f"{self.what}: {self.attempts} attempts, {len(self.findings)} findings"


def main(attack: Attack, *, times: int) -> None:
    """Run an attack from the command line; the exit code is 1 if there is a finding."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=times)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    result = attack(arguments.times, arguments.seed)
    for finding in result.findings:
        print(f"  {finding}")
    print(f"{result} ({time.perf_counter() - start:.0f} s)")
    sys.exit(1 if result.findings else 0)
