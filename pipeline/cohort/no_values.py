"""Cells of a manifest that hold text, but no value: what programs write for a missing value, and words for false."""

from __future__ import annotations

import re

from training.foundation.words.names import comparable

_MISSING = r"na n/a n.a. n.a #na <na> nan -nan nat null (null) nil none \n . n/d н/д"
"""Of R, pandas, databases, SAS and people, case-folded and without spaces."""
_FALSE = """
false falsch faux falso onwaar falsk falskt usann epätosi fałsz falsz nepravda hamis yanlış yanliş fals ложь хибність
лъжа невярно ψευδής ψευδης neistina netačno laž napačno netiesa aplams väär vale faltsua sai 假 偽 거짓
f n no nein non nee nej nei nie ne não nao nem ei hayır hayir nu нет ні не όχι οχι いいえ 否 아니요
keep kept include included ok okay off behalten conserver garder mantener tenere
"""
"""Of spreadsheets and people, to be case-folded."""
_MISSING_WORDS = frozenset(_MISSING.split())
_FALSE_WORDS = frozenset(_FALSE.casefold().split())
_DASHES = re.compile(r"[-\u2010-\u2015\u2043\u2212\uFE58\uFE63\uFF0D]+")
_ZERO = re.compile(r"[+-]?0+(?:[.,]0*)?")
_SHORTENED = re.compile(r"[0-9](?:[.,][0-9]+)?[eE]\+[0-9]+")


def why_no_value(column: str, text: str) -> str | None:
    """What is wrong with a cell that is not empty, but holds no value, and what to do; None if it holds one.

    "None" may be the name of a class.
    """
    if is_missing(text) and (column, text.casefold()) != ("label", "none"):
        return "stands for a missing value: empty the cell, or write a word that says more"
    if column != "mpp" and _SHORTENED.fullmatch(text):
        return "is a long number that a program has shortened: format the column as text, and type the value again"
    return None


def is_missing(text: str) -> bool:
    """Whether a text is what a program or person writes where there is no value, or consists of dashes."""
    compact = "".join(text.casefold().split())
    return compact in _MISSING_WORDS or _DASHES.fullmatch(compact) is not None


def is_false(text: str) -> bool:
    """Whether a text says "no" or "false", in the languages of spreadsheets, or is zero."""
    return comparable(text).casefold() in _FALSE_WORDS or _ZERO.fullmatch(text) is not None
