"""Damage of a file, told apart from bugs of our own: only a library's own calls are guarded.

A library fails on a file that lies about itself in as many ways as it has lines of code, TypeError and AttributeError
among them. A `library_errors` block therefore holds nothing but the library's call; around our own code the same
exceptions are bugs, and come out as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class DamagedFileError(Exception):
    """A file does not hold together: said by one of our checks, or by a library.

    Readers turn it into the error that names the file and says what to do, and so does whoever reads results back
    (`pipeline.export`): it reaches no person.
    """


@contextmanager
def library_errors(kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Around a library's call, and nothing else: what it raises on a damaged file.

    Args:
        kinds: what this library is known to raise.

    Raises:
        DamagedFileError: it raised one of them; the message begins with its name.
    """
    try:
        yield
    except kinds as error:
        raise DamagedFileError(f"{type(error).__name__}: {error}") from error
