"""A ledger with rows in every table, made by gemslide's own functions, and ways to change it behind the log's back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from shapely import box
from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Integer,
    LargeBinary,
    Table,
    create_engine,
    delete,
    insert,
    select,
    text,
    update,
)

from pipeline.annotations import AnnotationFile, AnnotationObject
from pipeline.files import sha256_of
from pipeline.ledger import PROJECT_LOG, Attempts, Change, Ledger, Sessions, metadata
from pipeline.ledger.chain import append, canonical
from pipeline.ledger.ledger import NewSlide
from pipeline.ledger.rows import NOT_COVERED, REPORT_MADE
from pipeline.registration import Affine
from pipeline.review import (
    Draft,
    Registration,
    annotations_of,
    import_file,
    remove_registration,
    save,
    save_registration,
)
from pipeline.review.judging.coverage import CoverageGrid, Viewing
from pipeline.review.judging.coverage_store import save_looks
from pipeline.review.judging.hotspots import HotspotKey, judge_hotspots
from pipeline.review.judging.seen_rule import SeenRule
from pipeline.review.judging.slides import SlideReview, add_review
from pipeline.review.rows.view_context import ViewContext
from pipeline.study.outcomes.priorities import prioritize
from pipeline.study.outcomes.retries import retry
from pipeline.study.proof.sign_off import OUTSIDE
from pipeline.study.proof.verify import verify_ledger
from pipeline.study.protocol import Protocol
from pipeline.study.reading.order import lay_out
from pipeline.study.reading.readings import Readings
from pipeline.study.work.leases import Ended, Leases
from pipeline.study.work.limits import Limits
from pipeline.study.work.owner import this_process
from training.foundation.errors import GemslideError

STUDY = "s"
MODEL = "m-00000000"
SHA = "ab" * 32
Row = dict[str, Any]


def protocol() -> Protocol:
    questions = [{"name": "tumour", "kind": "yes_no", "ask": "Is there a tumour?"}]
    endpoints = [{"name": "auc", "measure": "auc", "level": "slide", "model": MODEL, "at_least": 0.7}]
    return Protocol.model_validate(
        {
            "study": {"title": "t", "question": "?", "cohort": "cohort.csv"},
            "models": [{"id": MODEL, "sha256": "0" * 64, "config_sha256": "0" * 64}],
            "endpoints": endpoints,
            "reading": {"readers": ["r1", "r2"], "questions": questions},
        }
    )


def fill(ledger: Ledger) -> None:
    """Make a study that was worked on, read and reviewed, and a project in which people signed in and drew."""
    frozen = protocol()
    slides = [NewSlide("S-1", site="A", scanner="GT"), NewSlide("S-2"), NewSlide("S-3", excluded="broken glass")]
    ledger.begin(STUDY, frozen.frozen(), "0" * 64, [*slides, NewSlide("S-4")], frozen.stages, actor="ada")
    _work(ledger)
    _read(ledger, frozen)
    for context in (ViewContext("S-1", "r1", "r1", STUDY, "r1/1/1"), ViewContext("S-1", "ada", "ada (web app)")):
        _review(ledger, context)
    _draw(ledger)
    _register(ledger)
    sessions = Sessions(ledger.database)
    sessions.make("session", 3600, name="ada", stamp="x", changes=[Change("ada", "signed in", "account ada")])
    Attempts(ledger.database).take({"name ada": 5, "address 127.0.0.1": 5})


def _work(ledger: Ledger) -> None:
    prioritize(ledger, STUDY, ["S-2"], 3, actor="ada", why="first")
    mine = Leases(ledger, this_process(), Limits(backoff_s=0), actor="worker")
    measures = canonical({"classes": ["benign", "tumour"], "scores": {"mean": [0.2, 0.8]}})
    done = Ended("done", None, "warned", 2, SHA, "cd" * 32, measures)
    ends = [Ended("again", "locked", "busy", 1.5), Ended("unreadable", "damaged", "no", 0.5), done, done, done]
    for ended in ends:
        lease = mine.take(STUDY)
        assert lease
        mine.finish(lease, ended)
    retry(ledger, STUDY, [], "unreadable", actor="ada", why="mended")
    assert mine.take(STUDY), "one task is held"


def _read(ledger: Ledger, frozen: Protocol) -> None:
    assert frozen.reading
    readings = Readings(ledger, STUDY, frozen.reading)
    readings.begin(lay_out(frozen.reading, ["S-1", "S-2"], 0), actor="ada")
    at = ("r1", 1, 1)
    readings.start(*at)
    readings.give(*at, "tumour", False)
    readings.give(*at, "tumour", True)
    readings.sign(*at, seconds=3)


def _review(ledger: Ledger, context: ViewContext) -> None:
    corners = ((0, 0), (512, 0), (512, 256), (0, 256))
    save_looks(
        ledger,
        context,
        CoverageGrid(128.0, 8, 6),
        [Viewing(corners, 1.0, 2.0, 2.0)],
        rule=SeenRule(),
        mpp0=0.5,
        seconds=3,
    )
    judge_hotspots(ledger, context, MODEL, SHA, [(HotspotKey("tumour", 480, 864), "seen")])
    judge_hotspots(ledger, context, MODEL, SHA, [(HotspotKey("tumour", 480, 864), "accepted")])
    add_review(ledger, context, SlideReview("disagree", "Ada", "benign", "crush", MODEL, "tumour", SHA))


def _draw(ledger: Ledger) -> None:
    """Add drawn annotations, one revised and one deleted, and imported ones, one of which was changed later."""
    one, two = save(
        ledger, "S-1", [Draft(box(1, 2, 30, 40), "rectangle", "tumour"), Draft(box(5, 5, 9, 8))], "ada"
    ).saved
    save(ledger, "S-1", [one.draft(note="more"), two.draft(is_deleted=True)], "bob")
    for slide_id in ("S-1", "S-2"):
        objects = tuple(AnnotationObject(box(x, 3, x + 20, 33), f"object {x}", "stroma") for x in (10, 50, 90))
        import_file(ledger, slide_id, AnnotationFile("qupath", objects, {}), "cyd", size_wh_px0=(200, 100))
    imported = next(annotation for annotation in annotations_of(ledger, "S-2") if annotation.class_name == "stroma")
    save(ledger, "S-2", [imported.draft(class_name="tumour")], "bob")


def _register(ledger: Ledger) -> None:
    """Register two slides twice, the second time by points, and remove the registration of two others."""
    affine = Affine(0.9, -0.1, 30.5, 0.1, 0.9, -7.25)
    found = Registration("S-1", "S-2", affine, "features", 21.5, 60, SHA, "cd" * 32, 80, 0.9, 0.95)
    save_registration(ledger, found, "ada")
    save_registration(ledger, replace(found.inverse(), method="points", share_near=None, dice=None), "bob (web app)")
    save_registration(ledger, replace(found, fixed_id="S-4"), "ada")
    remove_registration(ledger, "S-4", "S-1", "ada")


def made_report(ledger: Ledger, report: Path, content: str = "as it was") -> Path:
    """Write a report of one file, and record it as `gemslide study report` does."""
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(content)
    details = {"folder": f"{OUTSIDE}{report.parent.name}", "sha256": {report.name: sha256_of(report)}, "tile_sets": {}}
    with ledger.database.write() as connection:
        append(connection, STUDY, [Change("ada", REPORT_MADE, "report", details=details)])
    return report


def rows_of(ledger: Ledger, table: Table) -> list[Row]:
    with ledger.database.read() as connection:
        return [dict(row) for row in connection.execute(select(table)).mappings()]


def open_to_tampering(ledger: Ledger) -> None:
    """Remove everything that the owner of the database can remove: triggers and checks."""
    with ledger.database.write() as connection:
        if ledger.database.is_sqlite:
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER audit_no_{verb}"))
            return
        for table in metadata.sorted_tables:
            for constraint in table.constraints:
                if str(constraint.name).startswith("ck_"):
                    connection.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT {constraint.name}"))


@contextmanager
def behind_its_back(ledger: Ledger) -> Iterator[Connection]:
    """Connection to the database without triggers or foreign keys in force."""
    if not ledger.database.is_sqlite:
        with ledger.database.write() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            yield connection
        return
    engine = create_engine(ledger.database.url)
    try:
        with engine.connect() as connection:
            connection.execute(text("PRAGMA ignore_check_constraints = ON"))
            yield connection
            connection.commit()
    finally:
        engine.dispose()


def change(ledger: Ledger, table: Table, row: Row, values: Row) -> None:
    """Change one row."""
    with behind_its_back(ledger) as connection:
        assert connection.execute(update(table).where(*_key(table, row)).values(values)).rowcount == 1


def remove(ledger: Ledger, table: Table, row: Row) -> None:
    with behind_its_back(ledger) as connection:
        assert connection.execute(delete(table).where(*_key(table, row))).rowcount == 1


def put_back(ledger: Ledger, table: Table, rows: Sequence[Row]) -> None:
    """Restore exactly these rows of a table."""
    with behind_its_back(ledger) as connection:
        connection.execute(delete(table))
        if rows:
            connection.execute(insert(table), list(rows))


def add(ledger: Ledger, table: Table, row: Row) -> None:
    with behind_its_back(ledger) as connection:
        connection.execute(insert(table), [row])


def forge(ledger: Ledger, table: Table) -> None:
    """Add a row of the study that nobody made."""
    names = {"study_id": STUDY, "slide_id": "S-1", "person": "mallory", "verdict": "agree", "state": "seen"}
    plain = {Float: 1.0, Integer: 1, LargeBinary: b"x"}
    row = {c.name: next((value for kind, value in plain.items() if isinstance(c.type, kind)), "x") for c in table.c}
    add(ledger, table, row | {name: value for name, value in names.items() if name in row})


def _key(table: Table, row: Row) -> list[ColumnElement[bool]]:
    return [column == row[column.name] for column in table.primary_key]


def other(table: Table, name: str, value: Any, chance: random.Random) -> Any:
    """Another value for a column."""
    column = table.c[name]
    if column.nullable and value is not None and chance.random() < 0.3:
        return None
    if isinstance(column.type, Float):
        return (value or 0.0) + chance.choice((1.0, -0.5, 0.001))
    if isinstance(column.type, Integer):
        return (value or 0) + chance.choice((1001, -1001, 50_000))
    if isinstance(column.type, LargeBinary):
        return bytes(value)[:-1] + bytes([bytes(value)[-1] ^ 1])
    if not value:
        return "x"
    at = chance.randrange(len(value))
    ways = [value[:at] + ("0" if value[at] != "0" else "1") + value[at + 1 :], value[:at]]
    limit = getattr(column.type, "length", None)
    if limit is None or len(value) < limit:
        ways.append(value + " ")
    return chance.choice(ways)


def of_other_kinds(table: Table, name: str) -> list[Any]:
    """Values that SQLite stores in a column although they are not of its kind, or are no text of ours."""
    kind = table.c[name].type
    if isinstance(kind, Float | Integer):
        return ["long", b"1", float("inf"), 0.5 if isinstance(kind, Integer) else b"\xff"]
    if isinstance(kind, LargeBinary):
        return ["text", 7, 2.5]
    return [b"\xff", b"x", "[" * 20_000, "{"]


def set_raw(ledger: Ledger, table: Table, row: Row, name: str, value: Any) -> None:
    """Change one cell to a value of any kind."""
    where = " AND ".join(f"{column.name} = ?" for column in table.primary_key)
    with behind_its_back(ledger) as connection:
        keys = [row[column.name] for column in table.primary_key]
        connection.exec_driver_sql(f"UPDATE {table.name} SET {name} = ? WHERE {where}", (value, *keys))


def findings(ledger: Ledger) -> list[str]:
    """Findings of `gemslide study verify` and `gemslide log verify` in the database."""
    lines: list[str] = []
    for study_id in (STUDY, PROJECT_LOG):
        try:
            lines += verify_ledger(ledger.database, study_id).findings
        except GemslideError as error:  # the study no longer exists
            lines.append(str(error))
    return lines


def is_covered(table: Table, name: str) -> bool:
    """Whether a change of a column must be found."""
    return not {table.name, f"{table.name}.{name}"} & set(NOT_COVERED)


def all_columns() -> list[tuple[Table, str]]:
    return [(table, column.name) for table in metadata.sorted_tables for column in table.columns]
