"""Plant the faults of tests/training/engine/mutants.toml one by one, and report which of them the tests notice.

    make mutants [ONLY=transport]

A fault is one changed line of training/engine or training/oracle, in a copy of the project; the tests named with it,
nearest first, must then fail, or exceed the time limit. Before the first fault all named tests must pass. The exit code
is 1 if fewer than 95 in 100 faults are noticed, one survives without an explanation, or an explained one is noticed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests/training/engine/mutants.toml"
FOLDER = Path("training")
WORKERS = 2
LIMIT_S = 400
LEAST_NOTICED = 0.95
NEEDED = ("training", "pipeline", "pathology_app", "tests", "benchmarks", "docs", "pyproject.toml", "README.md")


@dataclass(frozen=True)
class Mutant:
    """One fault."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""
    """Reason why no test can detect it."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.old.strip()!r} -> {self.new.strip()!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose line, as it is printed, holds this")
    only = parser.parse_args().only
    mutants = [mutant for mutant in read_list() if only in mutant.name]
    with tempfile.TemporaryDirectory(prefix="gemslide-mutants-") as folder:
        copies: Queue[Path] = Queue()
        for index in range(WORKERS):
            copies.put(_copy(Path(folder) / str(index)))
        _check_unchanged(copies, mutants)
        with ThreadPoolExecutor(WORKERS) as pool:
            noticed = list(pool.map(lambda mutant: _is_noticed(copies, mutant), mutants))
    sys.exit(_report(mutants, noticed))


def read_list() -> list[Mutant]:
    """All faults of the list.

    Raises:
        SystemExit: a line to change is missing or occurs twice.
    """
    mutants = [Mutant(**{**one, "tests": tuple(one["tests"])}) for one in tomllib.loads(LIST.read_text())["mutant"]]
    for mutant in mutants:
        count = (ROOT / FOLDER / mutant.file).read_text().count(mutant.old)
        if count != 1:
            raise SystemExit(
                f"{LIST.name}: {mutant.name}: the text to change is there {count} times; bring it up to date"
            )
    return mutants


def _copy(to: Path) -> Path:
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy2(source, to / name)
    return to


def _check_unchanged(copies: Queue[Path], mutants: Sequence[Mutant]) -> None:
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    copy = copies.get()
    ended = _run(copy, tests, limit_s=10 * LIMIT_S, arguments=("-n", str(WORKERS), "--dist", "loadgroup"))
    copies.put(copy)
    if ended != 0:
        raise SystemExit("the tests fail without any fault: mend them first")


def _is_noticed(copies: Queue[Path], mutant: Mutant) -> bool:
    copy = copies.get()
    file = copy / FOLDER / mutant.file
    right = file.read_text()
    try:
        file.write_text(right.replace(mutant.old, mutant.new))
        noticed = _run(copy, mutant.tests, limit_s=LIMIT_S) != 0
    finally:
        file.write_text(right)
        copies.put(copy)
    print(f"{'noticed ' if noticed else 'SURVIVED'}  {mutant.name}", flush=True)
    return noticed


def _run(copy: Path, tests: Sequence[str], *, limit_s: float, arguments: Sequence[str] = ("-x",)) -> int | None:
    """Exit code of the tests; None if they took too long."""
    # No bytecode, which would be stale for a file that changes twice in a second.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not prove", *arguments, *tests]
    with subprocess.Popen(
        command, cwd=copy, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # together with the ranks that it started
            return None


def _report(mutants: Sequence[Mutant], noticed: Sequence[bool]) -> int:
    survivors = [mutant for mutant, was in zip(mutants, noticed, strict=True) if not was]
    stale = [mutant for mutant, was in zip(mutants, noticed, strict=True) if was and mutant.survives]
    for mutant in survivors:
        print(f"survived: {mutant.name}\n    {mutant.survives or 'NOT EXPLAINED'}")
    for mutant in stale:
        print(f"explained, but noticed: {mutant.name}")
    share = sum(noticed) / len(mutants) if mutants else 0.0
    print(f"{sum(noticed)} of {len(mutants)} faults noticed ({share:.1%})")
    return int(share < LEAST_NOTICED or bool(stale) or not all(mutant.survives for mutant in survivors))


if __name__ == "__main__":
    main()
