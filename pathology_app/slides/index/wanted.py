"""Selection and order of the index's slides, as SQL over the tables of `table.py`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

FROM = """
FROM slide LEFT JOIN cohort USING (slide_id)
LEFT JOIN (SELECT key AS slide_id, value AS word FROM json_each(:readings)) AS reading USING (slide_id)
"""
HIDDEN = "(:predicted IS NOT NULL AND slide.slide_id NOT IN (SELECT value FROM json_each(:predicted)))"
_UNLABELLED = "(:labelled IS NOT NULL AND slide.slide_id NOT IN (SELECT value FROM json_each(:labelled)))"
ONLY = "slide.slide_id IN (SELECT value FROM json_each(:only))"
# A slide-level model may rest on a slide that is hidden from the person: only who sees all is shown its answers here.
# Its probabilities are no scores of hotspots, so they count only for a model that is named.
TILE_SCORES = "(is_slide_level = 0 OR (:predicted IS NULL AND :only IS NULL))"
SCORE = f"""(SELECT max(score) FROM score WHERE score.slide_id = slide.slide_id AND NOT {HIDDEN}
    AND {TILE_SCORES} AND (:model IS NOT NULL OR is_slide_level = 0)
    AND (:model IS NULL OR model_id = :model) AND (:class IS NULL OR class_name = :class))"""
WORD = "coalesce(word, json_extract(:reading_words, '$[0]'), '')"
_MODELS = f"CASE WHEN {HIDDEN} THEN NULL ELSE models END"
# For the same reason only who sees all finds slides by the name of a slide-level model.
_FOUND_BY = f"""coalesce(CASE WHEN {HIDDEN} THEN NULL
    WHEN :predicted IS NOT NULL OR :only IS NOT NULL THEN tile_models ELSE models END, '')"""
LABEL = f"CASE WHEN {_UNLABELLED} THEN NULL ELSE cohort.label END"
SCANNER = "coalesce(slide.scanner, cohort.scanner)"
SORTS: Mapping[str, tuple[str, bool]] = {
    "slide": ("slide.slide_id", False),
    "case": ("cohort.case_id", False),
    "score": (SCORE, True),
    "state": (f"(SELECT key FROM json_each(:reading_words) WHERE value = {WORD})", False),
    "quality": ("verdict", True),
    "damaged": ("damaged", True),
    "tissue": ("tissue", True),
    "size": ("area", True),
    "mpp": ("mpp", False),
    "scanner": (SCANNER, False),
    "site": ("cohort.site", False),
    "label": (LABEL, False),
    "ingested": ("ingested", True),
}
"""Expressions to sort slides by, and whether the largest come first; slides without a value come last."""


@dataclass(frozen=True)
class Wanted:
    """Selection and order of slides.

    Attributes:
        words: parts of names; with `only_predicted`, also of models' names: of slide-level models only for a person
            from whom nothing is hidden.
        only_predicted: slides that have predictions, or may have some.
        model_id, class_name: those whose scores count; None: any.
        min_score: minimum score of a hotspot.
        state: a reading status of a slide, or its state in a study.
        quality: the QC verdict; "" is none.
        slide_id: only this slide.
        sort: a key of `SORTS`. Ties are sorted by name.
        is_reversed: reverse order; unknown values stay last.
        readings: a person's reading status by slide.
        predicted: slides whose predictions are known; None: all.
        labelled: slides whose labels are known; None: all.
        reading_words: all such statuses, in order of work; the first applies to all other slides.
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
    predicted: Collection[str] | None = None
    labelled: Collection[str] | None = None
    only: frozenset[str] | None = None

    def values(self) -> dict[str, str | float | None]:
        """Values for the named parameters of the SQL."""
        return {
            "readings": json.dumps(dict(self.readings)),
            "reading_words": json.dumps(self.reading_words),
            "predicted": None if self.predicted is None else json.dumps(sorted(self.predicted)),
            "labelled": None if self.labelled is None else json.dumps(sorted(self.labelled)),
            "only": None if self.only is None else json.dumps(sorted(self.only)),
            "model": self.model_id,
            "class": self.class_name,
            "min_score": self.min_score,
            "state": self.state,
            "quality": self.quality,
            "site": self.site,
            "scanner": self.scanner,
            "case": self.case_id,
            "slide": self.slide_id,
            **{f"word{at}": word for at, word in enumerate(self.words)},
        }


def where(wanted: Wanted) -> str:
    """The WHERE clause; "" for none."""
    named = f"(folded || ' ' || {_FOUND_BY})" if wanted.only_predicted else "folded"
    terms = [f"instr({named}, :word{at})" for at in range(len(wanted.words))]
    if wanted.only_predicted:
        terms.append(f"({_MODELS} IS NULL OR models != '')")
    if wanted.min_score is not None:
        terms.append(f"{SCORE} >= :min_score")
    if wanted.state is not None:
        in_study = "EXISTS (SELECT 1 FROM in_study WHERE slide_id = slide.slide_id AND state = :state)"
        terms.append(f"({WORD} = :state OR {in_study})")
    if wanted.quality is not None:
        terms.append("coalesce(verdict, '') = :quality AND facts IS NOT NULL")
    equals = {
        "site = :site": wanted.site,
        f"{SCANNER} = :scanner": wanted.scanner,
        "case_id = :case": wanted.case_id,
        "slide.slide_id = :slide": wanted.slide_id,
    }
    if wanted.only is not None:
        terms.append(ONLY)
    terms += [term for term, value in equals.items() if value is not None]
    return f"WHERE {' AND '.join(terms)}" if terms else ""


def order(wanted: Wanted) -> str:
    """The ORDER BY clause; slides without a value to sort by come last."""
    what, falling = SORTS[wanted.sort]
    way = "DESC" if falling != wanted.is_reversed else "ASC"
    if wanted.sort == "slide":
        return f"ORDER BY slide.slide_id {way}"
    return f"ORDER BY {what} IS NULL, {what} {way}, slide.slide_id"
