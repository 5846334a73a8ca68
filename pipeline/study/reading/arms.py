"""Conditions under which a slide is read, and what each lets a reader see."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

ASSISTED, ADJUDICATION = "assisted", "adjudication"


def may_show_predictions(row: Row[Any]) -> bool:
    """Whether what a model said may be shown in this reading."""
    return bool(row.arm == ASSISTED)
