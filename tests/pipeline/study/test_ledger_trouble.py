"""A ledger on a full or read-only disk, or begun twice at once: one sentence, at once, and nothing lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from pipeline.errors import BadManifestError
from pipeline.ledger import errors as ledger_errors
from pipeline.ledger.database import Database
from pipeline.ledger.errors import LedgerFullError, LedgerReadOnlyError, LedgerUnavailableError, explain_sqlite
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.ledger.reasons import check_reason
from pipeline.project import Project
from pipeline.settings.site import LEDGER_VARIABLE
from pipeline.study.new_protocol import new_protocol
from pipeline.study.proof.verify import verify_log
from pipeline.study.protocol import AboutStudy, load_protocol
from pipeline.study.work.leases import Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from pipeline.study.work.study import begin_study
from pipeline.study.work.worker import Worker
from tests.pipeline.study.small_study import make_project, with_protocol
from tests.pipeline.study.test_worker import NoWork
from tests.small_disk import small_disk
from training.foundation.errors import GemslideError, LockedError, UnreadableError

SQL = ("sqlalche", "sqlite3", "SELECT", "INSERT", "UPDATE ", "PRAGMA", "Traceback", "(Background on")


def explained_of(error: BaseException) -> str:
    """Message shown to a person, checked to contain no SQL terms."""
    message = str(error)
    assert [word for word in SQL if word in message] == []
    return message


def fill(disk: Path) -> Path:
    """Fill the disk completely."""
    filler = disk / "filler"
    with filler.open("wb") as stream, suppress(OSError):
        while True:
            os.write(stream.fileno(), bytes(4096))
    return filler


def write_until_it_fails(ledger: Ledger) -> None:
    """Write until it fails: space already allocated to the log can take a few entries."""
    for number in range(100):
        ledger.set_state("s", ("paused", "running")[number % 2], actor="ada", why="x" * 4000)


def ledger_on(disk: Path, slides: int = 3) -> Ledger:
    ledger = Ledger(Database(f"sqlite:///{disk}/gemslide.db"))
    new = [NewSlide(f"S-{number}") for number in range(slides)]
    ledger.begin("s", {"question": "?"}, "0" * 64, new, ("ingest",), actor="ada")
    return ledger


def test_a_full_disk_is_said_at_once_by_who_writes_and_by_who_looks(tmp_path):
    with small_disk(tmp_path / "disk", "size=2m") as disk, ledger_on(disk) as ledger:
        assert ledger.database.trouble() is None
        filler = fill(disk)
        with pytest.raises(LedgerFullError, match=r"gemslide\.db: the disk of the ledger is full") as full:
            write_until_it_fails(ledger)
        explained_of(full.value)
        assert full.value.code == "disk_full"
        assert "is full" in (ledger.database.trouble() or "")
        filler.unlink()
        assert ledger.database.trouble() is None
        assert ledger.set_state("s", "running", actor="ada", why="room") in (True, False)
        assert verify_log(ledger.database, "s").findings == ()


def test_no_ledger_is_begun_on_a_full_disk_and_none_is_left(tmp_path):
    with small_disk(tmp_path / "disk", "size=128k") as disk:
        filler = fill(disk)
        with pytest.raises(LedgerFullError, match="is full") as full:
            Database(f"sqlite:///{disk}/p/gemslide.db")
        explained_of(full.value)
        filler.unlink()
        assert list(disk.iterdir()) == []


def test_a_worker_says_that_the_disk_is_full_and_goes_on_when_there_is_room(tmp_path):
    reasons: list[str] = []
    with small_disk(tmp_path / "disk", "size=2m") as disk, ledger_on(disk) as ledger:
        filler = fill(disk)
        with pytest.raises(LedgerFullError):
            write_until_it_fails(ledger)

        def make_room(why: str) -> None:
            reasons.append(why)
            filler.unlink()
            ledger.set_state("s", "running", actor="ada", why="there is room")

        limits = Limits(backoff_s=0)
        worker = Worker(Leases(ledger, this_process(), limits, actor="w"), limits, NoWork(), tell=make_room)
        assert worker.run("s", until=lambda: ledger.counts("s").is_over) == 3
        assert verify_log(ledger.database, "s").findings == ()
    assert len(reasons) == 1
    assert "is full" in reasons[0]
    assert "minutes at most" in reasons[0]
    explained_of(RuntimeError(reasons[0]))


@pytest.mark.parametrize("what", ["disk", "new"])
def test_a_read_only_disk_is_said_at_once(tmp_path, what):
    with small_disk(tmp_path / "disk", "size=2m") as disk:
        if what == "disk":
            ledger_on(disk).database.close()
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(LedgerReadOnlyError, match="the ledger is read-only here") as refused:
            pause_in(disk)
        explained_of(refused.value)
        assert refused.value.code == "disk_full"


def pause_in(disk: Path) -> None:
    with Ledger(Database(f"sqlite:///{disk}/gemslide.db")) as ledger:
        ledger.set_state("s", "paused", actor="ada", why="x")


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_or_folder_that_may_not_be_written_is_said_at_once(tmp_path, what):
    """Run in a process of a non-root user, to whom permissions apply."""
    ledger_on(tmp_path).database.close()
    program = (
        "import os, sys\n"
        "from pipeline.ledger.database import Database\n"
        "from pipeline.ledger.ledger import Ledger\n"
        "os.setgid(65534), os.setuid(65534)\n"
        "try:\n"
        "    Ledger(Database(sys.argv[1])).set_state('s', 'paused', actor='a', why='x')\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    if os.getuid() != 0:
        pytest.skip("another user can only be tried by root")
    for above in [tmp_path, *tmp_path.parents][:-1]:
        above.chmod(above.stat().st_mode | 0o055)
    if what == "file":
        tmp_path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", program, f"sqlite:///{tmp_path}/gemslide.db"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("LedgerReadOnlyError"), done.stdout + done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("SQLITE_BUSY", LockedError),
        ("SQLITE_BUSY_SNAPSHOT", LockedError),
        ("SQLITE_LOCKED", LockedError),
        ("SQLITE_FULL", LedgerFullError),
        ("SQLITE_READONLY", LedgerReadOnlyError),
        ("SQLITE_READONLY_DIRECTORY", LedgerReadOnlyError),
        ("SQLITE_READONLY_DBMOVED", UnreadableError),
        ("SQLITE_PERM", LedgerReadOnlyError),
        ("SQLITE_CORRUPT", UnreadableError),
        ("SQLITE_NOTADB", UnreadableError),
        ("SQLITE_CANTOPEN", LedgerUnavailableError),
        ("SQLITE_IOERR_WRITE", LedgerUnavailableError),
    ],
)
def test_every_kind_of_failure_of_sqlite_has_its_sentence(tmp_path, name, kind):
    raw = sqlite3.OperationalError("database or disk is full")
    raw.sqlite_errorname = name  # type: ignore[misc]
    explained = explain_sqlite(tmp_path / "a.db", OperationalError("INSERT INTO x", {}, raw), "disk I/O error")
    assert type(explained) is kind
    assert str(tmp_path / "a.db") in explained_of(explained)


def test_an_input_or_output_error_on_a_full_disk_is_a_full_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger_errors, "LEAST_FREE_BYTES", 2**62)
    raw = sqlite3.OperationalError("disk I/O error")
    raw.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"  # type: ignore[misc]
    assert isinstance(explain_sqlite(tmp_path / "a.db", OperationalError("x", {}, raw), "x"), LedgerFullError)


def test_of_two_who_begin_one_study_at_once_one_does_and_the_other_is_told(ledger):
    slides = [NewSlide(f"S-{number}") for number in range(50)]
    start, ends = threading.Barrier(4), list[object]()

    def begin() -> None:
        start.wait()
        try:
            ledger.begin("s", {"question": "?"}, "0" * 64, slides, ("ingest",), actor="ada")
        except GemslideError as error:
            ends.append(error)
        else:
            ends.append("begun")

    threads = [threading.Thread(target=begin) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends.count("begun") == 1
    others = [end for end in ends if end != "begun"]
    assert all(isinstance(end, BadManifestError) and "has already begun" in explained_of(end) for end in others)
    assert ledger.counts("s").total == 50
    assert verify_log(ledger.database, "s").findings == ()


def test_of_two_who_write_one_protocol_at_once_one_does_and_the_other_is_told(small_project, tmp_path):
    project = make_project(small_project, tmp_path)
    start, ends, others = threading.Barrier(4), list[str](), list[str]()

    def init(question: str) -> None:
        description = AboutStudy(title="", question=question, cohort=str(tmp_path / "cohort.csv"))
        start.wait()
        try:
            new_protocol(project, "s", description, [small_project.model_id])
        except BadManifestError as error:
            others.append(str(error))
        else:
            ends.append(question)

    threads = [threading.Thread(target=init, args=(f"question {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = ends
    assert ["already exists" in message for message in others] == [True] * 3
    folder = project.root / "studies" / "s"
    assert f'question = "{winner}"' in (folder / "study.toml").read_text()
    assert [path.name for path in folder.iterdir()] == ["study.toml"]


def test_every_verb_says_that_the_ledger_is_read_only_in_one_sentence(gemslide, small_project, tmp_path, monkeypatch):
    project = with_protocol(make_project(small_project, tmp_path, slides=("a",)), small_project, gemslide)
    with small_disk(tmp_path / "disk", "size=4m") as disk:
        monkeypatch.setenv(LEDGER_VARIABLE, f"sqlite:///{disk}/gemslide.db")
        assert _study(gemslide, project, "begin").code == 0
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for arguments in (
            ("status",), ("status", "--json"), ("work",), ("run", "--workers", "1"), ("pause", "--why", "x"),
            ("retry", "--state", "failed", "--why", "x"), ("report",), ("begin",),
        ):  # fmt: skip
            done = _study(gemslide, project, *arguments)
            output = done.out + done.err
            assert done.code == 1, (arguments, output)
            assert "read-only here" in output, (arguments, output)
            assert [word for word in SQL if word in output] == [], (arguments, output)


def _study(gemslide, project: Project, verb: str, *more: str):
    return gemslide("study", verb, "s", *more, "--project", project.root)


def test_status_says_that_the_disk_is_full_though_it_can_be_read(gemslide, small_project, tmp_path, monkeypatch):
    project = with_protocol(make_project(small_project, tmp_path, slides=("a",)), small_project, gemslide)
    assert _study(gemslide, project, "begin").code == 0
    monkeypatch.setattr(ledger_errors, "LEAST_FREE_BYTES", 2**62)
    words, as_json = _study(gemslide, project, "status"), _study(gemslide, project, "status", "--json")
    assert (words.code, as_json.code) == (1, 1)
    assert "is full" in words.err
    assert "pending" in words.out
    assert '"ledger": "' in as_json.out


@pytest.mark.parametrize("why", [" ", "\t\n", "\u00a0", "\u200b", "\u2800", "\u200e\u202e"])
def test_a_text_in_which_nothing_can_be_seen_is_no_reason(why):
    with pytest.raises(BadManifestError, match="a pause needs a reason"):
        check_reason(why, "a pause")
    check_reason("?", "a pause")


@pytest.mark.parametrize(
    "arguments",
    [("pause",), ("resume",), ("retry", "--state", "failed"), ("prioritize", "a"), ("amend",), ("erase", "a")],
)
def test_an_empty_reason_is_refused_everywhere(gemslide, begun_project, arguments):
    verb, *more = arguments
    done = _study(gemslide, begun_project, verb, *more, "--why", "")
    assert done.code == 1
    assert "needs a reason" in done.err


@pytest.fixture(scope="module")
def begun_project(small_project, tmp_path_factory) -> Project:
    folder = tmp_path_factory.mktemp("reasons")
    project = make_project(small_project, folder, slides=("a",))
    description = AboutStudy(title="", question="?", cohort=str(folder / "cohort.csv"))
    new_protocol(project, "s", description, [small_project.model_id])
    with Ledger(Database(f"sqlite:///{project.root}/gemslide.db")) as ledger:
        begin_study(project, "s", ledger, actor="ada")
    return project


@pytest.mark.parametrize("question", [(), ("--question", ""), ("--question", " \u200b")])
def test_a_study_without_a_question_is_refused_and_nothing_is_written(gemslide, small_project, tmp_path, question):
    project = make_project(small_project, tmp_path, slides=("a",))
    arguments = ("--cohort", tmp_path / "cohort.csv", "--model", small_project.model_id, *question)
    done = gemslide("study", "init", "q", *arguments, "--project", project.root)
    assert done.code == 1
    assert "question" in done.err
    assert not (project.root / "studies").exists()


def test_a_new_protocol_has_example_endpoints_that_hold_when_they_are_uncommented(gemslide, small_project, tmp_path):
    project = with_protocol(make_project(small_project, tmp_path, slides=("a",)), small_project, gemslide)
    path = project.root / "studies/s/study.toml"
    assert load_protocol(path).endpoints == ()
    lines = path.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line == "# [[endpoints]]")
    last = next(number for number, line in enumerate(lines) if line.startswith("[patience]"))
    shown = [line.removeprefix("# ") for line in lines[first:last]]
    path.write_text("\n".join([*lines[:first], *shown, *lines[last:]]))
    endpoints = load_protocol(path).endpoints
    assert [endpoint.measure for endpoint in endpoints] == ["auc", "sensitivity"]
    assert {endpoint.model for endpoint in endpoints} == {small_project.model_id}
