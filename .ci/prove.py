"""Run everything that `make test` shortens, and write the result into docs/reference/proof.md.

    make prove

The tests come first, on two workers, those in a browser on their own (see .ci/test); the other parts then run two at a
time. Every part runs, even after a failure. The page has a row per part: its last successful run, with the commit that
it proves.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/proof.md"
DATA_VARIABLE = "GEMSLIDE_TEST_DATA"


@dataclass(frozen=True)
class Part:
    """A command that ends with 0 if what it proves holds, and whose last line counts what it tried."""

    what: str
    arguments: tuple[str, ...]
    """Arguments of `python`."""

    @property
    def command(self) -> str:
        return shlex.join(["python", *self.arguments])


@dataclass(frozen=True)
class Outcome:
    """Result of a part of the proof."""

    part: Part
    code: int
    seconds: float
    last_line: str


FILES = (
    "killed_writers", "rival_writers", "hostile_names", "hostile_packages", "hostile_tables", "wrong_slides",
    "foreign_files", "damaged_projects", "bit_rot", "lying_colours", "leaks", "audited_studies", "named_messages",
)  # fmt: skip
WEB = (
    "web_strangers", "web_insiders", "blinded_readers", "web_projects", "web_slow", "web_many", "web_geometry",
    "web_leavers", "web_sockets",
)  # fmt: skip

TESTS = ("-m", "pytest", "-n", "2", "--dist", "loadgroup", "-m")


def parts(seed: int, cases: int) -> list[Part]:
    at = ("--seed", str(seed))
    return [
        Part("Tests marked `prove`", (*TESTS, "prove and not browser")),
        Part("Tests in a browser marked `prove`", (*TESTS, "prove and browser")),
        Part("Attacks on files, tables, packages and writers", ("-m", "tests.attacks", *at, "--only", *FILES)),
        Part("Attacks on the web app", ("-m", "tests.attacks", *at, "--only", *WEB)),
        Part("`kill -9` during ingest", ("-m", "tests.pipeline.ingest.chaos", "--times", "100", *at)),
        Part("`kill -9` during inference", ("-m", "tests.pipeline.inference.chaos", "--times", "100", *at)),
        Part("`kill -9` during embedding", ("-m", "tests.pipeline.embedding.chaos", "--times", "100", *at)),
        Part("`kill -9` during training", ("-m", "tests.distributed.chaos", "--times", "50", *at)),
        Part("A study under everything at once", ("-m", "tests.pipeline.study.chaos", "--slides", "150", *at)),
        Part("Damaged slide files", ("-m", "tests.pipeline.slides.fuzz", "--cases", str(cases), *at)),
    ]


def run(part: Part) -> Outcome:
    """Run a part, and print its output under its name."""
    print(f"== {part.what}: {part.command}", flush=True)
    start, last_line = time.perf_counter(), ""
    with subprocess.Popen(
        [sys.executable, "-u", *part.arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout
        for line in process.stdout:
            print(f"[{part.what}] {line}", end="", flush=True)
            last_line = line.strip("= \n") or last_line
    return Outcome(part, process.returncode, time.perf_counter() - start, last_line)


def prove(wanted: Sequence[Part], page: Path, *, commit: str | None) -> int:
    """Run all parts and write the page, unless one failed or there is no commit to name. Return the exit code."""
    tests = [part for part in wanted if part.arguments[: len(TESTS)] == TESTS]
    others = [part for part in wanted if part not in tests]
    outcomes = [run(part) for part in tests]
    with ThreadPoolExecutor(2) as pool:
        outcomes += pool.map(run, others)
    failed = [outcome for outcome in outcomes if outcome.code]
    for outcome in failed:
        print(f"\n!! {outcome.part.what} failed (exit code {outcome.code}): {outcome.last_line}", file=sys.stderr)
    if commit is None:
        print(f"\n{page} is left as it was: files differ from the last commit, which it would name.")
    else:
        page.write_text(proof_page(page, [passed for passed in outcomes if not passed.code], commit), encoding="utf-8")
    print(f"\n{len(outcomes) - len(failed)} of {len(outcomes)} parts held: {page}")
    return 1 if failed else 0


def proof_page(page: Path, held: Sequence[Outcome], commit: str) -> str:
    """Page with new rows for the parts that held just now; the others keep their rows of an earlier commit."""
    rows = dict.fromkeys([part.what for part in parts(0, 0)], "")
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    written = (line for line in text.splitlines() if line.startswith("| "))
    rows.update({line.split(" | ")[0].removeprefix("| "): line for line in written})
    for outcome in held:
        result_text = f"{outcome.seconds:.0f} | {outcome.last_line}"
        rows[outcome.part.what] = (
            f"| {outcome.part.what} | {commit} | {now()} | `{outcome.part.command}` | {result_text} |"
        )
    lines = "\n".join(line for what, line in rows.items() if line and what != "part")
    return f"""# The last proof

`make prove` runs everything that `make test` shortens, and wrote this page. Each row is the last run of a part
that held, with the commit that it proves, on {machine()}.

| part | commit | when (UTC) | command | seconds | result, in its last line |
|---|---|---|---|---|---|
{lines}
"""


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M}"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.machine()
    data = "with" if os.environ.get(DATA_VARIABLE) else "without"
    return f"{len(os.sched_getaffinity(0))} cores of {name}, Python {platform.python_version()}, {data} the real slides"


def commit_of(root: Path, page: Path) -> str | None:
    """Commit of the current files, apart from the page; None if they differ from it."""
    changed = git(root, "status", "--porcelain", "--", ".", f":(exclude){page.relative_to(root)}")
    return None if changed else git(root, "rev-parse", "--short=12", "HEAD")


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000, help="damaged slide files")
    parser.add_argument("--only", metavar="WORD", help="parts whose name has this word")
    options = parser.parse_args()
    wanted = [part for part in parts(options.seed, options.cases) if (options.only or "") in part.what]
    return prove(wanted, PAGE, commit=commit_of(ROOT, PAGE))


if __name__ == "__main__":
    sys.exit(main())
