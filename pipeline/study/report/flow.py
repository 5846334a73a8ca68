"""Flow of the cohort, as in CONSORT: received, left out and why, analysed; with times and costs of the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pipeline.ledger.tables import SLIDE_STATES
from pipeline.study.outcomes.remedies import remedy_of
from pipeline.study.report.facts import Facts, text_of
from pipeline.study.report.table import Row, Table
from pipeline.study.stages.qc import QC

ENDED = {
    "no_tissue": "no tissue",
    "qc_failed": "quality control",
    "refused": "refused as input",
    "unreadable": "unreadable",
    "failed": "failed",
    "pending": "not done yet",
}


@dataclass(frozen=True)
class Flow:
    """Number of slides (and patients) at each step."""

    received: tuple[int, int]
    excluded: dict[str, int]
    """By reason."""
    begun: tuple[int, int]
    left_out: dict[str, int]
    """By the way they ended, or not done yet."""
    analysed: tuple[int, int]
    with_reference: tuple[int, int]
    """With a label that tells something about a class."""
    unusable: dict[str, int]
    """Other labels of analysed slides."""


def flow_of(facts: Facts) -> Flow:
    """Slides and patients; a slide without a patient counts as its own patient."""
    slides = facts.slides
    excluded = slides[slides["state"] == "excluded"]
    begun = slides[slides["state"] != "excluded"]
    done = slides[slides["state"] == "done"]
    reasons = Counter(text_of(message) or "no reason given" for message in excluded["message"])
    states = Counter(begun["state"])
    labels = [text_of(label) for label in done["label"]]
    usable = np.array([facts.references.is_usable(label) for label in labels], bool)
    unusable = Counter(label for label, is_usable in zip(labels, usable, strict=True) if label and not is_usable)
    return Flow(
        received=_count(slides),
        excluded=dict(reasons.most_common()),
        begun=_count(begun),
        left_out={words: states[state] for state, words in ENDED.items() if states[state]},
        analysed=_count(done),
        with_reference=_count(done[usable]),
        unusable=dict(unusable.most_common()),
    )


def _count(slides: pd.DataFrame) -> tuple[int, int]:
    return len(slides), int(slides["patient"].nunique())


def state_table(facts: Facts) -> Table:
    """Slides by terminal state and site: each slide once."""
    sites = [text_of(site) or "not known" for site in facts.slides["site"]]
    states, rows = crossed(sites, facts.slides["state"].tolist(), SLIDE_STATES)
    rows.append(("all", *(sum(facts.slides["state"] == state) for state in states)))
    with_totals = [(*row, sum(int(cell) for cell in row[1:] if isinstance(cell, int))) for row in rows]
    return Table("states", "Slides by site and state", ("site", *states, "all"), with_totals)


def crossed(rows: Sequence[str], columns: Sequence[str], order: Sequence[str]) -> tuple[list[str], list[Row]]:
    """Names of the columns that occur, and how often each occurs with each row.

    Args:
        order: of columns; others follow.
    """
    counts = Counter(zip(rows, columns, strict=True))
    occurring = [name for name in dict.fromkeys([*order, *sorted(set(columns))]) if name in set(columns)]
    return occurring, [(row, *(counts[row, name] for name in occurring)) for row in sorted(set(rows))]


def failure_tables(facts: Facts) -> list[Table]:
    """Slides that ended without a result: by code, and one by one."""
    ended = facts.slides[~facts.slides["state"].isin(("done", "excluded", "pending"))]
    if not len(ended):
        return []
    cells = [[text_of(value) for value in ended[name]] for name in ("slide_id", "state", "code", "message")]
    ended_rows: list[Row] = list(zip(*cells, strict=True))
    by_code = Counter((row[1], row[2]) for row in ended_rows)
    counts: list[Row] = [(*key, number, remedy_of(text_of(key[1]))) for key, number in by_code.most_common()]
    columns = ("state", "code", "slides", "what to do")
    return [
        Table("failures_by_code", "Slides without a result, by reason", columns, counts),
        Table("failures", "Slides without a result", ("slide", "state", "code", "what was said"), ended_rows),
    ]


def quality_tables(facts: Facts) -> list[Table]:
    """Tables of quality control: verdicts by scanner, and reasons for review."""
    checked = facts.tasks[(facts.tasks["stage"] == QC.task()) & facts.tasks["measures"].notna()]
    if not len(checked):
        return []
    verdicts = [str(measures.get("verdict") or "not known") for measures in checked["measures"]]
    of_slides = facts.slides["scanner"].to_dict()
    scanners = [text_of(of_slides.get(slide_id)) or "not known" for slide_id in checked["slide_id"]]
    names, rows = crossed(scanners, verdicts, ("ok",))
    by_scanner = Table("quality", "Verdicts of quality control", ("scanner", *names), rows)
    reasons = Counter(reason for measures in checked["measures"] for reason in measures.get("reasons") or ())
    why = Table("quality_reasons", "Reasons for review", ("reason", "slides"), list(reasons.most_common()))
    return [by_scanner, *([why] if reasons else [])]


def time_tables(facts: Facts) -> list[Table]:
    """Seconds (and costs) of the last attempt of each stage, and of whole slides."""
    done = facts.tasks[facts.tasks["state"] == "done"]
    if not len(done):
        return []
    rows = [_times(str(stage), own["seconds"], facts) for stage, own in done.groupby("stage", sort=False)]
    rows.append(_times("whole slide", done.groupby("slide_id")["seconds"].sum(), facts))
    columns: tuple[str, ...] = ("stage", "number", "median s", "95th percentile s", "longest s", "hours")
    analysis = facts.protocol.analysis
    if analysis.cost_per_hour:
        columns = (*columns, f"{analysis.currency} each", f"{analysis.currency} in all")
    tried = facts.tasks[facts.tasks["attempts"] > 1]
    again: list[Row] = [
        (str(stage), len(own), int(own["attempts"].max())) for stage, own in tried.groupby("stage", sort=False)
    ]
    tables = [Table("times", "Time by stage", columns, rows, note="Per worker, on the machines that were used.")]
    if again:
        tables.append(Table("attempts", "Tried more than once", ("stage", "tasks", "attempts at most"), again))
    return tables


def _times(name: str, seconds: pd.Series[float], facts: Facts) -> Row:
    values = seconds.fillna(0).to_numpy(np.float64)
    hours = float(values.sum() / 3600)
    row: Row = (
        name,
        len(values),
        float(np.median(values)),
        float(np.percentile(values, 95)),
        float(values.max()),
        hours,
    )
    per_hour = facts.protocol.analysis.cost_per_hour
    return (*row, per_hour * hours / len(values), per_hour * hours) if per_hour else row
