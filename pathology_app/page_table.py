"""All pages of the app, how links name them, and what each shows of models (docs/reference/studies.md, Blinded)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pathology_app.app_pages import calibration, unknown
from pathology_app.app_pages.declared import DeclaredPage
from pathology_app.app_pages.log import page as access_log
from pathology_app.app_pages.runs import page as runs
from pathology_app.app_pages.slide import compare
from pathology_app.app_pages.slide import page as slide
from pathology_app.app_pages.studies import page as studies
from pathology_app.app_pages.worklist import page as worklist
from pathology_app.links.compare import COMPARE
from pathology_app.links.log import LOG
from pathology_app.links.runs import PAGE as RUNS
from pathology_app.readings.blinding import Shows

SLIDE_PATH = "slide"


def _names(word: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda query: word in query


PAGES = (
    DeclaredPage("slide", _names(SLIDE_PATH), Shows.PREDICTION, slide.page, redacts=True),
    DeclaredPage("compare", _names(COMPARE), Shows.PREDICTION, compare.page, redacts=True),
    DeclaredPage("log", _names(LOG), Shows.MODEL, access_log.page),
    DeclaredPage("study", _names("study"), Shows.MODEL, studies.page, redacts=True),
    DeclaredPage("check", _names("check"), Shows.NEITHER, calibration.page),
    DeclaredPage("runs", lambda query: query.get("page") == RUNS, Shows.MODEL, runs.page),
    DeclaredPage("unknown", unknown.is_unknown, Shows.NEITHER, unknown.page),
    DeclaredPage("worklist", lambda query: True, Shows.PREDICTION, worklist.page, redacts=True),
)
"""The views of a study have their own table, `studies.VIEWS`. Before sign-in, only `signing_in` is drawn, which
shows nothing of the project."""
