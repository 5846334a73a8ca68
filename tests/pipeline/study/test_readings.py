"""Reader studies: the seed alone assigns slides to readers, rules hold, and signed readings stay unchanged."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError
from sqlalchemy import text

from pipeline.errors import BadManifestError
from pipeline.ledger.ledger import Ledger, NewSlide
from pipeline.study.proof.verify import verify_log
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.progress import dues_of_reader, progress_of_readers
from pipeline.study.reading.questions import Question, ReadingConfig
from pipeline.study.reading.readings import ADJUDICATION, Readings, may_show_predictions

SLIDES = ("S-1", "S-2", "S-4")
GRADE = Question(name="grade", ask="Which grade?", kind="choice", choices=("low", "high"))
SURE = Question(name="sure", ask="How sure are you?", kind="score", low=0, high=100, required=False)


def config(**given: object) -> ReadingConfig:
    usual = {"readers": ("r1", "r2", "r3"), "arms": ("unassisted", "assisted"), "questions": (GRADE, SURE)}
    return ReadingConfig.model_validate(usual | given)


@pytest.fixture
def readings(begun) -> Readings:
    made = Readings(begun, "s", config(readers=("r1", "r2"), adjudicators=("chief",)))
    made.begin(lay_out(made.config, SLIDES, seed=3), actor="ada")
    return made


def test_every_reader_reads_every_slide_once_in_each_arm():
    plan = lay_out(config(), SLIDES, seed=1)
    assert Counter((reading.reader, reading.slide_id, reading.arm) for reading in plan) == {
        (reader, slide, arm): 1
        for reader in ("r1", "r2", "r3")
        for slide in SLIDES
        for arm in ("unassisted", "assisted")
    }
    assert plan == lay_out(config(readers=("r3", "r1", "r2")), SLIDES[::-1], seed=1), "the seed alone decides"
    assert plan != lay_out(config(), SLIDES, seed=2)


def test_in_a_crossover_readers_begin_with_different_arms_and_each_session_has_one():
    plan = lay_out(config(), [f"S-{number}" for number in range(20)], seed=1)
    first = {reading.reader: reading.arm for reading in plan if reading.session == 1}
    assert sorted(Counter(first.values()).values()) == [1, 2]
    by_session = {(reading.reader, reading.session): set() for reading in plan}
    for reading in plan:
        by_session[reading.reader, reading.session].add(reading.arm)
    assert all(len(arms) == 1 for arms in by_session.values())
    orders = {reader: [e.slide_id for e in plan if (e.reader, e.session) == (reader, 1)] for reader in first}
    assert len({tuple(order) for order in orders.values()}) == 3


def test_sequential_readers_all_begin_without_help():
    plan = lay_out(config(order="sequential"), SLIDES, seed=1)
    assert {reading.arm for reading in plan if reading.session == 1} == {"unassisted"}


def test_split_plot_groups_share_no_slide_and_cover_all():
    plan = lay_out(config(readers=tuple("abcdef"), groups=3), [f"S-{number:02}" for number in range(11)], seed=4)
    slides = {reader: {reading.slide_id for reading in plan if reading.reader == reader} for reader in "abcdef"}
    assert sorted(Counter(map(frozenset, slides.values())).values()) == [2, 2, 2]
    assert len(set().union(*slides.values())) == 11
    with pytest.raises(BadManifestError, match="as many slides"):
        lay_out(config(groups=3), SLIDES[:2], seed=1)


def test_a_reading_goes_from_its_start_over_its_answers_to_its_signature(readings):
    due = readings.next_of("r1")
    readings.start("r1", 1, 1)
    assert readings.next_of("r1").state == "started"
    readings.give("r1", 1, 1, "grade", "low")
    readings.give("r1", 1, 1, "grade", "high")
    readings.give("r1", 1, 1, "sure", 80)
    readings.sign("r1", 1, 1, seconds=61.5)
    assert readings.answers("r1", 1, 1) == {"grade": "high", "sure": 80}
    assert readings.signed("grade", due.arm) == [(due.slide_id, "r1", 1, "high")]
    assert readings.next_of("r1").position == 2
    actions = [entry.action for entry in readings.ledger.history("s", "reading r1/1/1")]
    assert actions == ["reading laid out", "reading started", *["answer given"] * 3, "reading signed"]
    assert not verify_log(readings.ledger.database, "s").findings


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda r: r.start("r1", 1, 2), "the reading that is due is session 1, slide 1"),
        (lambda r: r.give("r1", 1, 1, "grade", "low"), "is not started"),
        (lambda r: r.start("nobody", 1, 1), "has no readings"),
        (lambda r: r.answers("r1", 9, 9), "has no slide 9 in session 9"),
        (lambda r: r.begin([], actor="ada"), "already laid out"),
        (lambda r: (r.start("r1", 1, 1), r.sign("r1", 1, 1, seconds=1)), "not answered: grade"),
        (lambda r: (r.start("r1", 1, 1), r.give("r1", 1, 1, "grade", "middle")), "give one of low, high"),
        (lambda r: (r.start("r1", 1, 1), r.give("r1", 1, 1, "sure", True)), "a number from 0 to 100"),
        (lambda r: (r.start("r1", 1, 1), r.give("r1", 1, 1, "colour", "x")), "which has grade, sure"),
        (lambda r: (r.start("r1", 1, 1), r.start("r1", 1, 1)), r"slide 1 \(started\)"),
    ],
)
def test_what_is_not_allowed_is_one_clear_error_and_changes_nothing(readings, step, said):
    with pytest.raises(BadManifestError, match=said):
        step(readings)
    assert not verify_log(readings.ledger.database, "s").findings


def read_session(readings: Readings, reader: str, session: int, answers: dict[str, str], **given: object) -> None:
    for position in range(1, len(SLIDES) + 1):
        slide = readings.next_of(reader, **given).slide_id
        readings.start(reader, session, position, **given)
        readings.give(reader, session, position, "grade", answers[slide])
        readings.sign(reader, session, position, seconds=1)


def test_answers_are_locked_when_signed_and_the_washout_is_kept(readings):
    read_session(readings, "r1", 1, dict.fromkeys(SLIDES, "low"))
    with pytest.raises(BadManifestError, match="its answers are locked"):
        readings.give("r1", 1, 1, "grade", "high")
    with pytest.raises(BadManifestError, match="after the washout of 14 days, on 20"):
        readings.next_of("r1")
    almost, over = (datetime.now(UTC) + timedelta(days=days) for days in (13.9, 14.1))
    with pytest.raises(BadManifestError, match="washout"):
        readings.start("r1", 2, 1, now=almost)
    readings.start("r1", 2, 1, now=over)


def test_predictions_are_shown_in_the_assisted_arm_alone(readings):
    both = {may_show_predictions(readings.next_of(reader)): readings.next_of(reader).arm for reader in ("r1", "r2")}
    assert both == {True: "assisted", False: "unassisted"}


def test_disagreements_go_to_an_adjudicator_once(begun):
    design = config(readers=("r1", "r2"), arms=("unassisted",), adjudicators=("chief",))
    readings = Readings(begun, "s", design)
    readings.begin(lay_out(design, SLIDES, seed=3), actor="ada")
    read_session(readings, "r1", 1, dict.fromkeys(SLIDES, "low"))
    read_session(readings, "r2", 1, dict.fromkeys(SLIDES, "low") | {"S-2": "high"})
    assert readings.adjudicate("grade", "unassisted", actor="ada") == ["S-2"]
    assert readings.adjudicate("grade", "unassisted", actor="ada") == []
    due = readings.next_of("chief")
    assert (due.slide_id, due.arm, may_show_predictions(due)) == ("S-2", ADJUDICATION, False)


@pytest.mark.parametrize(
    ("statement", "finding"),
    [
        ("UPDATE answer SET value = '\"low\"' WHERE seq = 1", "reading r1/1/1, answer 1: was changed without an entry"),
        ("DELETE FROM answer", "answer 1: was deleted from the ledger"),
        (
            "UPDATE reading SET arm = 'assisted', seconds = 3 WHERE reader = 'r1' AND session = 1 AND position = 1",
            "r1/1/1",
        ),
    ],
)
def test_answers_and_readings_changed_behind_the_log_are_found(readings, statement, finding):
    readings.start("r1", 1, 1)
    readings.give("r1", 1, 1, "grade", "high")
    with readings.ledger.database.write() as connection:
        connection.execute(text(statement))
    assert finding in "\n".join(verify_log(readings.ledger.database, "s").findings)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"readers": ("r1", "r1")}, "a name appears twice"),
        ({"readers": ("r1",), "adjudicators": ("r1",)}, "a name appears twice"),
        ({"groups": 4}, "4 groups need as many readers"),
        ({"questions": ()}, "at least 1"),
    ],
)
def test_a_design_that_does_not_fit_together_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        config(**given)


@pytest.mark.parametrize(
    "given", [{"kind": "choice"}, {"kind": "text", "choices": ("a",)}, {"kind": "score", "low": 5, "high": 5}]
)
def test_a_question_that_cannot_be_answered_is_refused(given):
    with pytest.raises(ValidationError):
        Question(name="q", ask="?", **given)


def begin_with(ledger: Ledger, name: str, design: ReadingConfig) -> Readings:
    """Begin a study that has frozen a reading design; its readings are not laid out."""
    protocol = {"study": {"title": name}, "models": [], "reading": design.model_dump(mode="json")}
    ledger.begin(name, protocol, "0" * 64, [NewSlide(slide) for slide in SLIDES], ("ingest",), actor="ada")
    return Readings(ledger, name, design)


def laid_out(readings: Readings) -> Readings:
    readings.begin(lay_out(readings.config, SLIDES, seed=3), actor="ada")
    return readings


def sign_next(readings: Readings, reader: str, grade: str, *, now: datetime | None = None) -> None:
    row = readings.next_of(reader, now=now)
    at = (reader, row.session, row.position)
    readings.start(*at, now=now)
    readings.give(*at, "grade", grade)
    readings.sign(*at, seconds=1.0)


def test_what_can_be_read_now_keeps_the_order_and_stops_at_a_washout(ledger):
    readings = laid_out(begin_with(ledger, "s", config(readers=("r1", "r2"))))
    due = dues_of_reader(readings.ledger, "r1")["s"]
    assert [row.session for row in due.now] == [1, 1, 1]
    assert (len(due.later), due.next_at) == (3, None), "the washout begins with a signature"
    for _ in SLIDES:
        sign_next(readings, "r1", "low")
    due = dues_of_reader(readings.ledger, "r1")["s"]
    assert (len(due.now), len(due.later), due.first.session) == (0, 3, 2)
    in_14_days = datetime.now(UTC) + timedelta(days=14)
    assert abs(due.next_at - in_14_days) < timedelta(minutes=5)
    (progress,) = (row for row in progress_of_readers(readings) if row.reader == "r1")
    assert (progress.is_due, progress.num_now, progress.num_later) == (False, 0, 3)
    assert progress.waits_until == due.next_at
    later = dues_of_reader(readings.ledger, "r1", now=in_14_days + timedelta(minutes=1))["s"]
    assert [row.session for row in later.now] == [2, 2, 2]


def test_a_disagreement_is_decided_only_when_every_reader_of_that_arm_has_signed(ledger):
    readings = laid_out(begin_with(ledger, "s", config(arms=("unassisted",), adjudicators=("chief",))))
    for _ in SLIDES:
        sign_next(readings, "r1", "low")
        sign_next(readings, "r2", "high")
    sign_next(readings, "r3", "low")
    assert len(readings.adjudicate("grade", "unassisted", actor="ada")) == 3
    (read_by_all,) = (row.slide_id for row in readings.signed_of("r3"))
    due = dues_of_reader(ledger, "chief")["s"]
    assert ([row.slide_id for row in due.now], len(due.later), due.next_at) == ([read_by_all], 2, None)
    sign_next(readings, "chief", "low")
    with pytest.raises(BadManifestError, match="can be decided when every reader has signed it"):
        readings.next_of("chief")
    waiting = dues_of_reader(ledger, "chief")["s"].first
    with pytest.raises(BadManifestError, match="can be decided when every reader has signed it"):
        readings.start("chief", 1, waiting.position)
    sign_next(readings, "r3", "low")
    sign_next(readings, "r3", "low")
    assert len(dues_of_reader(ledger, "chief")["s"].now) == 2


def test_an_assisted_reading_that_must_wait_for_another_study_is_not_due(ledger):
    laid_out(begin_with(ledger, "s", config(readers=("r1",), arms=("assisted",))))
    assert len(dues_of_reader(ledger, "r1")["s"].now) == 3
    begin_with(ledger, "t", config(readers=("r1",), arms=("unassisted",)))
    due = dues_of_reader(ledger, "r1")["s"]
    assert (len(due.now), len(due.later), due.next_at) == (0, 3, None)
