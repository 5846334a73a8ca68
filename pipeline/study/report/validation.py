"""Whether a validation of digital pathology reached what its guideline asks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pipeline.evaluation.agreement import concordance
from pipeline.study.report.facts import Facts
from pipeline.study.report.table import Cell, Table, interval

Row = tuple[Cell, ...]


def validation_table(facts: Facts, given: pd.DataFrame) -> list[Table]:
    """Criteria, one per row: what is asked, what was found, whether that is enough.

    Args:
        given: answers of signed readings, with reader, arm, slide_id, question and value.
    """
    asked = facts.protocol.validation
    if asked is None:
        return []
    own = given[given["question"] == asked.question]
    glass, digital = (own[own["arm"] == arm][["reader", "slide_id", "value"]] for arm in ("glass", "digital"))
    both = glass.merge(digital, on=["reader", "slide_id"])
    reading = facts.protocol.reading
    assert reading is not None
    days = reading.washout_days
    rows: list[Row] = [_row("days between readings", f"at least {asked.min_washout_days:g}", f"{days:g}", True)]
    for reader in reading.readers:
        of_reader = both[both["reader"] == reader]
        cases = len(of_reader)
        rows.append(_row(f"{reader}: cases", f"at least {asked.min_cases}", str(cases), cases >= asked.min_cases))
        if cases:
            same = (of_reader["value_x"] == of_reader["value_y"]).to_numpy()
            found = concordance(same.astype(np.int64), np.ones(cases, np.int64))
            said = f"{found.value:.3f} ({interval(found.low, found.high)})"
            is_met = found.value is not None and found.value >= asked.min_concordance
            rows.append(_row(f"{reader}: concordance", f"at least {asked.min_concordance:g}", said, is_met))
    note = "Glass against digital by the same reader; after Evans et al., Arch Pathol Lab Med 146:440, 2022."
    columns = ("criterion", "asked", "found", "met")
    return [Table("validation", "Validation of digital pathology", columns, rows, note=note)]


def _row(criterion: str, asked: str, found: str, is_met: bool) -> Row:
    return (criterion, asked, found, "yes" if is_met else "no")
