"""Names: those that become paths (slides, tile sets, models), and one form for those that people type."""

from __future__ import annotations

import re
import unicodedata

NAME_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$"
"""1 to 64 letters, digits, dots, underscores and hyphens, not starting with a dot."""
ALLOWED = "1 to 64 letters, digits, dots, underscores and hyphens, not starting with a dot"


def is_name(text: str) -> bool:
    """Whether a text can name a file or folder of a project, and nothing outside it."""
    return re.fullmatch(NAME_PATTERN.strip("^$"), text) is not None


def comparable(text: str) -> str:
    """The form in which names of people, patients, classes and accounts are kept and compared: Unicode NFC.

    "Müller" typed on one computer has six characters, on another seven; both are the same name. Letters that only look
    alike stay different (NFKC would join ª and a), and spaces are left to the callers, which refuse or strip them.
    """
    return unicodedata.normalize("NFC", text)
