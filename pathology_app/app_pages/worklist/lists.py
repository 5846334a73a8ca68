"""The worklist's lists as HTML: a table, a gallery, and both by case."""

from __future__ import annotations

import html
from collections.abc import Sequence

from pathology_app.app_pages.worklist.rows import WorklistRow, columns, quality_text
from pathology_app.html.tables import link_html, picture_html, table
from pathology_app.html.text import as_text
from pathology_app.links.worklist import GALLERY, WorklistLink
from pathology_app.slides.index.table import Case
from pipeline.palettes import DEFAULT_PALETTE, PALETTES
from training.foundation.words.counts import counted

LOADING = '<div class="gs-loading" role="status">Loading slides…</div>'


def slides_html(rows: Sequence[WorklistRow], link: WorklistLink) -> str:
    """Slides in the link's view."""
    if link.view == GALLERY:
        return (
            f'<div class="gs-cards" role="list" aria-label="Slides">{"".join(_card(row, link) for row in rows)}</div>'
        )
    return table(columns(link), (row.cells(link) for row in rows), label="Slides")


def cases_html(cases: Sequence[tuple[Case, Sequence[WorklistRow]]], link: WorklistLink) -> str:
    """Cases that unfold; a case with very many slides has a link to the rest."""
    return "".join(_case(case, rows, link) for case, rows in cases)


def heat_legend(rows: Sequence[WorklistRow]) -> str:
    """Legend of the colours over the images; "" where there are none."""
    shown = {(row.heat.model_id, row.heat.class_name) for row in rows if row.heat}
    if not shown:
        return ""
    thresholds = sorted({row.heat.threshold for row in rows if row.heat})
    stops = PALETTES[DEFAULT_PALETTE]
    reached = stops[int(thresholds[0] * (len(stops) - 1)) :]
    ramp = f"linear-gradient(90deg, {', '.join(f'#{stop}' for stop in reached)})"
    quantity = f"P({next(iter(shown))[1]})" if len(shown) == 1 else "the class with the top score"
    lowest = f"{thresholds[0]:g}" if len(thresholds) == 1 else f"each result's threshold ({thresholds[0]:g} or more)"
    text = _escaped(f"{quantity}, from {lowest} to 1; lower values are transparent.")
    return f'<p class="gs-note"><i style="background: {ramp}"></i>{text}</p>'


def _card(row: WorklistRow, link: WorklistLink) -> str:
    picture = picture_html(row.picture) if row.picture else '<span class="none">No image</span>'
    score = row.score(link)
    cohort = row.listed.cohort
    lines = [
        ("", " · ".join(filter(None, (row.reading, row.readers, row.studies)))),
        ("", f"Top score: {score}" if score else ""),
        ("", row.answers),
        ("faint", f"P({row.heat.class_name}), {row.heat.model_id}" if row.heat else ""),
        ("faint", " · ".join(filter(None, (cohort.case_id and f"Case {cohort.case_id}", quality_text(row.facts))))),
        ("", row.facts.note),
    ]
    drawn = "".join(f'<span class="{kind}">{_escaped(text)}</span>' for kind, text in lines if text)
    to = row.link(link)
    return f'<div class="gs-card" role="listitem">{picture}{link_html(to.text, to.query)}{drawn}</div>'


def _case(case: Case, rows: Sequence[WorklistRow], link: WorklistLink) -> str:
    if case.case_id is None:
        name, slides = case.slide_id, "case unknown"
    else:
        name, slides = case.case_id, counted(case.slides, "slide")
    texts = [slides, *([f"top score {case.score:.2f}"] if case.score is not None else [])]
    texts += sorted({row.reading for row in rows if row.reading})
    summary = "".join(f"<span>{_escaped(text)}</span>" for text in texts)
    more = ""
    if case.slides > len(rows):
        to = link.to(case=case.case_id, by_case=False, page=1).query()
        more = f"<p>{link_html(f'All {case.slides:,} slides of this case', to)}</p>"
    inside = f"<div>{slides_html(rows, link)}{more}</div>"
    return f'<details class="gs-case"><summary><strong>{_escaped(name)}</strong>{summary}</summary>{inside}</details>'


def _escaped(text: object) -> str:
    return html.escape(as_text(text))
