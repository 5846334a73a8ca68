"""Pairs of classes of which one denies the other: "necrosis" and "no necrosis", "yes" and "no", "CMV+" and "CMV-"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from training.foundation.words.class_words import (
    AFFIRMATIVE,
    DENIAL,
    DETECTED,
    JOINING,
    NEGATIVE,
    NEGATIVE_ENDINGS,
    NOT,
    OF_ENTITIES,
    OTHER_KIND,
)

Denial = Literal["plain", "other kind"]
"""Whether a name plainly denies another ("no X"), or may as well be another kind of the same ("non-X")."""
_COMMA = ","
_DENYING, _STATING = NOT | NEGATIVE | DENIAL, AFFIRMATIVE | DETECTED
_SIGN_ENDS = r"(?=$|[\s)\]}_,;:/])"
_SIGNS = (
    (re.compile(r"[-−–‐]ve\b"), " negative "),
    (re.compile(r"[+＋]ve\b"), " positive "),
    (re.compile(rf"[-−–‐]+{_SIGN_ENDS}"), " negative "),
    (re.compile(rf"[+＋]+{_SIGN_ENDS}"), " positive "),
)  # fmt: skip
_UNSPACED_DENIAL = re.compile(r"(?:没有|沒有|未见|未見|无|無|非)(?P<after>.+)|(?P<before>.+?)\s*(?:なし|無し|없음)")
_UNSPACED_STATED = re.compile(r"(?:有)(?P<after>.+)|(?P<before>.+?)\s*(?:あり|有り|있음)")


def denial_of(name: str, stated: str, words_of: Callable[[str], Sequence[str]]) -> Denial | None:
    """How one class name denies another; None if it does not.

    Args:
        words_of: splits a name into words.
    """
    if _denies_unspaced(name, stated):
        return "plain"
    words, other = (_significant(each, words_of) for each in (name, stated))
    numbers, other_numbers = re.findall(r"\d+", name), re.findall(r"\d+", stated)
    if not _DENYING.isdisjoint(other):
        return None
    rest, other_rest = (sorted(word for word in each if word not in _DENYING | _STATING) for each in (words, other))
    if numbers != other_numbers:
        return "plain" if rest == other_rest and _is_zero_of(numbers, other_numbers) else None
    if not OF_ENTITIES.isdisjoint(rest):
        return None
    denying = {word for word in words if word in _DENYING}
    if rest == other_rest and denying and (rest or other):
        return "other kind" if rest and denying <= OTHER_KIND else "plain"
    return "other kind" if not denying and _denies_in_one_word(rest, other_rest) else None


def _significant(name: str, words_of: Callable[[str], Sequence[str]]) -> list[str]:
    for sign, word in _SIGNS:
        name = sign.sub(word, name)
    return [word for word in words_of(name) if word != _COMMA and word not in JOINING - _DENYING - _STATING]


def _is_zero_of(numbers: Sequence[str], other: Sequence[str]) -> bool:
    """Whether numbers are the same but for one, which is 0: "class 0" and "class 1"."""
    if len(numbers) != len(other):
        return False
    differing = [(int(one), int(two)) for one, two in zip(numbers, other, strict=True) if one != two]
    return len(differing) == 1 and differing[0][0] == 0 != differing[0][1]


def _denies_in_one_word(rest: Sequence[str], other: Sequence[str]) -> bool:
    """Whether one word differs, and denies the other's: "nonnecrotic", "infarktfrei"."""
    one, two = sorted(set(rest) - set(other)), sorted(set(other) - set(rest))
    if len(rest) != len(other) or (len(one), len(two)) != (1, 1) or two[0] in OF_ENTITIES:
        return False
    return one[0] == f"non{two[0]}" or any(one[0] == two[0] + end for end in NEGATIVE_ENDINGS)


def _denies_unspaced(name: str, stated: str) -> bool:
    denial, statement = _UNSPACED_DENIAL.fullmatch(name), _UNSPACED_STATED.fullmatch(stated)
    if denial is None:
        return False
    core = statement[statement.lastgroup or 0] if statement else stated
    return denial[denial.lastgroup or 0].strip() == core.strip()
