"""Rules for class names, which go into tables, packages, XML, HTML and onto terminals."""

from __future__ import annotations

from training.foundation.words.names import comparable

MAX_CLASS_NAME_LENGTH = 100


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
        ValueError: it contains a character that cannot be printed: among them zero-width and no-break spaces, which
            could make two names look the same.
    """
    text = comparable(text)
    if not text.isprintable():
        bad = next(character for character in text if not character.isprintable())
        raise ValueError(f"contains the character U+{ord(bad):04X}, which cannot be printed")
    return text
