"""Content of a study's pages, made from its ledger. Pure: nothing here draws."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pathology_app.html.tables import SHORT_HASH, Column, Swatch, bar, table
from pathology_app.html.text import as_text, time_text, without_folders
from pipeline.ledger.ledger import Counts, StudyRow
from pipeline.ledger.tables import SLIDE_STATES
from pipeline.study.outcomes.failures import Failures
from pipeline.study.outcomes.progress import Progress
from pipeline.study.outcomes.retries import MAY_BE_RETRIED
from pipeline.study.work.owner import Owner
from training.foundation.words.counts import counted

STATE_COLOURS = {
    "done": "#2e7d32",
    "pending": "#c3cad3",
    "no_tissue": "#4f6d8f",
    "qc_failed": "#f2b632",
    "refused": "#e07b1a",
    "unreadable": "#c62828",
    "failed": "#7b1fa2",
    "excluded": "#6b7280",
}
_ORDER = ("done", "pending", *(state for state in SLIDE_STATES if state not in ("done", "pending")))
TASK_WORDS = {"done": "done", "leased": "held", "ready": "ready", "blocked": "waiting", "ended": "ended"}
"""As in `gemslide study status`."""

Entry = Any
"""A row of a table of the ledger."""


def about(row: StudyRow) -> tuple[str, str]:
    """Title and question of a study; empty where its protocol has none."""
    try:
        study = json.loads(row.protocol)["study"]
        return str(study.get("title", "")), str(study.get("question", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        return "", ""


def has_readings(row: StudyRow) -> bool:
    """Whether a study's protocol defines readings."""
    try:
        return json.loads(row.protocol).get("reading") is not None
    except (ValueError, AttributeError):
        return False


def states_html(counts: Counts) -> str:
    """Slides by state, as a bar and as a table that adds up to the cohort."""
    slides = {state: counts.slides[state] for state in _ORDER}
    columns = (Column("State"), Column("Slides", "number"), Column("Share", "number"))
    rows = [
        (Swatch(state, STATE_COLOURS[state]), _count(number), _share(number, counts.total))
        for state, number in slides.items()
        if number
    ]
    foot = ("Cohort", _count(counts.total), _share(counts.total, counts.total))
    return bar(slides, STATE_COLOURS) + table(columns, rows, foot=foot, label="Slides by state")


def tasks_html(progress: Progress) -> str:
    """Tasks by stage and state, with the mean time of a finished task."""
    columns = (
        Column("Stage"),
        *(Column(word.capitalize(), "number") for word in TASK_WORDS.values()),
        Column("Mean time", "number"),
    )
    rows = [
        (stage, *(_count(number[state]) for state in TASK_WORDS), duration_text(progress.mean_s.get(stage)))
        for stage, number in progress.counts.tasks.items()
    ]
    return table(columns, rows, label="Tasks by stage")


def workers_html(held: Iterable[Entry]) -> str:
    """Workers, each with its task, when it took it, and when it was last seen."""
    columns = (
        Column("Worker"),
        Column("Slide"),
        Column("Stage"),
        Column("Since (UTC)", "fixed"),
        Column("Last seen (UTC)", "fixed"),
    )
    rows = [
        (worker_text(row.owner), row.slide_id, row.stage, time_text(row.started_utc), time_text(row.beat_utc))
        for row in held
    ]
    return table(columns, rows, label="Workers")


def worker_text(owner: str | None) -> str:
    """A lease's owner in readable form: its machine and process number."""
    parsed = Owner.parse(owner or "")
    return f"{parsed.host}, process {parsed.pid}" if parsed else owner or ""


def slide_rows(slides: Sequence[Entry], tasks: Iterable[Entry], root: Path) -> list[dict[str, Any]]:
    """Rows of the slides' table, each with the stage that its slide is at, or ended at.

    Args:
        tasks: tasks of these slides, in the order of stages.
        root: the project's folder, which is removed from reasons.
    """
    slide_tasks: dict[str, list[Entry]] = {row.slide_id: [] for row in slides}
    for row in tasks:
        slide_tasks[row.slide_id].append(row)
    return [
        {
            "slide": as_text(row.slide_id),
            "state": row.state,
            "at": "" if row.state == "excluded" else as_text(_current_stage(slide_tasks[row.slide_id])),
            "code": as_text(row.code or ""),
            # The table already has the slide's name.
            "reason": without_folders((row.message or "").removeprefix(f"slide {row.slide_id}: "), root),
            "site": as_text(row.site or ""),
            "scanner": as_text(row.scanner or ""),
            "ended": time_text(row.ended_utc),
        }
        for row in slides
    ]


