"""Hotspots that people have seen, accepted or rejected; the latest judgement counts, the log has all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite

from pipeline.ledger.chain import utc_now
from pipeline.ledger.ledger import Ledger
from pipeline.review.rows.tables import HOTSPOT_STATES as STATES
from pipeline.review.rows.tables import hotspot_review
from pipeline.review.rows.view_context import ViewContext, change_of, log
from training.foundation.errors import BadRecipeError


@dataclass(frozen=True)
class HotspotKey:
    """One hotspot of one list: its class and the centre of its strongest cell, in level-0 pixels."""

    class_name: str
    x_px0: int
    y_px0: int


def hotspot_states(
    ledger: Ledger, context: ViewContext, model_id: str, predictions_sha256: str
) -> dict[HotspotKey, str]:
    """One person's judgement of each hotspot of a list; those they have not seen are left out."""
    list_key = {**context.key, "model_id": model_id, "predictions_sha256": predictions_sha256}
    chosen = select(hotspot_review).where(*(hotspot_review.c[name] == value for name, value in list_key.items()))
    with ledger.database.read() as connection:
        rows = connection.execute(chosen).all()
    return {HotspotKey(row.class_name, row.x_px0, row.y_px0): row.state for row in rows}


def judge_hotspots(
    ledger: Ledger,
    context: ViewContext,
    model_id: str,
    predictions_sha256: str,
    judged: Sequence[tuple[HotspotKey, str]],
) -> None:
    """Store a person's judgements of hotspots, in place of their earlier ones.

    Args:
        judged: hotspots, each with one of `STATES`. The caller has checked that the list has them.

    Raises:
        BadRecipeError: an unknown state.
    """
    if unknown := sorted({state for _, state in judged} - set(STATES)):
        raise BadRecipeError(f"hotspot state {unknown[0]!r:.40}: expected one of {', '.join(STATES)}.")
    with ledger.database.write() as connection:
        changes = []
        for key, state in judged:
            row = {**context.key, "model_id": model_id, "predictions_sha256": predictions_sha256, **vars(key)}
            row |= {"state": state, "utc": utc_now()}
            add = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(hotspot_review)
            new = {"state": state, "utc": row["utc"]}
            connection.execute(add.values(row).on_conflict_do_update(index_elements=_KEY, set_=new))
            changes.append(change_of(context, f"hotspot {state}", hotspot_review, row, **_log_details(model_id, key)))
        log(connection, context, changes)


_KEY = [column.name for column in hotspot_review.primary_key]


def _log_details(model_id: str, key: HotspotKey) -> Mapping[str, Any]:
    return {"model": model_id, "class": key.class_name, "x_px0": key.x_px0, "y_px0": key.y_px0}
