"""Content of the pages of runs. Pure: nothing here draws."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pathology_app.app_pages.runs.slide_level import drawn_points, figure_name, figure_of, target_charts
from pathology_app.app_pages.studies.rows import duration_text
from pathology_app.html import tables as html_tables
from pathology_app.html.line_chart import Curve, line_chart
from pathology_app.html.tables import Column, Link, Swatch
from pathology_app.html.text import as_text, without_folders
from pathology_app.jobs.curves import Curves, epochs
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import GOOD_STATES
from pathology_app.jobs.progress import Progress
from pathology_app.jobs.state import JobState, JobStatus
from pathology_app.links.runs import RunLink
from training.foundation.words.counts import counted

PARTIAL = "partial"
"""State of a run that has ended with a result for some slides and not for others."""
COLOURS = {
    PARTIAL: "#b26a00",
    "running": "#1565c0",
    "stopping": "#b26a00",
    "done": "#2e7d32",
    "failed": "#c62828",
    "stopped": "#6b7280",
    "interrupted": "#6b7280",
    "lost": "#7b1fa2",
    "damaged": "#7b1fa2",
}
_COLUMNS = (
    Column("Started (UTC)", "fixed"),
    Column("Run"),
    Column("Subject"),
    Column("State"),
    Column("Outcome", "long"),
    Column("Duration", "fixed"),
    Column("Started by"),
)
_MAX_SETTINGS = 200
_LOSSES = (
    ("train/loss", "training, each step", "#8a94a6", "thin"),
    ("train/epoch_loss", "training, each epoch", "#1565c0", "dots"),
    ("val/loss", "validation", "#c2185b", "dots"),
)
_SHARES = (
    ("val/accuracy", "accuracy", "#2e7d32", "dots"),
    ("val/balanced_accuracy", "balanced accuracy", "#1565c0", "dots"),
    ("val/auc", "AUC", "#c2185b", "dots"),
)

RESUMED = {
    "ingest": "Finished slides are kept. An unfinished slide has no store yet: if you start the same run again, it "
    "skips finished slides and resumes that slide after its last finished part.",
    "infer": "Finished slides keep their results. If you start the same run again, it skips them and continues an "
    "unfinished slide after its last finished batch.",
    "train": "No model package was written. Checkpoints are kept: if you start the same run again, it continues at the "
    "last one, or at the first step if there is none.",
    "study run": "The workers' tasks are returned to the study's ledger. If you start it again, the study continues "
    "with the remaining tasks.",
    "study begin": "A study begins either completely or not at all.",
}
"""Note on the state that a stopped or lost run leaves, by verb."""


def runs_html(runs: Iterable[RunSummary], progress: Mapping[str, Progress], root: Path) -> str:
    """The list; a row links to its run.

    Args:
        progress: progress of running ones, by id.
    """
    rows = [
        (
            f"{run.began:%Y-%m-%d %H:%M}",
            Link(run.verb or run.run_id, RunLink(run.run_id).query()),
            run.about,
            _swatch(run, progress.get(run.run_id)),
            running_text(progress[run.run_id]) if run.run_id in progress else outcome_text(run, root),
            duration_text(run.seconds),
            run.job.job.by if run.job else "command line" if run.record else "",
        )
        for run in runs
    ]
    return html_tables.table(_COLUMNS, rows, label="Runs")


def state_of(run: RunSummary, progress: Progress | None = None) -> tuple[str, str]:
    """State of a run, and its word: ("partial", "2 of 4 done") where some slides have no result."""
    slides = run.record.slides if run.record else progress.counted.states if progress else {}
    done = sum(number for state, number in slides.items() if state in GOOD_STATES)
    requested = run.job.job.slides or 0 if run.job and run.state == JobState.FAILED else 0
    total = max(sum(slides.values()), requested)
    if run.state in (JobState.DONE, JobState.FAILED) and 0 < done < total:
        return PARTIAL, f"{done:,} of {total:,} done"
    return run.state, run.state


def _swatch(run: RunSummary, progress: Progress | None) -> Swatch:
    state, word = state_of(run, progress)
    return Swatch(word, COLOURS.get(state, COLOURS["damaged"]))


def running_text(progress: Progress) -> str:
    """Progress of a run in one line."""
    total = f"of {counted(progress.total or 0, progress.unit)}"
    done = counted(progress.done, progress.unit) if progress.total is None else f"{progress.done:,} {total}"
    failed = f", {progress.failed:,} without a result" if progress.failed else ""
    left = "" if progress.left_s is None else f", about {duration_text(progress.left_s)} left"
    return f"{done}{failed}{left}" if done_text(progress) else ""


def outcome_text(run: RunSummary, root: Path) -> str:
    """Outcome of a run in one line."""
    if run.damage:
        return without_folders(run.damage, root)
    if run.record and run.record.slides:
        return states_text(run.record.slides)
    if run.record and run.record.models:
        return f"best model {run.record.models.get('best', '')}"
    if run.job and not run.runs:
        return ending_text(run.job)
    return run.record.outcome if run.record else ""


def ending_text(status: JobStatus) -> str:
    """Details of a job's end, in addition to its one-word state."""
    ending, stop = status.ending, status.stop
    if ending is None:
        return "" if status.runs else "its process no longer exists: it was killed, or the computer was restarted"
    if ending.exit_code == 0:
        return ""
    if ending.is_stopped:
        killed = ", killed because it did not stop in time" if ending.is_killed else ""
        return f"by {stop.by if stop else 'the system'}{killed}"
    return f"exit code {ending.exit_code}" if ending.exit_code > 0 else f"ended by signal {-ending.exit_code}"


