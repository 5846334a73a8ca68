"""Names that become paths: slides, tile sets, models."""

from __future__ import annotations

import re

NAME_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
"""1 to 64 letters, digits, dots, underscores and hyphens, not starting with a dot."""
ALLOWED = "1 to 64 letters, digits, dots, underscores and hyphens, not starting with a dot"


def is_name(text: str) -> bool:
    """Whether a text can name a file or folder of a project, and nothing outside it."""
    return re.fullmatch(NAME_PATTERN.strip("^$"), text) is not None
