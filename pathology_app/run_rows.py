"""From what is known of runs to what their pages show. Pure: nothing here draws."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pathology_app import html_tables
from pathology_app.html_tables import Column, Link, Swatch
from pathology_app.jobs.curves import Curves, epochs, thinned
from pathology_app.jobs.history import RunSummary
from pathology_app.jobs.job_log import Counted
from pathology_app.jobs.state import JobStatus
from pathology_app.line_chart import Curve, line_chart
from pathology_app.run_link import RunLink
from pathology_app.study_rows import duration_text
from pathology_app.text import as_text, without_folders

COLOURS = {
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
    Column("What"),
    Column("State"),
    Column("Outcome", "long"),
    Column("Took", "fixed"),
    Column("Who"),
)
_MAX_POINTS = 400
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
    "ingest": "Finished slides stay. A slide in the middle is no store yet: the same run, started again, skips what is "
    "finished and goes on with that slide at its last finished part.",
    "infer": "Finished slides keep their results. The same run, started again, skips them and goes on with a slide in "
    "the middle at its last finished batch.",
    "train": "No model package was written. A training keeps nothing in between: started again, it begins at its first "
    "step.",
    "study run": "What workers had is given back to the study's ledger. Started again, the study goes on with what is "
    "left.",
    "study begin": "A study has begun either wholly or not at all.",
}
"""What a run that was stopped, or is lost, leaves."""


def runs_html(runs: Iterable[RunSummary], root: Path) -> str:
    """The list; a row leads to its run."""
    rows = [
        (
            f"{run.began:%Y-%m-%d %H:%M}",
            Link(run.verb or run.run_id, RunLink(run.run_id).query()),
            run.about,
            Swatch(run.state, COLOURS.get(run.state, COLOURS["damaged"])),
            outcome_text(run, root),
            duration_text(run.seconds),
            run.job.job.by if run.job else "command line" if run.record else "",
        )
        for run in runs
    ]
    return html_tables.table(_COLUMNS, rows, label="Runs")


def outcome_text(run: RunSummary, root: Path) -> str:
    """How it came out, in a line."""
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
    """How a job ended, beside its state in one word."""
    ending, stop = status.ending, status.stop
    if ending is None:
        return "" if status.runs else "its process is gone: it was killed, or its computer was started again"
    if ending.exit_code == 0:
        return ""
    if ending.is_stopped:
        killed = ", killed because it did not end by itself" if ending.is_killed else ""
        return f"by {stop.by if stop else 'the system'}{killed}"
    return f"exit code {ending.exit_code}" if ending.exit_code > 0 else f"ended by signal {-ending.exit_code}"


def last_words(lines: Sequence[str]) -> str:
    """The last line of a log that a person can read as a sentence; empty where there is none."""
    readable = (line for line in reversed(lines) if line[:1].isalpha())
    return next(readable, "")


def command_text(argv: Sequence[str], root: Path) -> str:
    """A command line as it is typed, without folders of this computer."""
    return " ".join(["gemslide", *(without_folders(shlex.quote(word), root) for word in argv)])


def states_text(states: Mapping[str, int]) -> str:
    """ "3 done, 1 refused"."""
    return ", ".join(f"{number:,} {as_text(state)}" for state, number in states.items())


def run_facts(run: RunSummary, counted: Counted, curves: Curves | None) -> dict[str, str]:
    """Short facts above everything else."""
    facts = {"Started (UTC)": f"{run.began:%Y-%m-%d %H:%M:%S}"}
    if run.seconds is not None:
        facts["Running for" if run.runs else "Took"] = duration_text(run.seconds)
    done, total, unit = progress(run, counted, curves)
    if total is not None:
        facts[f"{unit.capitalize()} done"] = f"{done:,} of {total:,}"
    elif done:
        facts[f"{unit.capitalize()} done"] = f"{done:,}"
    if run.runs and (left := left_s(run, counted, curves)) is not None:
        facts["Left, about"] = duration_text(left)
    return facts


def progress(run: RunSummary, counted: Counted, curves: Curves | None) -> tuple[int, int | None, str]:
    """How much is done, of how much, and of what."""
    if run.verb == "train":
        return (curves.steps_done, curves.num_steps, "steps") if curves else (0, None, "steps")
    total = run.job.job.slides if run.job else sum(run.record.slides.values()) if run.record else None
    done = counted.slides if run.job else total or 0
    return done, total or None, "slides"


def left_s(run: RunSummary, counted: Counted, curves: Curves | None) -> float | None:
    """About how long the rest takes, at the pace so far; None where that cannot be said."""
    if run.verb == "train":
        return curves.left_s if curves else None
    done, total, _ = progress(run, counted, curves)
    if not done or total is None or not run.seconds:
        return None
    return max(0, total - done) * run.seconds / done


def progress_html(done: int, total: int, unit: str) -> str:
    """A bar of what is done and what is left."""
    done = min(done, total)
    parts = {f"{unit} done": done, f"{unit} left": total - done}
    return html_tables.bar(parts, dict(zip(parts, ("#1565c0", "#d5d9e0"), strict=True)))


def slides_html(counted: Counted, root: Path) -> str:
    """Slides that did not end well, with the reason."""
    columns = (Column("Slide"), Column("State"), Column("Code"), Column("Reason", "long"))
    rows = (
        (each["slide_id"], each["status"], each["code"], without_folders(each["message"], root)) for each in counted.bad
    )
    return html_tables.table(columns, rows, label="Slides without a result")


def links_html(slides: Sequence[str], model: str | None) -> str:
    """Slides that ended well, each leading to its page."""
    more = {"model": model} if model else {}
    rows = ((Link(slide, {"slide": slide, **more}),) for slide in slides)
    return html_tables.table((Column("Slide"),), rows, label="Finished slides")


def curves_html(curves: Curves) -> dict[str, str]:
    """Charts by heading."""
    losses, shares = _chart(curves, _LOSSES, "Loss"), _chart(curves, _SHARES, "Validation", y_to=1.0)
    return {heading: chart for heading, chart in (("Loss", losses), ("Validation", shares)) if chart}


def epochs_html(curves: Curves) -> str:
    """A row per validation."""
    rows = epochs(curves)
    figures = sorted({tag for row in rows for tag in row if tag.startswith("val/")})
    columns = [Column("Epoch", "number"), Column("Steps", "number"), Column("Training loss", "number")]
    columns += [Column(f"Validation {tag.removeprefix('val/').replace('_', ' ')}", "number") for tag in figures]
    cells = (
        [number, int(row["step"]), *(f"{row[tag]:.4f}" if tag in row else "" for tag in ("train/epoch_loss", *figures))]
        for number, row in enumerate(rows, start=1)
    )
    return html_tables.table(columns, cells, label="Epochs") if rows else ""


def _chart(curves: Curves, wanted: Sequence[tuple[str, str, str, str]], label: str, y_to: float | None = None) -> str:
    drawn = [
        Curve(name, [(step + 1, value) for step, value in thinned(curves.points[tag], _MAX_POINTS)], colour, style)
        for tag, name, colour, style in wanted
        if tag in curves.points
    ]
    return line_chart(drawn, label=f"{label} by step", x_name="step", y_to=y_to)


def flat(settings: Mapping[str, object], above: str = "") -> list[tuple[str, str]]:
    """Settings as (name, value), tables in tables by names with dots; at most 200."""
    rows: list[tuple[str, str]] = []
    for name, value in list(settings.items())[:_MAX_SETTINGS]:
        if isinstance(value, dict) and value and above.count(".") < 3:
            rows += flat(value, f"{above}{name}.")
        else:
            rows.append((f"{above}{name}", str(value)))
    return rows[:_MAX_SETTINGS]
