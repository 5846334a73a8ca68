"""Check of a validation of digital pathology against its guideline.

The guideline counts cases. A case is a patient with all of their slides: it was read if each of its slides that was
laid out for a reader was signed on glass and on the screen, and it agrees if every slide got the same answer. Days
between its readings are measured from the times in the ledger, not taken from the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np
import pandas as pd

from pipeline.evaluation.statistics.agreement import concordance
from pipeline.study.protocol import Validation
from pipeline.study.report.facts import Facts
from pipeline.study.report.table import Row, Table, interval
from training.foundation.words.counts import counted

ARMS = ("glass", "digital")
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class CaseReadings:
    """One reader's readings of one case.

    Attributes:
        same: whether all slides got the same answer on glass and on the screen; None if one was not read both ways.
        fewest_days: the shortest time from the end of one session's readings of the case to the next session's; None
            with a single session.
    """

    case: str
    same: bool | None
    fewest_days: float | None


def validation_table(facts: Facts) -> list[Table]:
    """Criteria, one per row: the requirement, the finding, and whether it is met; none without a validation."""
    criteria, reading = facts.protocol.validation, facts.protocol.reading
    if criteria is None or reading is None:
        return []
    rows: list[Row] = []
    for reader in reading.readers:
        rows += _rows_of_reader_cases(
            reader, readings_of_cases(facts, reader, criteria.question), criteria, reading.washout_days
        )
    is_met = all(row[-1] == "yes" for row in rows)
    rows.append(_row("all criteria", "each of them", f"{sum(row[-1] == 'yes' for row in rows)} of {len(rows)}", is_met))
    note = (
        "Glass against digital by the same reader, first readings of each; after Evans et al., Arch Pathol Lab Med "
        "146:440, 2022. A case is a patient with all slides. Days are measured by the ledger’s times, from the end of "
        "a case’s readings in one session to the start of those in the next."
    )
    columns = ("criterion", "criteria", "found", "met")
    return [Table("validation", "Validation of digital pathology", columns, rows, note=note)]


def _rows_of_reader_cases(
    reader: str, cases: list[CaseReadings], criteria: Validation, washout_days: float
) -> list[Row]:
    complete = [case for case in cases if case.same is not None]
    number = len(complete)
    read = f"{number}" if number == len(cases) else f"{number} read both ways, of {len(cases)} laid out"
    rows = [_row(f"{reader}: cases", f"at least {criteria.min_cases}", read, number >= criteria.min_cases)]
    same = np.array([case.same for case in complete], dtype=np.int64)
    if number:
        agreement = concordance(same, np.ones(number, np.int64))
        finding = f"{agreement.value:.3f} ({interval(agreement.low, agreement.high)})"
        is_met = agreement.value is not None and agreement.value >= criteria.min_concordance
    else:
        finding, is_met = "no case was read both ways", False
    rows.append(_row(f"{reader}: concordance", f"at least {criteria.min_concordance:g}", finding, is_met))
    for days in dict.fromkeys((criteria.min_washout_days, max(criteria.min_washout_days, washout_days))):
        rows.append(_days_row(reader, cases, days))
    return rows


def _days_row(reader: str, cases: list[CaseReadings], days: float) -> Row:
    required = f"at least {days:g}"
    measured = [case.fewest_days for case in cases if case.fewest_days is not None]
    name = f"{reader}: days between readings"
    if not measured:
        return _row(name, required, "no case was read twice", False)
    finding = f"{_rounded_down(min(measured))} at least, {_rounded_down(float(np.median(measured)))} in the median"
    early = sum(value < days for value in measured)
    if early:
        finding += f"; {early} of {counted(len(measured), 'case')} too early"
    return _row(name, required, finding, not early)


def _rounded_down(days: float) -> str:
    """Rounded down to a tenth: 13.99 days are not 14."""
    return f"{np.floor(days * 10) / 10:g}"


def readings_of_cases(facts: Facts, reader: str, question: str) -> list[CaseReadings]:
    """A reader's cases in order of their names, each with its result."""
    laid_out = facts.readings[(facts.readings["reader"] == reader) & (facts.readings["state"] != "erased")]
    laid_out = laid_out[laid_out["arm"].isin(ARMS)]
    laid_out = laid_out.assign(patient=laid_out["slide_id"].map(facts.slides["patient"]))
    answers = facts.answers[facts.answers["question"] == question][["reader", "session", "position", "value"]]
    signed = laid_out[laid_out["state"] == "signed"].merge(answers, on=["reader", "session", "position"], how="left")
    by_patient = dict(list(signed.groupby("patient")))
    return [
        CaseReadings(str(patient), _same(own, by_patient.get(patient)), _fewest_days(by_patient.get(patient)))
        for patient, own in laid_out.groupby("patient")
    ]


def _same(laid_out: pd.DataFrame, signed: pd.DataFrame | None) -> bool | None:
    if signed is None:
        return None
    answered = signed[signed["value"].notna()]
    first = answered.sort_values("session").drop_duplicates(["slide_id", "arm"])
    wide = first.pivot(index="slide_id", columns="arm", values="value").reindex(columns=list(ARMS))
    wide = wide.reindex(laid_out["slide_id"].unique())
    if wide.isna().to_numpy().any():
        return None
    return bool((wide["glass"] == wide["digital"]).all())


def _fewest_days(signed: pd.DataFrame | None) -> float | None:
    if signed is None or signed["session"].nunique() < 2:
        return None
    spans = sorted(
        (min(map(_time, own["started_utc"])), max(map(_time, own["signed_utc"])))
        for _, own in signed.groupby("session")
    )
    gaps = [(start - end).total_seconds() / SECONDS_PER_DAY for (_, end), (start, _) in pairwise(spans)]
    return max(0.0, min(gaps))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _row(criterion: str, asked: str, found: str, is_met: bool) -> Row:
    return (criterion, asked, found, "yes" if is_met else "no")