def last_error_line(lines: Sequence[str]) -> str:
    """The last line of a log that reads as a sentence; empty where there is none."""
    readable = (line for line in reversed(lines) if line[:1].isalpha())
    return next(readable, "")


def command_text(argv: Sequence[str], root: Path) -> str:
    """A command line as typed, without folders of this computer."""
    return " ".join(["gemslide", *(without_folders(shlex.quote(word), root) for word in argv)])


def states_text(states: Mapping[str, int]) -> str:
    """ "3 done, 1 refused"."""
    return ", ".join(f"{number:,} {as_text(state)}" for state, number in states.items())


def run_facts(run: RunSummary, progress: Progress) -> dict[str, str]:
    """Short facts at the top of a run's page; of a slide-level training, `slide_level.training_facts` adds to them."""
    facts = {"Started (UTC)": f"{run.began:%Y-%m-%d %H:%M:%S}"}
    if run.seconds is not None:
        facts["Running for" if run.runs else "Duration"] = duration_text(run.seconds)
    if done := done_text(progress):
        facts[f"{progress.unit.capitalize()}s done"] = done
    if progress.failed:
        facts["Without a result"] = f"{progress.failed:,}"
    if run.runs and progress.ended and run.seconds:
        facts["Rate"] = f"{progress.ended / run.seconds * 60:.3g} per min"
    if run.runs and progress.left_s is not None:
        facts["Estimated time left"] = duration_text(progress.left_s)
    return facts


def done_text(progress: Progress) -> str:
    """ "3 of 10"; empty where nothing is done and the total is unknown."""
    if progress.total is None:
        return f"{progress.done:,}" if progress.done else ""
    return f"{progress.done:,} of {progress.total:,}"


def progress_html(progress: Progress) -> str:
    """A bar of the parts done, without a result, and left; empty where the total is unknown."""
    if not progress.total:
        return ""
    left = max(0, progress.total - progress.ended)
    parts = {"done": progress.done, "without a result": progress.failed, "left": left}
    colours = dict(zip(parts, ("#1565c0", COLOURS["failed"], "#d5d9e0"), strict=True))
    return html_tables.bar(parts, colours)


def log_text(lines: Iterable[str], root: Path) -> str:
    """The end of a log, without folders of this computer and without tables drawn for a terminal."""
    return "\n".join(without_folders(line, root) for line in lines if not "\u2500" <= line[:1] <= "\u257f")


def curves_html(curves: Curves) -> dict[str, str]:
    """Charts by heading."""
    losses, shares = _chart(curves, _LOSSES, "Loss"), _chart(curves, _SHARES, "Validation", y_to=1.0)
    charts = {heading: chart for heading, chart in (("Loss", losses), ("Validation", shares)) if chart}
    return charts | target_charts(curves)


def epochs_html(curves: Curves) -> str:
    """A row per validation."""
    rows = epochs(curves)
    figures = sorted({tag for row in rows for tag in row if tag.startswith("val/")})
    columns = [Column("Epoch", "number"), Column("Steps", "number"), Column("Training loss", "number")]
    columns += [Column(_heading(tag), "number") for tag in figures]
    cells = (
        [number, int(row["step"]), *(f"{row[tag]:.4f}" if tag in row else "" for tag in ("train/epoch_loss", *figures))]
        for number, row in enumerate(rows, start=1)
    )
    return html_tables.table(columns, cells, label="Epochs") if rows else ""


def _heading(tag: str) -> str:
    """Heading of a validation's figure: "Validation balanced accuracy"; with its target if it has one: "grade: AUC"."""
    if named := figure_of(tag):
        return f"{named[0]}: {figure_name(named[1])}"
    return f"Validation {tag.removeprefix('val/').replace('_', ' ')}"


def _chart(curves: Curves, wanted: Sequence[tuple[str, str, str, str]], label: str, y_to: float | None = None) -> str:
    drawn = [
        Curve(name, drawn_points(curves, tag), colour, style)
        for tag, name, colour, style in wanted
        if tag in curves.points
    ]
    return line_chart(drawn, label=f"{label} by step", x_name="step", y_to=y_to)


def flat(settings: Mapping[str, object], above: str = "") -> list[tuple[str, str]]:
    """Settings as (name, value), nested tables with dotted names; at most 200."""
    rows: list[tuple[str, str]] = []
    for name, value in list(settings.items())[:_MAX_SETTINGS]:
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            value = {str(number): entry for number, entry in enumerate(value[:_MAX_SETTINGS], start=1)}
        if isinstance(value, dict) and value and above.count(".") < 3:
            rows += flat(value, f"{above}{name}.")
        else:
            rows.append((f"{above}{name}", str(value)))
    return rows[:_MAX_SETTINGS]
