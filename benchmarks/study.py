"""The ledger of studies: cost per task, tasks per second, and time to view 100,000 slides.

    .venv/bin/python -m benchmarks.study [--only WORD …] [--rounds 7]

Stages do nothing here. `overhead`: one worker takes and ends tasks; milliseconds per task, median of rounds, in SQLite
and in Debian's PostgreSQL, in turns. `throughput`: eight worker processes at once; tasks per second, and the number
lost or done twice. `large`: a study of 100,000 slides with a million entries in its log; seconds for the queries of
`status` and a page of the web app, for all tables of a report, and for `verify`. Prints a JSON line per measure; the
committed ones are in benchmarks/results/study.jsonl, beside those of benchmarks/study_pool.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from benchmarks.large_study import begin, end_all
from benchmarks.machine import circumstances
from pipeline.ledger.chain import Change, append
from pipeline.ledger.database import Database
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.ledger.tables import audit
from pipeline.study.outcomes.failures import failures_of
from pipeline.study.outcomes.progress import progress_of
from pipeline.study.outcomes.search import SlideSearch, find_slides
from pipeline.study.proof.verify import verify_log
from pipeline.study.report.compose import sections_of
from pipeline.study.report.facts import gather
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import Study
from tests.postgres import Postgres

STAGES = ("ingest", "qc", "infer")
SLIDES_PER_ROUND = 100
WORKERS, SLIDES_FOR_WORKERS = 8, 1_000
LARGE, ENTRIES, PAGE = 100_000, 1_000_000, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="measures whose name holds one of these words")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    measures: dict[str, Callable[[Postgres, Path], dict[str, Any]]] = {
        "overhead": lambda server, folder: overhead(server, folder, options.rounds),
        "throughput": throughput,
        "large": large,
    }
    with tempfile.TemporaryDirectory(prefix="gemslide-bench-") as folder, running(Path(folder) / "pg") as server:
        for name, measure in measures.items():
            if not options.only or any(word in name for word in options.only):
                line = {"benchmark": "study", "measure": name, **measure(server, Path(folder))}
                print(json.dumps({**line, **circumstances("benchmarks.study")}), flush=True)


@contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    folder.mkdir()
    server = Postgres(folder)
    try:
        yield server
    finally:
        server.end()


def databases(server: Postgres, folder: Path, name: str) -> dict[str, str]:
    """URL of a new database of each kind."""
    return {"sqlite": f"sqlite:///{folder}/{name}.db", "postgresql": server.new_database()}


def overhead(server: Postgres, folder: Path, rounds: int) -> dict[str, Any]:
    ledgers = {kind: Ledger(Database(url)) for kind, url in databases(server, folder, "overhead").items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in ledgers}
    for number in range(rounds):
        for kind, ledger in ledgers.items():
            _begin(ledger, f"s{number}", SLIDES_PER_ROUND)
            start = time.perf_counter()
            tasks = sum(_work_off(ledger, f"s{number}").values())
            seconds[kind].append((time.perf_counter() - start) / tasks)
    for ledger in ledgers.values():
        ledger.database.close()
    return {
        f"{kind}, ms per task": {"median": _ms(statistics.median(rounds_s)), "all rounds": sorted(map(_ms, rounds_s))}
        for kind, rounds_s in seconds.items()
    }


def throughput(server: Postgres, folder: Path) -> dict[str, Any]:
    rates = {}
    for kind, url in databases(server, folder, "throughput").items():
        with Ledger(Database(url)) as ledger:
            _begin(ledger, "s", SLIDES_FOR_WORKERS)
        with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
            pool.map(_nothing, range(4 * WORKERS), chunksize=1)  # all have started before the clock
            start = time.perf_counter()
            done = sum(pool.map(_one_worker, [url] * WORKERS, chunksize=1), Counter())
            elapsed = time.perf_counter() - start
        wanted = SLIDES_FOR_WORKERS * len(STAGES)
        twice = sum(count - 1 for count in done.values())
        rates[kind] = {
            "tasks per s": round(wanted / elapsed, 1),
            "lost": wanted - len(done),
            "done twice": twice,
            "workers": WORKERS,
        }
    return rates


def large(server: Postgres, folder: Path) -> dict[str, Any]:
    times = {}
    for kind, url in databases(server, folder, "large").items():
        with Ledger(Database(url)) as ledger:
            start = time.perf_counter()
            study = begin(ledger, folder / kind, LARGE)
            begin_s = time.perf_counter() - start
            _fill_log(ledger)
            verify_s = _timed(lambda ledger=ledger: _verified(ledger))
            end_all(ledger, LARGE)
            times[kind] = {
                "begin, s": round(begin_s, 3),
                "status, s": _timed(lambda ledger=ledger: (progress_of(ledger, "s"), failures_of(ledger, "s"))),
                **{f"page of slides, {of}, s": _timed(page) for of, page in _pages(ledger).items()},
                "report's tables, s": _timed(lambda study=study: _tables(study)),
                "verify, s": verify_s,
                "slides": LARGE,
                "entries": _entries(ledger),
            }
    return times


def _pages(ledger: Ledger) -> dict[str, Callable[[], object]]:
    """Queries of the web app for a page of its list: the slides on it, and their total number."""
    middle = LARGE // 2
    searches = {
        "first": (SlideSearch(), 0),
        "in the middle": (SlideSearch(), middle),
        "of one state": (SlideSearch(state="unreadable"), 0),
        "by a part of the name": (SlideSearch(text="77"), 0),
    }
    return {
        of: lambda wanted=wanted, skip=skip: find_slides(ledger, "s", wanted, skip=skip, limit=PAGE)
        for of, (wanted, skip) in searches.items()
    }


def _tables(study: Study) -> None:
    """Everything in a report except its page, and the preceding verification of the log."""
    for section in sections_of(gather(study), verified=""):
        for table in section.tables:
            table.as_csv()


def _begin(ledger: Ledger, study_id: str, slides: int) -> None:
    new = [NewSlide(f"S-{number:06}", site=f"site {number % 5}") for number in range(slides)]
    ledger.begin(study_id, {}, "0" * 64, new, STAGES, actor="benchmark")


def _work_off(ledger: Ledger, study_id: str) -> Counter[tuple[str, str]]:
    """Take and end all tasks; return how often each was done."""
    leases = Leases(ledger, this_process(), Limits(), actor="worker")
    done: Counter[tuple[str, str]] = Counter()
    lease = leases.take(study_id)
    while lease is not None:
        counted, following = leases.finish(lease, Ended("done", output_sha256="0" * 64), take_next=True)
        done[lease.slide_id, lease.stage] += counted
        lease = following
    return done


def _one_worker(url: str) -> Counter[tuple[str, str]]:
    with Ledger(Database(url)) as ledger:
        return _work_off(ledger, "s")


def _nothing(_: int) -> None:
    time.sleep(0.05)


def _fill_log(ledger: Ledger) -> None:
    at_once = 20_000
    while (missing := ENTRIES - _entries(ledger)) > 0:
        changes = [
            Change("benchmark", "looked at", f"slide S-{number:06}", details={"number": number})
            for number in range(min(at_once, missing))
        ]
        with ledger.database.write() as connection:
            append(connection, "s", changes)


def _entries(ledger: Ledger) -> int:
    with ledger.database.read() as connection:
        return int(connection.scalar(select(func.count()).select_from(audit)) or 0)


def _verified(ledger: Ledger) -> None:
    findings = verify_log(ledger.database, "s").findings
    assert not findings, findings


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return round(time.perf_counter() - start, 3)


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 3)


if __name__ == "__main__":
    main()
