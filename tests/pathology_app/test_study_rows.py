"""Text of the study pages about rows of a ledger."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pathology_app.app_pages.studies import rows as study_rows
from pipeline.ledger.ledger import Counts, StudyRow
from pipeline.ledger.tables import SLIDE_STATES, TASK_STATES
from pipeline.study.outcomes.failures import Failures
from pipeline.study.outcomes.progress import Progress
from pipeline.study.work.owner import this_process

ROOT = Path("/data/study")
UTC = "2026-11-20T14:03:12.5Z"


def counts(**slides: int) -> Counts:
    tasks = dict.fromkeys(TASK_STATES, 0) | {"done": 3, "leased": 1}
    return Counts(dict.fromkeys(SLIDE_STATES, 0) | slides, {"ingest": tasks})


def a_slide(**given: Any) -> Any:
    empty = dict.fromkeys(("code", "message", "site", "scanner", "ended_utc", "source_sha256"))
    return SimpleNamespace(**({"slide_id": "S-1", "state": "pending", "priority": 0} | empty | given))


def a_task(stage: str, state: str, **given: Any) -> Any:
    empty = dict.fromkeys(
        ("owner", "started_utc", "ended_utc", "beat_utc", "seconds", "code", "message", "output_sha256")
    )
    return SimpleNamespace(**({"slide_id": "S-1", "stage": stage, "state": state, "attempts": 0} | empty | given))


def an_entry(**given: Any) -> Any:
    entry = {"seq": 7, "utc": "2026-11-20T14:03:12.123456Z", "actor": "ada", "action": "task ended", "why": ""}
    return SimpleNamespace(**(entry | {"subject": "task S-1/infer a/b", "details": '{"code": "locked"}'} | given))


def cells(drawn: str) -> list[str]:
    return re.findall(r"<td[^>]*>(?:<span[^>]*></span>)?(.*?)</td>", drawn)


def test_slides_by_state_add_up_to_the_cohort() -> None:
    drawn = study_rows.states_html(counts(done=2000, failed=1, excluded=999))
    assert cells(drawn) == [
        "done", "2,000", "66.7%", "failed", "1", "0.0%", "excluded", "999", "33.3%", "Cohort", "3,000", "100.0%",
    ]  # fmt: skip
    assert set(study_rows.STATE_COLOURS) == set(SLIDE_STATES)
    assert set(study_rows.TASK_WORDS) == set(TASK_STATES)


def test_a_study_in_numbers() -> None:
    progress = Progress(counts(done=2, pending=1, failed=1), {"ingest": 90.0}, 1, 7500.0, UTC)
    assert study_rows.facts(progress) == {
        "Slides finished": "3 of 4 (75.0%)",
        "Workers": "1",
        "Slides per hour": "40",
        "Estimated time left": "2 h 5 min",
    }
    assert study_rows.without_result(progress.counts) == 1
    assert cells(study_rows.tasks_html(progress)) == ["ingest", "3", "1", "0", "0", "0", "1 min 30 s"]
    unknown = study_rows.facts(Progress(counts(pending=1), {}, 0, None, UTC))
    assert (unknown["Slides per hour"], unknown["Estimated time left"]) == ("–", "–")
    assert study_rows.left_text(Progress(counts(done=1), {}, 0, 0.0, UTC)) == "none"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0, "0.0 s"), (9.94, "9.9 s"), (41.2, "41 s"), (60, "1 min"), (200, "3 min 20 s"),
     (7500, "2 h 5 min"), (3600, "1 h"), (273_600, "3 d 4 h")],
)  # fmt: skip
def test_times_are_said_as_people_say_them(seconds: float | None, text: str) -> None:
    assert study_rows.duration_text(seconds) == text


def test_a_worker_is_its_machine_and_its_process() -> None:
    owner = this_process()
    assert study_rows.worker_text(str(owner)) == f"{owner.host}, process {owner.pid}"
    assert study_rows.worker_text("something else") == "something else"
    row = a_task(
        "qc", "leased", owner=str(owner), started_utc="2026-11-20T14:03:12.1Z", beat_utc="2026-11-20T14:04:00Z"
    )
    assert cells(study_rows.workers_html([row]))[1:] == ["S-1", "qc", "2026-11-20 14:03:12", "2026-11-20 14:04:00"]


@pytest.mark.parametrize(
    ("states", "at"),
    [(("leased", "blocked"), "ingest: held"), (("done", "ready"), "qc: ready"), (("done", "ended"), "qc"),
     (("done", "done"), "")],
)  # fmt: skip
def test_a_slides_row_says_at_which_stage_it_is(states: tuple[str, str], at: str) -> None:
    tasks = [a_task(stage, state) for stage, state in zip(("ingest", "qc"), states, strict=True)]
    (row,) = study_rows.slide_rows([a_slide()], tasks, ROOT)
    assert row["at"] == at


def test_a_slides_reason_is_one_line_without_its_name_and_without_folders() -> None:
    message = "slide S-1: no such file.\nLooked in /mnt/scans/a.svs and /data/study/b.svs."
    (row,) = study_rows.slide_rows([a_slide(message=message)], [], ROOT)
    assert row["reason"] == "no such file. Looked in …/a.svs and b.svs."
    failures = Failures("unreadable", "unreadable", 2, "S-1", message)
    assert study_rows.failures_example(failures, ROOT) == f"slide S-1: {row['reason']}"
    other = Failures("failed", "", 1, "S-1", "")
    assert study_rows.failures_example(other, ROOT) == "slide S-1: no reason was given."
    assert study_rows.failures_title(failures) == "2 slides ended as unreadable"
    assert study_rows.failures_title(other) == "without a code: 1 slide ended as failed"


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    (row,) = study_rows.slide_rows([a_slide(site="Lund")], [], ROOT)
    assert study_rows.filled([row]) == ["slide", "state", "site"]
    assert study_rows.filled([]) == []


def test_a_stage_says_how_it_ended_and_no_reason_twice() -> None:
    task = a_task("ingest", "ended", attempts=2, seconds=3.0, code="locked", message="held by another")
    assert cells(study_rows.stages_html([task], ROOT)) == ["ingest", "ended", "2", "3.0 s", "locked", "held by another"]
    assert cells(study_rows.stages_html([task], ROOT, said="held by another"))[-1] == "locked"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (an_entry(why="x"), ["7", "2026-11-20 14:03:12", "ada", "task ended (locked)", "infer a/b", "x"]),
        (an_entry(subject="slide S-1/2", details="{}"), ["7", "2026-11-20 14:03:12", "ada", "task ended"]),
        (an_entry(subject=None, details=None, why=None), ["7", "2026-11-20 14:03:12", "ada", "task ended"]),
        (an_entry(details="no JSON"), ["7", "2026-11-20 14:03:12", "ada", "task ended", "infer a/b"]),
        (an_entry(details='{"code": ["x"]}'), ["7", "2026-11-20 14:03:12", "ada", "task ended", "infer a/b"]),
    ],
)
def test_entries_of_the_log_are_said_also_erased_ones(entry: Any, said: list[str]) -> None:
    assert cells(study_rows.history_html([entry], label="Log")) == said


@pytest.mark.parametrize(
    ("protocol", "said"),
    [('{"study": {"title": "t", "question": "q"}}', ("t", "q")), ('{"study": {}}', ("", "")), ("[]", ("", "")),
     ("{", ("", "")), ('{"study": 3}', ("", "")), ('{"study": {"title": [1]}}', ("[1]", ""))],
)  # fmt: skip
def test_a_study_is_called_as_its_protocol_says(protocol: str, said: tuple[str, str]) -> None:
    assert study_rows.about(StudyRow("s", "running", 1, protocol, "0" * 64, "0" * 64)) == said


def test_the_facts_of_a_slide_are_those_that_are_known() -> None:
    slide = a_slide(site="Lund", source_sha256="ab" * 32, priority=0)
    assert study_rows.slide_facts(slide) == {"State": "pending", "Site": "Lund", "File's SHA-256": "abababababab…"}
