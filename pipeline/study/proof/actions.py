"""Actions of log entries: what each is about, and whether it changes that row. An entry counts only as what its action
says: a forged one of another action cannot explain a changed row, and none but a slide's can have been erased."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pipeline.ledger.rows import (
    AMENDED,
    ANCHOR_EXPORTED,
    ANSWER_GIVEN,
    ENTRIES_ERASED,
    LOG_BEGUN,
    NEVER_ERASED,
    READING_ERASED,
    REPORT_MADE,
    SIGNED,
    SLIDE_ENTERED,
    SLIDE_ERASED,
    STUDY_BEGUN,
    STUDY_EXPORTED,
    TASKS_ADDED,
)

PAUSED, RUNNING = "study paused", "study running"
_STUDY, _SLIDE, _TASK, _READING = "study", "slide", "task", "reading"
_OF_TASK = (
    "task taken", "task given back", "task done", "task to be tried again", "task ended", "task ready", "task dropped",
    "task amended", "task prioritized", "task retried", "lease lapsed",
)  # fmt: skip
_OF_SLIDE = (
    SLIDE_ENTERED, SLIDE_ERASED, "slide read", "slide ended", "slide amended", "slide prioritized", "slide retried",
)  # fmt: skip
_BESIDE_SLIDE = (
    TASKS_ADDED, "slide reproduced", "slide opened", "slide looked at", "slide reviewed", "hotspot seen",
    "hotspot accepted", "hotspot rejected", "annotation drawn", "annotation changed", "annotation deleted",
    "annotation restored", "annotations imported", "slides registered", "registration removed",
)  # fmt: skip
CHANGE_ROWS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((STUDY_BEGUN, LOG_BEGUN, AMENDED, PAUSED, RUNNING), _STUDY),
        **dict.fromkeys(_OF_SLIDE, _SLIDE),
        **dict.fromkeys(_OF_TASK, _TASK),
        **dict.fromkeys(("reading laid out", "reading started", "reading signed", READING_ERASED), _READING),
    }
)
"""The actions whose entries have hashes of the row that they change, and its kind: the first word of the subject."""
ABOUT: Mapping[str, str] = MappingProxyType(
    {
        **CHANGE_ROWS,
        **dict.fromkeys((ENTRIES_ERASED, STUDY_EXPORTED), _STUDY),
        **dict.fromkeys(_BESIDE_SLIDE, _SLIDE),
        "late result refused": _TASK,
        ANSWER_GIVEN: _READING,
        **dict.fromkeys((REPORT_MADE, SIGNED), "report"),
        ANCHOR_EXPORTED: "anchor",
    }
)
"""The kind of subject of every action on which something depends; those of others, such as a sign-in, are free."""


def may_be_erased(action: str) -> bool:
    """Whether an erasure, which empties the entries about a slide, can have emptied one of this action."""
    return ABOUT.get(action) in (_SLIDE, _TASK, _READING) and action not in NEVER_ERASED


def misuse_of(entry: Mapping[str, Any]) -> str | None:
    """How an entry contradicts its own action; None if it does not."""
    action, subject = entry["action"], entry["subject"] or ""
    if ABOUT.get(action, kind := subject.partition(" ")[0]) != kind:
        return f"is about another subject than a {ABOUT[action]}, which this action never is"
    if action not in CHANGE_ROWS and (entry["before"], entry["after"]) != (None, None):
        return "says that it changed a row, which this action never does"
    return None
