"""The facts of all slides in memory, as SQLite tables: sorting and filtering do not block other threads."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pathology_app.slides.index.facts import SlideFacts
from pathology_app.slides.index.sweep import Batch, CohortFacts
from pathology_app.slides.index.wanted import (
    FROM,
    HIDDEN,
    LABEL,
    ONLY,
    SCANNER,
    SCORE,
    SORTS,
    TILE_SCORES,
    WORD,
    Wanted,
    order,
    where,
)

FEW = 200
"""Maximum number of words in a list of choices."""
_KEPT_ANSWERS = 64
"""Every page asks the same of all slides: the choices, and the number of slides."""
_SHORT_QUESTION = 100_000
"""Characters; answers to longer questions, with the names of all slides that a person may see, are not kept."""
_Answer = tuple[tuple[Any, ...], ...]
_TABLES = """
CREATE TABLE slide (slide_id TEXT PRIMARY KEY, folded TEXT, facts TEXT, stamp TEXT, area REAL, mpp REAL, tissue REAL,
    scanner TEXT, verdict TEXT, damaged INTEGER, ingested TEXT, models TEXT, tile_models TEXT) WITHOUT ROWID;
CREATE TABLE score (slide_id TEXT, model_id TEXT, class_name TEXT, score REAL, is_slide_level INTEGER,
    PRIMARY KEY (slide_id, model_id, class_name)) WITHOUT ROWID;
CREATE TABLE cohort (slide_id TEXT PRIMARY KEY, case_id TEXT, block TEXT, stain TEXT, label TEXT, site TEXT,
    scanner TEXT) WITHOUT ROWID;
CREATE TABLE in_study (slide_id TEXT, study_id TEXT, state TEXT, PRIMARY KEY (slide_id, study_id)) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Listed:
    """One slide of a list, with the facts known without reading its files."""

    slide_id: str
    facts: SlideFacts | None
    """None if not read yet."""
    cohort: CohortFacts
    studies: tuple[tuple[str, str], ...]
    """(study, state)."""
    reading: str
    """The person's reading status for it."""


@dataclass(frozen=True)
class Case:
    """Slides of one patient. `case_id` is None for a slide whose case is unknown."""

    case_id: str | None
    slide_id: str
    """The first slide of the case."""
    slides: int
    score: float | None


