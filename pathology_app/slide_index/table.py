"""The facts of all slides in memory, as tables of SQLite: it sorts and filters without holding up other threads."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pathology_app.slide_index.facts import SlideFacts
from pathology_app.slide_index.sweep import Batch, CohortFacts

_TABLES = """
CREATE TABLE slide (slide_id TEXT PRIMARY KEY, folded TEXT, facts TEXT, stamp TEXT, area REAL, mpp REAL, tissue REAL,
    scanner TEXT, verdict TEXT, damaged INTEGER, ingested TEXT, models TEXT) WITHOUT ROWID;
CREATE TABLE score (slide_id TEXT, model_id TEXT, class_name TEXT, score REAL,
    PRIMARY KEY (slide_id, model_id, class_name)) WITHOUT ROWID;
CREATE TABLE cohort (slide_id TEXT PRIMARY KEY, case_id TEXT, label TEXT, site TEXT, scanner TEXT) WITHOUT ROWID;
CREATE TABLE in_study (slide_id TEXT, study_id TEXT, state TEXT, PRIMARY KEY (slide_id, study_id)) WITHOUT ROWID;
"""
_FROM = """
FROM slide LEFT JOIN cohort USING (slide_id)
LEFT JOIN (SELECT key AS slide_id, value AS word FROM json_each(:readings)) AS reading USING (slide_id)
"""
_HIDDEN = "slide.slide_id IN (SELECT value FROM json_each(:hidden))"
_ONLY = "slide.slide_id IN (SELECT value FROM json_each(:only))"
_SCORE = f"""(SELECT max(score) FROM score WHERE score.slide_id = slide.slide_id AND NOT {_HIDDEN}
    AND (:model IS NULL OR model_id = :model) AND (:class IS NULL OR class_name = :class))"""
_WORD = "coalesce(word, json_extract(:reading_words, '$[0]'), '')"
_SCANNER = "coalesce(slide.scanner, cohort.scanner)"
SORTS: Mapping[str, tuple[str, bool]] = {
    "slide": ("slide.slide_id", False),
    "case": ("cohort.case_id", False),
    "score": (_SCORE, True),
    "state": (f"(SELECT key FROM json_each(:reading_words) WHERE value = {_WORD})", False),
    "quality": ("verdict", True),
    "damaged": ("damaged", True),
    "tissue": ("tissue", True),
    "size": ("area", True),
    "mpp": ("mpp", False),
    "scanner": (_SCANNER, False),
    "site": ("cohort.site", False),
    "label": ("cohort.label", False),
    "ingested": ("ingested", True),
}
"""What slides can be sorted by, and whether the largest come first; slides of which it is not known come last."""
FEW = 200
"""Words of a list to choose from."""


@dataclass(frozen=True)
class Wanted:
    """Which slides are looked for, and in which order.

    Attributes:
        words: parts of names; where `only_predicted`, of models' names, too.
        only_predicted: with predictions, or not known whether there are any.
        model_id, class_name: whose scores count; None: of any.
        min_score: of a hotspot.
        state: a reader's word for a slide, or a study's.
        quality: the verdict; "" is none.
        slide_id: this one alone.
        sort: a key of `SORTS`. Ties go by name.
        is_reversed: the other way round; what is not known stays last.
        readings: a person's words for slides.
        reading_words: all such words, in the order of work; the first is that of the other slides.
        hidden: slides of which nothing that a model says may show, not even by their place in the list.
        only: slides that the person may see; None: all.
    """

    words: Sequence[str] = ()
    only_predicted: bool = False
    model_id: str | None = None
    class_name: str | None = None
    min_score: float | None = None
    state: str | None = None
    quality: str | None = None
    site: str | None = None
    scanner: str | None = None
    case_id: str | None = None
    slide_id: str | None = None
    sort: str = "slide"
    is_reversed: bool = False
    readings: Mapping[str, str] = field(default_factory=dict)
    reading_words: tuple[str, ...] = ()
    hidden: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


@dataclass(frozen=True)
class Listed:
    """One slide of a list: what is known of it without a look at its files."""

    slide_id: str
    facts: SlideFacts | None
    """None where it was not read yet."""
    cohort: CohortFacts
    studies: tuple[tuple[str, str], ...]
    """(study, state)."""
    reading: str
    """The person's word for it."""


@dataclass(frozen=True)
class Case:
    """Slides of one patient. `case_id` is None for a slide of which no case is known."""

    case_id: str | None
    slide_id: str
    """The first of them."""
    slides: int
    score: float | None


