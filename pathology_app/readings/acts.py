"""Steps of a reading: each checks the person's right and the study's list, then performs the act."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pathology_app.links.reading import ReadingLink
from pathology_app.people.actors import reader_actor
from pathology_app.people.acts import Act, check_act
from pathology_app.people.person import Person
from pathology_app.readings.taking_part import check_reading
from pipeline.ledger import Ledger
from pipeline.study import Answer, Readings, lay_out


def start_reading(person: Person, readings: Readings, link: ReadingLink) -> None:
    """Start a reading. Raises: as `check_reading` and `Readings.start`."""
    check_reading(person, readings, link, Act.START_READING)
    readings.start(link.reader, link.session, link.position, actor=reader_actor(person, link.reader))


def keep_answers(person: Person, readings: Readings, link: ReadingLink, answers: Mapping[str, Answer]) -> None:
    """Save answers of a reading that is started. Raises: as `check_reading` and `Readings.give_all`."""
    check_reading(person, readings, link, Act.ANSWER)
    actor = reader_actor(person, link.reader)
    readings.give_all(link.reader, link.session, link.position, answers, actor=actor)


def sign_reading(
    person: Person,
    readings: Readings,
    link: ReadingLink,
    answers: Mapping[str, Answer],
    *,
    seconds: float,
    seen: Mapping[str, Any],
) -> None:
    """Lock a reading with the answers that its reader was shown. Raises: as `check_reading` and `Readings.sign`."""
    check_reading(person, readings, link, Act.SIGN)
    key, actor = (link.reader, link.session, link.position), reader_actor(person, link.reader)
    readings.sign(*key, seconds=seconds, actor=actor, seen=seen, answers=answers)


def lay_out_readings(person: Person, ledger: Ledger, readings: Readings, *, actor: str, why: str) -> None:
    """Assign the slides that are done to readers. Raises: ForbiddenError; as `Readings.begin`."""
    check_act(person, Act.LAY_OUT)
    slide_ids = slides_to_read(ledger, readings.study_id)
    seed = int(ledger.study(readings.study_id).frozen()["study"].get("seed", 0))
    readings.begin(lay_out(readings.config, slide_ids, seed), actor=actor, why=why)


def slides_to_read(ledger: Ledger, study_id: str) -> list[str]:
    """Slides of a study that are done."""
    return [row.slide_id for row in ledger.slides(study_id, state="done", limit=1_000_000)]


def give_disagreements(
    person: Person, readings: Readings, question: str, arm: str, *, actor: str, why: str
) -> list[str]:
    """Give the slides on which readers disagree to the adjudicators. Raises: ForbiddenError; as
    `Readings.adjudicate`."""
    check_act(person, Act.GIVE_DISAGREEMENTS)
    return list(readings.adjudicate(question, arm, actor=actor, why=why))
