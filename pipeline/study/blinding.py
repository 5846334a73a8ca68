"""Of which slides a reader may not see yet what a model or anybody else said: those still to be read without help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from pipeline.study.ledger import Ledger
from pipeline.study.readings import may_show_predictions
from pipeline.study.tables import reading


@dataclass(frozen=True)
class Blinded:
    """Why a slide's predictions are hidden: a reading that is not signed."""

    study_id: str
    reader: str
    arm: str


def blinded_slides(ledger: Ledger, reader: str | None, slide_id: str | None = None) -> Mapping[str, Blinded]:
    """Slides whose predictions are hidden from a reader, over all studies.

    They are hidden from before the reading is started until it is signed. A slide that the reader has opened in an
    assisted reading is not hidden, though an unassisted one may still follow.

    Args:
        reader: None where nobody signs in: then those of every reading that is started, since whoever looks may be
            its reader.
        slide_id: of one slide alone.
    """
    states = ("started",) if reader is None else ("open", "started")
    chosen = select(reading).where(reading.c.state.in_(states))
    if reader is not None:
        chosen = chosen.where(reading.c.reader == reader)
    if slide_id is not None:
        chosen = chosen.where(reading.c.slide_id == slide_id)
    with ledger.database.read() as connection:
        rows = connection.execute(chosen.order_by(reading.c.study_id, reading.c.session)).all()
    shown = {row.slide_id for row in rows if may_show_predictions(row) and row.state == "started" and reader}
    return {
        row.slide_id: Blinded(row.study_id, row.reader, row.arm)
        for row in reversed(rows)
        if not may_show_predictions(row) and row.slide_id not in shown
    }