class SlideTable:
    """All slides of a project; safe in threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._connection.executescript(_TABLES)
        self._names: set[str] = set()
        self._known: set[str] = set()
        self.cohort_note = ""

    def __len__(self) -> int:
        return len(self._names)

    @property
    def slide_ids(self) -> frozenset[str]:
        """All of them."""
        return frozenset(self._names)

    @property
    def num_unread(self) -> int:
        """Slides whose files nobody has read yet."""
        return len(self._names) - len(self._known)

    def set_names(self, slide_ids: Sequence[str]) -> None:
        """Which slides there are."""
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
        """Take a part of a sweep in."""
        known = [facts for facts in batch.facts if facts.slide_id in self._names]
        with self._lock:
            self._write("DELETE FROM score WHERE slide_id = ?", ((facts.slide_id,) for facts in known))
            self._write("INSERT OR REPLACE INTO slide VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", map(_row, known))
            self._write("INSERT INTO score VALUES (?, ?, ?, ?)", (row for facts in known for row in _scores(facts)))
            if batch.cohort_begins:
                self._write("DELETE FROM cohort", [()])
                self.cohort_note = batch.cohort_note
            self._write(
                "INSERT OR REPLACE INTO cohort VALUES (?, ?, ?, ?, ?)",
                ((row.slide_id, row.case_id, row.label, row.site, row.scanner) for row in batch.cohort),
            )
            self._known |= {facts.slide_id for facts in known}

    def set_studies(self, states: Iterable[tuple[str, str, str]]) -> None:
        """How slides stand in studies: (slide, study, state)."""
        with self._lock:
            self._write("DELETE FROM in_study", [()])
            self._write("INSERT OR REPLACE INTO in_study VALUES (?, ?, ?)", states)

    def count(self, wanted: Wanted) -> int:
        """How many slides are wanted."""
        ((number,),) = self._read(f"SELECT count(*) {_FROM} {_where(wanted)}", wanted)
        return int(number)

    def find(self, wanted: Wanted, *, skip: int, limit: int) -> list[Listed]:
        """Slides in the order wanted."""
        columns = (
            f"slide.slide_id, facts, case_id, label, site, cohort.scanner, {_WORD}, "
            "(SELECT json_group_array(json_array(study_id, state)) FROM in_study WHERE slide_id = slide.slide_id)"
        )
        text = f"SELECT {columns} {_FROM} {_where(wanted)} {_order(wanted)} LIMIT :limit OFFSET :skip"
        return [_listed(row) for row in self._read(text, wanted, limit=limit, skip=skip)]

    def count_cases(self, wanted: Wanted) -> int:
        """How many cases the slides wanted make up; a slide without a case is one of its own."""
        text = f"SELECT count(DISTINCT coalesce('c' || case_id, 's' || slide.slide_id)) {_FROM} {_where(wanted)}"
        ((number,),) = self._read(text, wanted)
        return int(number)

    def find_cases(self, wanted: Wanted, *, skip: int, limit: int) -> list[Case]:
        """Cases in the order wanted: of each, the slide that comes first decides."""
        what, falling = SORTS[wanted.sort]
        way = "DESC" if falling != wanted.is_reversed else "ASC"
        best = "max" if way == "DESC" else "min"
        text = f"""SELECT case_id, min(slide_id), count(*), max(score) FROM (
            SELECT case_id, slide.slide_id, {what} AS what, {_SCORE} AS score {_FROM} {_where(wanted)})
            GROUP BY coalesce('c' || case_id, 's' || slide_id)
            ORDER BY {best}(what) IS NULL, {best}(what) {way}, min(slide_id) LIMIT :limit OFFSET :skip"""
        return [Case(*row) for row in self._read(text, wanted, limit=limit, skip=skip)]

    def choices(self, what: str, only: frozenset[str] | None = None) -> list[str]:
        """Words that can be filtered by, the most frequent few; of `only` these slides."""
        column, tables = {
            "site": ("site", "cohort AS slide"),
            "scanner": (_SCANNER, "slide LEFT JOIN cohort USING (slide_id)"),
            "quality": ("verdict", "slide"),
            "study state": ("state", "in_study AS slide"),
        }[what]
        text = (
            f"SELECT {column} FROM {tables} WHERE {column} IS NOT NULL AND (:only IS NULL OR {_ONLY}) "
            f"GROUP BY 1 ORDER BY count(*) DESC LIMIT {FEW}"
        )
        return sorted(str(row[0]) for row in self._read(text, Wanted(only=only)))

    def scored(self, hidden: frozenset[str] = frozenset(), only: frozenset[str] | None = None) -> list[tuple[str, str]]:
        """(model, class) of which there are scores; those of hidden slides alone are not told."""
        text = (
            f"SELECT DISTINCT model_id, class_name FROM score AS slide WHERE NOT {_HIDDEN} "
            f"AND (:only IS NULL OR {_ONLY}) ORDER BY 1, 2 LIMIT {FEW}"
        )
        found = self._read(text, Wanted(hidden=hidden, only=only))
        return [(str(model_id), str(class_name)) for model_id, class_name in found]

    def has(self, what: str) -> bool:
        """Whether a column of the manifest says anything of any slide, or any slide is in a study ("study")."""
        text = "SELECT 1 FROM in_study" if what == "study" else f"SELECT 1 FROM cohort WHERE {what} IS NOT NULL"
        return bool(self._read(f"{text} LIMIT 1", Wanted()))

    def _read(self, text: str, wanted: Wanted, **more: int) -> list[tuple[Any, ...]]:
        values = {
            "readings": json.dumps(dict(wanted.readings)),
            "reading_words": json.dumps(wanted.reading_words),
            "hidden": json.dumps(sorted(wanted.hidden)),
            "only": None if wanted.only is None else json.dumps(sorted(wanted.only)),
            "model": wanted.model_id,
            "class": wanted.class_name,
            "min_score": wanted.min_score,
            "state": wanted.state,
            "quality": wanted.quality,
            "site": wanted.site,
            "scanner": wanted.scanner,
            "case": wanted.case_id,
            "slide": wanted.slide_id,
            **{f"word{at}": word for at, word in enumerate(wanted.words)},
            **more,
        }
        with self._lock:
            return self._connection.execute(text, values).fetchall()

    def _write(self, text: str, rows: Iterable[Sequence[object]]) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany(text, rows)
        self._connection.execute("COMMIT")


def _where(wanted: Wanted) -> str:
    models = f"(CASE WHEN {_HIDDEN} THEN NULL ELSE models END)"
    named = f"(folded || ' ' || coalesce({models}, ''))" if wanted.only_predicted else "folded"
    terms = [f"instr({named}, :word{at})" for at in range(len(wanted.words))]
    if wanted.only_predicted:
        terms.append(f"coalesce({models}, '?') != ''")
    if wanted.min_score is not None:
        terms.append(f"{_SCORE} >= :min_score")
    if wanted.state is not None:
        in_study = "EXISTS (SELECT 1 FROM in_study WHERE slide_id = slide.slide_id AND state = :state)"
        terms.append(f"({_WORD} = :state OR {in_study})")
    if wanted.quality is not None:
        terms.append("coalesce(verdict, '') = :quality AND facts IS NOT NULL")
    equals = {
        "site = :site": wanted.site,
        f"{_SCANNER} = :scanner": wanted.scanner,
        "case_id = :case": wanted.case_id,
        "slide.slide_id = :slide": wanted.slide_id,
    }
    if wanted.only is not None:
        terms.append(_ONLY)
    terms += [term for term, value in equals.items() if value is not None]
    return f"WHERE {' AND '.join(terms)}" if terms else ""


def _order(wanted: Wanted) -> str:
    what, falling = SORTS[wanted.sort]
    way = "DESC" if falling != wanted.is_reversed else "ASC"
    if wanted.sort == "slide":
        return f"ORDER BY slide.slide_id {way}"
    return f"ORDER BY {what} IS NULL, {what} {way}, slide.slide_id"


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
        " ".join(model.model_id.casefold() for model in facts.models) if is_known else None,
    )


def _scores(facts: SlideFacts) -> Iterable[tuple[str, str, str, float]]:
    for model in facts.models:
        for class_name, score in (model.top_scores or {}).items():
            yield facts.slide_id, model.model_id, class_name, score


def _listed(row: tuple[Any, ...]) -> Listed:
    slide_id, facts, case_id, label, site, scanner, word, studies = row
    return Listed(
        slide_id,
        SlideFacts.model_validate_json(facts) if facts else None,
        CohortFacts(slide_id=slide_id, case_id=case_id, label=label, site=site, scanner=scanner),
        tuple((study_id, state) for study_id, state in json.loads(studies)),
        word,
    )
