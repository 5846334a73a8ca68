"""Coverage in the ledger's database: viewings are added to it, and every change has a log entry.

Each record states the rule by which its cells count as seen. Areas recorded by another rule, or before there was one,
are not counted: the record begins again with the next viewing, and keeps only the time that the slide was open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.errors import ChangedSourceError
from pipeline.ledger.chain import utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.review.judging.coverage import (
    Coverage,
    CoverageGrid,
    Viewing,
    check_viewing,
    packed,
    packed_seen,
    unpacked,
    unpacked_seen,
)
from pipeline.review.judging.seen_rule import SeenRule
from pipeline.review.rows.tables import coverage
from pipeline.review.rows.view_context import ViewContext, change_of, log

LOOKED = "slide looked at"


def coverage_of(ledger: Ledger, context: ViewContext, rule: SeenRule) -> Coverage | None:
    """One person's coverage of a slide by a rule; None where nothing is stored. Raises UnreadableError: it is
    damaged."""
    with ledger.database.read() as connection:
        row = connection.execute(select(coverage).where(*_key_values(context))).one_or_none()
    return None if row is None else _coverage(row, rule)


def save_looks(
    ledger: Ledger,
    context: ViewContext,
    grid: CoverageGrid,
    viewings: Sequence[Viewing],
    *,
    rule: SeenRule,
    mpp0: float,
    seconds: float,
) -> Coverage:
    """Add viewings to the stored coverage, and return the result.

    Args:
        rule: by which areas count as seen.
        seconds: how long the slide was open in a visible tab meanwhile.

    Raises:
        ChangedSourceError: the stored coverage has another grid: the slide is not the one that was viewed.
        BadRecipeError: an invalid viewing.
    """
    for viewing in viewings:
        check_viewing(viewing)
    with ledger.database.write() as connection:
        row = _locked_row(connection, context, grid, rule)
        before = _coverage(row, rule)
        if before.grid != grid:
            raise ChangedSourceError(
                f"slide {context.slide_id}: its size has changed since {context.person} viewed it."
            )
        after = before.add_viewings(viewings, mpp0=mpp0, seconds=seconds)
        values = _values(after)
        connection.execute(update(coverage).where(*_key_values(context)).values(values))
        totals = {"cells": int(np.count_nonzero(after.finest_yx)), "seconds": round(after.seconds, 1)}
        log(connection, context, [change_of(context, LOOKED, coverage, dict(row._mapping) | values, **totals)])
    return after


def _locked_row(connection: Connection, context: ViewContext, grid: CoverageGrid, rule: SeenRule) -> Row[Any]:
    """The stored row, locked; created if there is none."""
    empty = context.key | {"cell_um": grid.cell_um, "columns": grid.columns, "rows": grid.rows}
    empty |= _values(Coverage.empty(grid, rule))
    add = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(coverage)
    connection.execute(add.values(empty).on_conflict_do_nothing())
    return connection.execute(select(coverage).where(*_key_values(context)).with_for_update()).one()


def _values(after: Coverage) -> dict[str, Any]:
    seen, ticks = packed_seen(after), packed(after.ticks_yx)
    return {"finest": seen, "ticks": ticks, "seconds": round(after.seconds, 3), "utc": utc_now()}


def _coverage(row: Row[Any], rule: SeenRule) -> Coverage:
    grid = CoverageGrid(row.cell_um, row.columns, row.rows)
    stored = unpacked_seen(row.finest, grid)
    if stored is None or stored[0] != rule:
        return Coverage.empty(grid, rule, row.seconds)
    ticks = unpacked(row.ticks, grid, "<u2").astype(np.uint16)
    return Coverage(grid, rule, stored[1], ticks, row.seconds)


def _key_values(context: ViewContext) -> list[Any]:
    return [coverage.c[name] == value for name, value in context.key.items()]
