"""Content of the worklist for a slide: a table row or a gallery card. Pure: nothing here draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pathology_app.html.tables import Breakpoint, Column, Link, Picture, Sort
from pathology_app.html.text import READ_ERRORS, as_text
from pathology_app.links.worklist import WorklistLink
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.facts import ModelFacts, SlideFacts
from pathology_app.slides.index.table import Listed
from pathology_app.slides.index.wanted import SORTS
from pathology_app.slides.presenters import size_text
from training.foundation.words.class_order import lesion_classes
from training.foundation.words.counts import counted


@dataclass(frozen=True)
class Heat:
    """The heat map over a slide's image."""

    url: str
    model_id: str
    class_name: str
    threshold: float


@dataclass(frozen=True)
class WorklistRow:
    """One slide of the worklist.

    Attributes:
        listed: the slide's entry in the index.
        facts: as its files are now.
        heat: None where no prediction can be shown.
        reading: the person's reading status.
        readers: people who have read it, where that may be shown.
    """

    listed: Listed
    facts: SlideFacts
    heat: Heat | None = None
    reading: str = ""
    readers: str = ""

    @property
    def slide_id(self) -> str:
        return self.facts.slide_id

    @property
    def picture(self) -> Picture | None:
        if self.facts.version is None:
            return None
        url = f"/thumbnails/{quote(self.slide_id)}.jpg?v={self.facts.version}"
        return Picture(url, self.heat.url if self.heat else None)

    @property
    def studies(self) -> str:
        """State in the studies: "done"; with their names where there are several."""
        studies = self.listed.studies
        return studies[0][1] if len(studies) == 1 else ", ".join(f"{study_id}: {state}" for study_id, state in studies)

    @property
    def answers(self) -> str:
        """What slide-level models say of the slide or its patient; with the models' names where there are several."""
        answers = self.facts.answers
        return answers[0].text if len(answers) == 1 else " | ".join(f"{each.model_id}: {each.text}" for each in answers)

    @property
    def size(self) -> str:
        facts = self.facts
        return size_text(facts.size_wh_px0, facts.mpp0) if facts.size_wh_px0 and facts.mpp0 else ""

    def score(self, link: WorklistLink) -> str:
        """The highest hotspot score, or the probability of a slide-level model's class that is asked for; "none" where
        a search found no hotspots, and "" where that is unknown."""
        model_id, class_name = link.score_of or ("", "")
        top = self.facts.top_score(model_id or None, class_name or None)
        if top is not None:
            return f"{top:.2f}"
        models = [model for model in self.facts.models if model_id in ("", model.model_id)]
        return "none" if models and all(model.top_scores is not None for model in models) else ""

    def link(self, link: WorklistLink) -> Link:
        """Link to the slide; it also holds the way back."""
        return Link(self.slide_id, {**link.query(), "slide": self.slide_id})

    def cells(self, link: WorklistLink) -> tuple[object, ...]:
        """The row's cells, in the order of `columns`."""
        facts, cohort = self.facts, self.listed.cohort
        return (
            self.picture,
            self.link(link),
            None if link.by_case else cohort.case_id,
            cohort.block,
            cohort.stain,
            self.reading,
            self.readers,
            self.score(link),
            self.answers,
            facts.note,
            ", ".join(facts.model_ids),
            quality_text(facts),
            self.studies,
            None if facts.tissue_mm2 is None else f"{facts.tissue_mm2:.1f}",
            date_text(facts.ingested_utc),
            self.size,
            None if facts.mpp0 is None else f"{facts.mpp0:.4g}",
            facts.scanner or cohort.scanner,
            cohort.site,
            cohort.label,
        )


def columns(link: WorklistLink) -> tuple[Column, ...]:
    """The table's columns; a heading sorts by its column. The least informative are hidden first in narrow windows."""

    def of(heading: str, kind: str, sort: str | None, hide_below_px: Breakpoint = 0) -> Column:
        now = "none" if sort != link.sort else "descending" if _falls(link) else "ascending"
        by = Sort(link.sorted_by(sort).query(), now) if sort else None  # type: ignore[arg-type]
        return Column(heading, kind, hide_below_px, by)  # type: ignore[arg-type]

    return (
        of("Image", "fixed", None),
        of("Slide", "text", "slide"),
        of("Case", "text", "case", 900),
        of("Block", "text", None, 1200),
        of("Stain", "text", None, 900),
        of("State", "fixed", "state"),
        of("Reader", "text", None),
        of("Top score", "number", "score"),
        of("Prediction", "long", None, 900),
        of("Note", "long", None),
        of("Predictions of", "text", None, 900),
        of("Quality", "text", "quality", 900),
        of("Study", "text", None, 1200),
        of("Tissue mm²", "number", "tissue", 1200),
        of("Ingested", "fixed", "ingested", 1200),
        of("Size", "text", "size", 1500),
        of("µm/px", "number", "mpp", 1500),
        of("Scanner", "text", "scanner", 1500),
        of("Site", "text", "site", 1500),
        of("Label", "text", "label", 1500),
    )


def read_row(
    cache: SlideCache, listed: Listed, facts: SlideFacts, link: WorklistLink, *, reading: str = "", readers: str = ""
) -> WorklistRow:
    """A slide as one row, damaged or not. Arguments: as in `WorklistRow`."""
    heat = _heat(cache, facts, link) if facts.version else None
    return WorklistRow(listed, facts, heat, as_text(reading), as_text(readers))


def without_predictions(facts: SlideFacts, why: str) -> SlideFacts:
    """A slide as shown to somebody who may not see any model output yet.

    Args:
        why: shown in the row, instead of any fault of the predictions' files.
    """
    return facts.model_copy(
        update={"models": (), "slide_models": (), "answers": (), "note": why if facts.version else facts.note}
    )


def quality_text(facts: SlideFacts) -> str:
    """The QC verdict, and any damage to the slide's file, which matters as much."""
    damaged = counted(facts.damaged_tiles, "damaged tile")
    return ", ".join(text for text in (facts.verdict, damaged if facts.damaged_tiles else "") if text)


def date_text(utc: str | None) -> str:
    """The date of a time in UTC."""
    return (utc or "")[:10]


def _falls(link: WorklistLink) -> bool:
    return SORTS[link.sort][1] != link.is_reversed


def _heat(cache: SlideCache, facts: SlideFacts, link: WorklistLink) -> Heat | None:
    """Heat map of the link's model and class, or else of those with the highest hotspot."""
    wanted_model, wanted_class = link.score_of or ("", "")
    models = [model for model in facts.models if wanted_model in ("", model.model_id)]
    if not models:
        return None
    model = max(models, key=lambda candidate: max((candidate.top_scores or {}).values(), default=-1.0))
    try:
        known = cache.class_names(facts.slide_id, model.model_id)
    except READ_ERRORS:  # the slide's own page reports the fault
        return None
    class_name = _class(model, known.class_names, wanted_class)
    index = known.class_names.index(class_name)
    threshold = cache.threshold(facts.slide_id, model.model_id)
    url = f"/heatmaps/{quote(facts.slide_id)}/{quote(model.model_id)}/{index}.png?v={known.version}-{threshold:g}"
    return Heat(url, model.model_id, class_name, threshold)


def _class(model: ModelFacts, class_names: Sequence[str], wanted: str) -> str:
    strongest = max((model.top_scores or {}).items(), key=lambda item: item[1], default=("", 0.0))[0]
    return next((name for name in (wanted, strongest) if name in class_names), lesion_classes(class_names)[-1])
