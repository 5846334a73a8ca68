"""Text that others wrote (names, classes, messages), shown as text: in Markdown, in cells, and without paths.

Streamlit draws Markdown in messages, captions and labels, where a name could become an image from a stranger's server,
a link, a colour or an icon.
"""

from __future__ import annotations

import re
import string
import unicodedata
from pathlib import Path

from training.foundation.errors import GemslideError

READ_ERRORS = (GemslideError, OSError)
"""Errors that reading a project's files may raise, whatever they contain."""

MAX_SHOWN = 600
"""Characters of one text; a damaged file can contain a name of several megabytes."""

_JOINER = "\u2060"
"""Has no width. It breaks up what Streamlit, despite all escapes, would still turn into icons, links and arrows."""

_PUNCTUATION = re.compile(f"([{re.escape(string.punctuation)}])")
_ICON_OR_LINK = re.compile(r"(:(?=\S)|@(?=\S)|www(?=\.))", re.IGNORECASE)
_ARROW = re.compile(r"(?:(?<=\s)|^)(<->|->|<-|--|>=|<=|~=)(?=\s|$)")
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
_ABSOLUTE_PATH = re.compile(r"(?<![\w.:/])(?:s3:/)?/(?:[^\s/'\"`:,;]+/)+")
"""Folders of this computer, or of a bucket."""


def as_text(text: object) -> str:
    """A single line that can be drawn: no control characters, nothing that reverses or breaks the line."""
    shown = str(text)[: MAX_SHOWN + 1]
    if len(shown) > MAX_SHOWN:
        shown = shown[: MAX_SHOWN - 1] + "…"
    return "".join(map(_drawable, shown))


def as_markdown(text: object) -> str:
    """Markdown that Streamlit draws as `as_text(text)`, character for character except for blanks around it."""
    parted = _ARROW.sub(lambda arrow: arrow[0][0] + _JOINER + arrow[0][1:], as_text(text).strip())
    parted = _ICON_OR_LINK.sub(rf"\1{_JOINER}", parted)
    return _PUNCTUATION.sub(r"\\\1", parted)


def message_of(error: BaseException, root: Path) -> str:
    """Message of an error, without this computer's folders."""
    return without_folders(str(error), root)


def without_folders(message: str, root: Path) -> str:
    """A message, with paths relative to the project's folder; others keep only their last part."""
    message = message.replace(f"{root}/", "").replace(str(root), "the project")
    return as_text(_ABSOLUTE_PATH.sub("…/", message))


def _drawable(character: str) -> str:
    if character in "\n\r\t":
        return " "
    return "\ufffd" if unicodedata.category(character) in _HIDDEN else character


def time_text(utc: str | None) -> str:
    """A time from the ledger without fractions of a second: "2026-11-20 14:03:12"."""
    return as_text((utc or "")[:19].replace("T", " "))