def filled(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns with a value in any row; without rows, an empty list, which shows all."""
    return [name for name in rows[0] if any(row[name] for row in rows)] if rows else []


def stages_html(tasks: Iterable[Entry], root: Path, *, said: str | None = None) -> str:
    """A slide's stages: state, worker, duration and reason of each.

    Args:
        root: the project's folder, which is removed from reasons.
        said: a reason already shown on the page, which is not repeated.
    """
    columns = (
        Column("Stage"),
        Column("State", "fixed"),
        Column("Attempts", "number"),
        Column("Worker"),
        Column("Began (UTC)", "fixed"),
        Column("Ended (UTC)", "fixed"),
        Column("Time", "number"),
        Column("Code", "fixed"),
        Column("Reason", "long"),
        Column("Output", "hash"),
    )
    rows = [
        (
            row.stage,
            TASK_WORDS.get(row.state, row.state),
            row.attempts or None,
            worker_text(row.owner),
            time_text(row.started_utc),
            time_text(row.ended_utc),
            duration_text(row.seconds),
            row.code,
            without_folders(row.message, root) if row.message and row.message != said else None,
            row.output_sha256,
        )
        for row in tasks
    ]
    return table(columns, rows, label="Stages")


def history_html(entries: Iterable[Entry], *, label: str) -> str:
    """Log entries about a study or one of its slides, in the given order."""
    columns = (
        Column("Entry", "number"),
        Column("Time (UTC)", "fixed"),
        Column("Person"),
        Column("Action"),
        Column("Stage"),
        Column("Why", "long"),
    )
    rows = [
        (row.seq, time_text(row.utc), row.actor, _action_text(row), _entry_stage(row.subject), row.why)
        for row in entries
    ]
    return table(columns, rows, label=label)


def failures_title(failures: Failures) -> str:
    """A group in one line: "corrupt_tile: 12 slides ended as unreadable"."""
    code = "" if failures.code == failures.state else f"{failures.code or 'without a code'}: "
    return f"{code}{counted(failures.slides, 'slide')} ended as {failures.state}"


def failures_example(failures: Failures, root: Path) -> str:
    """The reason of one slide of a group; most reasons begin with its name."""
    slide = f"slide {failures.example}"
    reason = without_folders(failures.message, root) or "no reason was given."
    return reason if reason.startswith(f"{slide}:") else f"{slide}: {reason}"


def without_result(counts: Counts) -> int:
    """Number of slides that ended without a result and can be retried."""
    return _without_result(counts.slides)


def facts(progress: Progress) -> dict[str, str]:
    """Progress of a study in a few numbers."""
    counts = progress.counts
    ended = counts.total - counts.slides["pending"]
    return {
        "Slides finished": f"{ended:,} of {counts.total:,} ({_share(ended, counts.total)})",
        "Workers": _count(progress.workers),
        "Slides per hour": rate_text(progress),
        "Estimated time left": left_text(progress),
    }


def slide_facts(row: Entry) -> dict[str, str]:
    """Known facts of a slide; unknown ones are left out."""
    known = {
        "State": row.state,
        "Code": row.code,
        "Ended (UTC)": time_text(row.ended_utc),
        "Site": row.site,
        "Scanner": row.scanner,
        "Priority": str(row.priority) if row.priority else "",
        "File's SHA-256": row.source_sha256 and row.source_sha256[:SHORT_HASH] + "…",
    }
    return {name: value for name, value in known.items() if value}


def rate_text(progress: Progress) -> str:
    """Slides per hour; "–" where unknown."""
    rate = progress.slides_per_hour
    return "–" if not rate else f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def left_text(progress: Progress) -> str:
    """Estimated time left: "2 h 5 min"."""
    if progress.counts.is_over:
        return "none"
    return "–" if progress.left_s is None else duration_text(progress.left_s)


def duration_text(seconds: float | None) -> str:
    """ "0.3 s", "41 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"; empty where unknown."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def _current_stage(tasks: Sequence[Entry]) -> str:
    """The first stage that is not done, and its state; empty where all are done."""
    row = next((task for task in tasks if task.state != "done"), None)
    return "" if row is None else row.stage if row.state == "ended" else f"{row.stage}: {TASK_WORDS[row.state]}"


def _entry_stage(subject: str | None) -> str:
    """The stage that an entry is about: "ingest" of "task S-1/ingest"."""
    return (subject or "").partition("/")[2] if (subject or "").startswith("task ") else ""


def _action_text(row: Entry) -> str:
    """An entry's action, with its code if it has one."""
    try:
        code = json.loads(row.details)["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return f"{row.action} ({code})" if isinstance(code, str) and code else str(row.action)


def _count(number: int) -> str:
    return f"{number:,}"


def _without_result(slides: Mapping[str, int]) -> int:
    return sum(number for state, number in slides.items() if state in MAY_BE_RETRIED)


def _share(number: int, total: int) -> str:
    return f"{number / total:.1%}" if total else ""


def study_rows(studies: Iterable[tuple[StudyRow, Mapping[str, int]]]) -> list[dict[str, Any]]:
    """Rows of the studies' table, each with its slides by state."""
    return [
        {
            "study": as_text(row.study_id),
            "title": as_text(about(row)[0]),
            "state": row.state if slides.get("pending") else "ended",
            "slides": sum(slides.values()),
            "done": slides.get("done", 0),
            "pending": slides.get("pending", 0),
            "without_result": _without_result(slides),
        }
        for row, slides in studies
    ]
