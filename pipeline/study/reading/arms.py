"""Conditions under which a slide is read, and what a reader may see in each."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

ASSISTED, ADJUDICATION = "assisted", "adjudication"


def may_show_predictions(row: Row[Any]) -> bool:
    """Whether a model's predictions may be shown in this reading."""
    return bool(row.arm == ASSISTED)