class SlideTable:
    """All slides of a project; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.executescript(_TABLES)
        self._names: set[str] = set()
        self._known: set[str] = set()
        self._num_writes = 0
        self._kept = lru_cache(maxsize=_KEPT_ANSWERS)(self._ask)
        self.cohort_note = ""

    def __len__(self) -> int:
        return len(self._names)

    @property
    def slide_ids(self) -> frozenset[str]:
        """Ids of all slides."""
        return frozenset(self._names)

    @property
    def num_unread(self) -> int:
        """Number of slides whose files have not been read yet."""
        return len(self._names) - len(self._known)

    def set_names(self, slide_ids: Sequence[str]) -> None:
        """Set the names of all slides."""
        names = set(slide_ids)
        with self._lock:
            gone, new = self._names - names, names - self._names
            self._write("DELETE FROM slide WHERE slide_id = ?", ((name,) for name in gone))
            self._write("DELETE FROM score WHERE slide_id = ?", ((name,) for name in gone))
            self._write(
                "INSERT INTO slide (slide_id, folded) VALUES (?, ?)", ((name, name.casefold()) for name in sorted(new))
            )
            self._names, self._known = names, self._known & names

    def put(self, batch: Batch) -> None:
        """Add one batch of a sweep."""
        known = [facts for facts in batch.facts if facts.slide_id in self._names]
        with self._lock:
            self._write("DELETE FROM score WHERE slide_id = ?", ((facts.slide_id,) for facts in known))
            self._write("INSERT OR REPLACE INTO slide VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_row, known))
            self._write("INSERT INTO score VALUES (?, ?, ?, ?, ?)", (row for facts in known for row in _scores(facts)))
            if batch.cohort_begins:
                self._write("DELETE FROM cohort", [()])
                self.cohort_note = batch.cohort_note
            self._write(
                "INSERT OR REPLACE INTO cohort VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (row.slide_id, row.case_id, row.block, row.stain, row.label, row.site, row.scanner)
                    for row in batch.cohort
                ),
            )
            self._known |= {facts.slide_id for facts in known}

    def set_studies(self, states: Iterable[tuple[str, str, str]]) -> None:
        """Set the states of slides in studies: (slide, study, state)."""
        with self._lock:
            self._write("DELETE FROM in_study", [()])
            self._write("INSERT OR REPLACE INTO in_study VALUES (?, ?, ?)", states)

    def count(self, wanted: Wanted) -> int:
        """Number of selected slides."""
        ((number,),) = self._read(f"SELECT count(*) {FROM} {where(wanted)}", wanted)
        return int(number)

    def find(self, wanted: Wanted, *, skip: int, limit: int) -> list[Listed]:
        """Selected slides, in the requested order."""
        columns = (
            f"slide.slide_id, facts, case_id, block, cohort.stain, {LABEL}, site, cohort.scanner, {WORD}, "
            "(SELECT json_group_array(json_array(study_id, state)) FROM in_study WHERE slide_id = slide.slide_id)"
        )
        text = f"SELECT {columns} {FROM} {where(wanted)} {order(wanted)} LIMIT :limit OFFSET :skip"
        return [_listed(row) for row in self._read(text, wanted, limit=limit, skip=skip)]

    def position(self, wanted: Wanted, slide_id: str) -> int | None:
        """Number of selected slides before one in the requested order; None if it is not selected."""
        text = f"""SELECT number - 1 FROM (
            SELECT slide.slide_id AS name, row_number() OVER ({order(wanted)}) AS number {FROM} {where(wanted)})
            WHERE name = :at"""
        rows = self._read(text, wanted, at=slide_id)
        return int(rows[0][0]) if rows else None

    def count_cases(self, wanted: Wanted) -> int:
        """Number of cases among the selected slides; a slide without a case counts as one."""
        text = f"SELECT count(DISTINCT coalesce('c' || case_id, 's' || slide.slide_id)) {FROM} {where(wanted)}"
        ((number,),) = self._read(text, wanted)
        return int(number)

    def find_cases(self, wanted: Wanted, *, skip: int, limit: int) -> list[Case]:
        """Cases in the requested order: each is sorted by the slide that comes first."""
        what, falling = SORTS[wanted.sort]
        way = "DESC" if falling != wanted.is_reversed else "ASC"
        best = "max" if way == "DESC" else "min"
        text = f"""SELECT case_id, min(slide_id), count(*), max(score) FROM (
            SELECT case_id, slide.slide_id, {what} AS what, {SCORE} AS score {FROM} {where(wanted)})
            GROUP BY coalesce('c' || case_id, 's' || slide_id)
            ORDER BY {best}(what) IS NULL, {best}(what) {way}, min(slide_id) LIMIT :limit OFFSET :skip"""
        return [Case(*row) for row in self._read(text, wanted, limit=limit, skip=skip)]

    def choices(self, what: str, only: frozenset[str] | None = None) -> list[str]:
        """Words to filter by, the most frequent ones; of `only` these slides."""
        column, tables = {
            "site": ("site", "cohort AS slide"),
            "scanner": (SCANNER, "slide LEFT JOIN cohort USING (slide_id)"),
            "quality": ("verdict", "slide"),
            "study state": ("state", "in_study AS slide"),
        }[what]
        text = (
            f"SELECT {column} FROM {tables} WHERE {column} IS NOT NULL AND (:only IS NULL OR {ONLY}) "
            f"GROUP BY 1 ORDER BY count(*) DESC LIMIT {FEW}"
        )
        return sorted(str(row[0]) for row in self._read(text, Wanted(only=only)))

    def scored(
        self, predicted: Collection[str] | None = None, only: frozenset[str] | None = None
    ) -> list[tuple[str, str]]:
        """(model, class) pairs that have scores on slides in `predicted` (None: all); of `only` these slides."""
        text = (
            f"SELECT DISTINCT model_id, class_name FROM score AS slide WHERE NOT {HIDDEN} "
            f"AND {TILE_SCORES} AND (:only IS NULL OR {ONLY}) ORDER BY 1, 2 LIMIT {FEW}"
        )
        rows = self._read(text, Wanted(predicted=predicted, only=only))
        return [(str(model_id), str(class_name)) for model_id, class_name in rows]

    def has(self, what: str, only: frozenset[str] | None = None) -> bool:
        """Whether a manifest column has a value for any slide, or any slide is in a study ("study").

        Args:
            only: only these slides; None: all.
        """
        table, column = ("in_study", "study_id") if what == "study" else ("cohort", what)
        text = f"SELECT 1 FROM {table} AS slide WHERE {column} IS NOT NULL AND (:only IS NULL OR {ONLY})"
        return bool(self._read(f"{text} LIMIT 1", Wanted(only=only)))

    def _read(self, text: str, wanted: Wanted, **more: int | str) -> _Answer:
        values = tuple((wanted.values() | more).items())
        is_short = sum(len(value) for _, value in values if isinstance(value, str)) < _SHORT_QUESTION
        return (self._kept if is_short else self._ask)(self._num_writes, text, values)

    def _ask(self, _num_writes: int, text: str, values: tuple[tuple[str, Any], ...]) -> _Answer:
        """Run a query. The number of writes is part of the cache key: an answer is valid until the next write."""
        with self._lock:
            return tuple(self._connection.execute(text, dict(values)).fetchall())

    def _write(self, text: str, rows: Iterable[Sequence[object]]) -> None:
        self._num_writes += 1
        self._connection.execute("BEGIN")
        self._connection.executemany(text, rows)
        self._connection.execute("COMMIT")


def _row(facts: SlideFacts) -> tuple[object, ...]:
    width_px0, height_px0 = facts.size_wh_px0 or (0, 0)
    is_known = facts.size_wh_px0 is not None
    return (
        facts.slide_id,
        facts.slide_id.casefold(),
        facts.model_dump_json(),
        facts.stamp,
        float(width_px0) * height_px0 if is_known else None,
        facts.mpp0,
        facts.tissue_mm2,
        facts.scanner,
        facts.verdict,
        facts.damaged_tiles if is_known else None,
        facts.ingested_utc,
        " ".join(facts.model_ids).casefold() if is_known else None,
        " ".join(model.model_id for model in facts.models).casefold() if is_known else None,
    )


def _scores(facts: SlideFacts) -> Iterable[tuple[str, str, str, float, int]]:
    for model in facts.models:
        for class_name, score in (model.top_scores or {}).items():
            yield facts.slide_id, model.model_id, class_name, score, 0
    for answer in facts.answers:
        for class_name, score in answer.scores.items():
            yield facts.slide_id, answer.model_id, class_name, score, 1


def _listed(row: tuple[Any, ...]) -> Listed:
    slide_id, facts, case_id, block, stain, label, site, scanner, word, studies = row
    return Listed(
        slide_id,
        SlideFacts.model_validate_json(facts) if facts else None,
        CohortFacts(
            slide_id=slide_id, case_id=case_id, block=block, stain=stain, label=label, site=site, scanner=scanner
        ),
        tuple((study_id, state) for study_id, state in json.loads(studies)),
        word,
    )
