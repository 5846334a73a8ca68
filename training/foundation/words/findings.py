"""Messages of pydantic's findings, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def message_of(detail: Mapping[str, Any]) -> str:
    """Message of one of `ValidationError.errors()`; a check of ours speaks for itself, without "Value error, "."""
    return str(detail["ctx"]["error"]) if detail["type"] == "value_error" else str(detail["msg"])
