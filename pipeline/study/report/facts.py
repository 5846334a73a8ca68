"""All data for a study's report, from the ledger and the manifest: read once, as of one moment."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
from sqlalchemy import Column, Row, Table, select

from pipeline.cohort.manifest import Cohort
from pipeline.errors import DamagedStoreError
from pipeline.ledger.ledger import StudyRow, found
from pipeline.ledger.rows import as_read, reading_subject
from pipeline.ledger.tables import answer, audit, reading, slide, study, task
from pipeline.study.proof.reports import tile_set_sha256
from pipeline.study.protocol import Protocol, load_study_cohort, tile_sets_of
from pipeline.study.reading.questions import ReadingConfig
from pipeline.study.references import References
from pipeline.study.stages.ingest import INGEST
from pipeline.study.work.study import Study
from training.foundation.reading import parse_json

_TASK = ("slide_id", "position", "stage", "state", "attempts", "seconds", "code", "owner", "output_sha256", "measures")
_READING = ("reader", "session", "position", "slide_id", "arm", "state", "started_utc", "signed_utc", "seconds")


@dataclass(frozen=True)
class Facts:
    """A study's data at one moment."""

    study: Study
    row: StudyRow
    cohort: Cohort
    slides: pd.DataFrame
    """A row per slide, by its id: state, code, message, source_sha256, site, scanner, patient, label."""
    tasks: pd.DataFrame
    """A row per slide and stage; `measures` as dict or None."""
    readings: pd.DataFrame
    """`seen`: the share of the tissue that the reader saw, by the protocol's rule; None where the log does not say."""
    answers: pd.DataFrame
    """Answers that count: reader, session, position, question, value."""
    entries: pd.DataFrame
    """Entries of the log: amendments, signatures, erasures and reports; not the work on slides."""
    head: tuple[int, str]
    """Number and hash of the log's last entry."""
    tile_sets: Mapping[str, str]
    """SHA-256 of the tables whose labels are the reference of an endpoint, by the tile set's name."""

    @property
    def protocol(self) -> Protocol:
        return self.study.protocol

    @property
    def row_protocol(self) -> dict[str, Any]:
        """The protocol as the ledger has it, with every setting."""
        return self.row.frozen()

    @cached_property
    def references(self) -> References:
        """What the slides' labels say, by the classes of the models that have predicted a slide."""
        stages = [model.task for model in self.protocol.models]
        predicted = self.tasks[self.tasks["stage"].isin(stages) & self.tasks["measures"].notna()]
        begun = self.slides[self.slides["state"] != "excluded"]
        classes = [order for measures in predicted["measures"] for order in _classes_of(measures)]
        orders = [order for order in classes if isinstance(order, list) and all(isinstance(n, str) for n in order)]
        return References.of(self.protocol, filter(None, orders), map(text_of, begun["label"]))


def _classes_of(measures: Mapping[str, Any]) -> list[Any]:
    """The classes of a model of tiles, or of each target of a slide-level one, as the ledger has them."""
    answers = measures.get("answers")
    tables = answers.values() if isinstance(answers, dict) else [measures]
    return [table.get("classes") for table in tables if isinstance(table, dict)]


def gather(of: Study) -> Facts:
    """Read the data for a report.

    Raises:
        BadManifestError, ChangedSourceError: the manifest is missing, or has changed. UnreadableError: a tile set of an
            endpoint is missing.
    """
    with _nothing_collected():
        return _gathered(of)


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Pause Python's garbage collector, which would scan the millions of rows again and again as they are read: all of
    them stay, and that would take longer than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _gathered(of: Study) -> Facts:
    cohort, _ = load_study_cohort(of.protocol, of.folder, expected_sha256=of.manifest_sha256)
    with of.ledger.database.read() as connection:
        row = found(connection, of.study_id)

        def frame(table: Any, names: tuple[str, ...], *order: Any) -> pd.DataFrame:
            chosen = select(*(table.c[name] for name in names)).where(table.c.study_id == of.study_id).order_by(*order)
            return _frame(connection.execute(chosen).all(), table, names)

        slides = frame(
            slide,
            ("slide_id", "ordinal", "state", "code", "message", "source_sha256", "site", "scanner"),
            slide.c.ordinal,
        )
        tasks = frame(task, _TASK, task.c.ordinal, task.c.position)
        readings = frame(reading, _READING, reading.c.reader, reading.c.session, reading.c.position)
        answers = frame(answer, ("reader", "session", "position", "seq", "question", "value"), answer.c.seq)
        of_people = (audit.c.study_id == of.study_id, audit.c.subject.in_(("study", "report", "log")))
        names = ("seq", "utc", "actor", "action", "subject", "why")
        entries = connection.execute(select(*(audit.c[n] for n in names)).where(*of_people).order_by(audit.c.seq)).all()
        is_signing = (audit.c.study_id == of.study_id, audit.c.action == "reading signed")
        signings = connection.execute(select(audit.c.subject, audit.c.details).where(*is_signing)).all()
        head = connection.execute(
            select(study.c.audit_seq, study.c.audit_hash).where(study.c.study_id == of.study_id)
        ).one()
    tasks = tasks.astype({"attempts": "int64", "seconds": "float64"})
    readings["seen"] = _shares_seen(readings, dict(map(tuple, signings)), of.protocol.reading)
    measures = [_measures(text) for text in tasks["measures"]]
    tasks["measures"] = pd.Series(measures, tasks.index, dtype=object)
    return Facts(
        study=of,
        row=row,
        cohort=cohort,
        slides=_with_manifest(slides, tasks, cohort),
        tasks=tasks,
        readings=readings,
        answers=_that_count(answers),
        entries=_frame(entries, audit, names),
        head=(_cell(study.c.audit_seq, head[0]), _cell(study.c.audit_hash, head[1])),
        tile_sets={name: tile_set_sha256(of.project, name) for name in tile_sets_of(of.protocol)},
    )


