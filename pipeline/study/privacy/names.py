"""Searching texts for names that must not be exported."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from training.foundation.words.names import comparable

SHORTEST = 4
"""Names of fewer letters or digits would be found in words and numbers by chance."""
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_ENDS = ".-_"


@dataclass(frozen=True)
class Names:
    """Names that must not be exported, for searching."""

    tokens: frozenset[str]
    phrases: tuple[str, ...]
    """Names of more than one word."""

    @classmethod
    def of(cls, names: Collection[str]) -> Names:
        searched = {comparable(name.casefold()) for name in names if is_searchable(name)}
        tokens = frozenset(name for name in searched if _TOKEN.fullmatch(name))
        return cls(tokens, tuple(sorted(searched - tokens)))

    def first_in(self, text: str) -> str | None:
        """A name that occurs in a text; None if none does."""
        folded = comparable(text.casefold())
        for match in _TOKEN.finditer(folded):
            for token in _readings(match[0]):
                if token in self.tokens:
                    return token
        return next((phrase for phrase in self.phrases if phrase in folded), None)


def is_searchable(name: str) -> bool:
    """Whether a name is long enough not to be found by chance."""
    return len(name) >= SHORTEST and not (name.isdigit() and len(name) < SHORTEST + 2)


def _readings(token: str) -> Iterator[str]:
    """A word as it is, without punctuation at its ends, without file suffixes, and its parts."""
    yield token
    yield token.strip(_ENDS)
    stem = token
    while "." in stem:
        stem = stem.rpartition(".")[0]
        yield stem
    yield from re.split(r"[_.-]", token)
