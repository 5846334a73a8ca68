"""Damage in a file, kept apart from our own bugs: only library calls are guarded.

A library fails on a file that lies about itself in as many ways as it has lines of code, with TypeError and
AttributeError among them. A `library_errors` block therefore holds nothing but the library call; in our own code the
same exceptions are bugs, and pass through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class DamagedFileError(Exception):
    """A file is inconsistent, as found by one of our checks or by a library.

    Readers turn it into the error that names the file and says what to do, as does the code that reads results back
    (`pipeline.export`): no user ever sees it.
    """


@contextmanager
def library_errors(kinds: tuple[type[Exception], ...]) -> Iterator[None]:
    """Guard a library call, and nothing else, against the errors it raises on a damaged file.

    Args:
        kinds: exceptions that this library is known to raise.

    Raises:
        DamagedFileError: it raised one of them; the message begins with its name.
    """
    try:
        yield
    except kinds as error:
        raise DamagedFileError(f"{type(error).__name__}: {error}") from error
