"""Rules for class names, which go into tables, packages, XML, HTML and onto terminals."""

from __future__ import annotations

import re

from training.foundation.words.names import comparable

MAX_CLASS_NAME_LENGTH = 100
_IGNORABLE = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Characters that show nothing, first and last: Default_Ignorable_Code_Point in Unicode's DerivedCoreProperties.txt."""
_BLANK = ((0x2800, 0x2800), (0x1D159, 0x1D159))
"""Characters that look like a space, but are none to Unicode: the empty Braille pattern and the null note head."""
_INVISIBLE = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _IGNORABLE + _BLANK) + "]")


def check_class_name(name: str) -> str:
    """Return a class name that every file and page can hold, in the form in which names are compared.

    Raises:
        ValueError: empty or too long, spaces at an end, or a character that cannot be printed (control characters,
            halves of a surrogate pair, invisible marks).
    """
    name = comparable(name)
    if not 1 <= len(name) <= MAX_CLASS_NAME_LENGTH:
        raise ValueError(f"a class name has 1 to {MAX_CLASS_NAME_LENGTH} characters, not {len(name)}")
    if name != name.strip():
        raise ValueError(f"the class name {name!a} begins or ends with a space")
    return check_printable(name)


def check_printable(text: str) -> str:
    """Return a text of one line, in the form in which names are compared.

    Raises:
        ValueError: it contains a character that cannot be printed: among them zero-width and no-break spaces, and
            variation selectors, which could make two names look the same.
    """
    text = comparable(text)
    if not text.isprintable() or _INVISIBLE.search(text):
        bad = next(c for c in text if not c.isprintable() or _INVISIBLE.match(c))
        raise ValueError(f"contains the character U+{ord(bad):04X}, which cannot be printed")
    return text