def _frame(rows: Sequence[Row[Any]], table: Table, names: tuple[str, ...]) -> pd.DataFrame:
    """Rows of the ledger, unchanged: None stays None."""
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return pd.DataFrame(
        {
            name: pd.Series([_cell(table.c[name], value) for value in column], dtype=object)
            for name, column in zip(names, columns, strict=True)
        }
    )


def _cell(column: Column[Any], value: Any) -> Any:
    """A value of the ledger. One that is not of its column's kind is left out, and the report's head says that the log
    does not verify."""
    try:
        return as_read(column)(value)
    except DamagedStoreError:
        return None if column.nullable else column.type.python_type()


def _measures(text: str | None) -> dict[str, Any] | None:
    """A task's measures; None for none, and for a changed text, as in `_cell`."""
    try:
        measures = parse_json(text or "")
    except ValueError:
        return None
    return measures if isinstance(measures, dict) else None


def _shares_seen(readings: pd.DataFrame, signings: Mapping[str, str], config: ReadingConfig | None) -> pd.Series[Any]:
    """Share of the tissue seen in each reading, as the entry of its signature states it."""
    shares: list[float | None] = []
    for key in zip(readings["reader"], readings["session"], readings["position"], strict=True):
        seen = (_measures(signings.get(reading_subject(*key))) or {}).get("seen")
        share = None
        if config is not None and isinstance(seen, dict) and seen.get("seen_rule") == config.seen.model_dump():
            of_tissue = seen.get("tissue_seen")
            share = of_tissue.get(f"{config.seen.magnification:g}x") if isinstance(of_tissue, dict) else None
        shares.append(share if isinstance(share, float) else None)
    return pd.Series(shares, readings.index, dtype=object)


def _answer(text: str) -> Any:
    """A reader's answer; None for a changed text, as in `_cell`."""
    try:
        return parse_json(text)
    except ValueError:
        return None


def _with_manifest(slides: pd.DataFrame, tasks: pd.DataFrame, cohort: Cohort) -> pd.DataFrame:
    """Add patients and labels, which only the manifest has; a scanner that it does not name is the file's."""
    entries = {entry.slide_id: entry for entry in cohort.entries}
    ingested = tasks[(tasks["stage"] == INGEST.task()) & tasks["measures"].notna()]
    scanners = {s: m.get("scanner") for s, m in zip(ingested["slide_id"], ingested["measures"], strict=True)}
    ids = slides["slide_id"]
    joined = slides.set_index("slide_id", drop=False)
    joined["patient"] = [(entries[s].patient_id if s in entries else None) or s for s in ids]
    joined["label"] = [entries[s].label if s in entries else None for s in ids]
    own = slides["scanner"].tolist()
    joined["scanner"] = [scanner or scanners.get(s) for s, scanner in zip(ids, own, strict=True)]
    return joined.rename_axis(None)


def text_of(cell: object) -> str | None:
    """A cell's text; pandas has NaN in place of None."""
    return cell if isinstance(cell, str) and cell else None


def _that_count(answers: pd.DataFrame) -> pd.DataFrame:
    key = ["reader", "session", "position", "question"]
    last = answers.drop_duplicates(key, keep="last")[[*key, "value"]]
    return last.assign(value=[_answer(text) for text in last["value"]])
