"""Lesions in class names, and which of them a name negates: "no tumour", "DCIS without invasion"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.foundation.words.class_words import (
    ADJACENT,
    ALSO,
    AWAY,
    BENIGN,
    BESIDE,
    DETECTED,
    EVIDENCE,
    JOINING,
    LESION,
    LESION_ENDINGS,
    MAY_BE_BENIGN,
    NEGATIVE,
    NEGATIVE_ENDINGS,
    NEGATIVE_STARTS,
    NEGATIVE_STARTS_OF_WORDS,
    NO_LESIONS,
    NOT,
    NOT_ONE,
    OF_ENTITIES,
    PLACES,
    TISSUE,
)

COMMA = ","
"""Stands among a name's words for a comma, a bracket and the like. What is negated ends there."""


def names_lesion(words: Sequence[str]) -> bool:
    """Whether a name has a lesion that it neither negates, nor calls benign, nor only places beside the tissue."""
    excepted = {*_negated(words), *_benign(words), *_adjacent(words)}
    return any(_is_lesion(word) and index not in excepted for index, word in enumerate(words))


def says_no_lesion(words: Sequence[str]) -> bool:
    """Whether a name says that there is no lesion, as in "negative for malignancy", "no tumour", "tumour not detected",
    "nontumor", "tumorfrei"; not as in "HER2 negative"."""
    if any(_denies(words, index) for index in range(len(words))):
        plain = NEGATIVE | NOT | DETECTED | EVIDENCE | TISSUE | JOINING | {COMMA}
        return all(word in plain or _is_lesion(word) for word in words)
    return bool(_negated(words)) or any(map(_in_one_word, words))


def _is_lesion(word: str) -> bool:
    return _is_finding(word) and not (word not in LESION and _in_one_word(word))


def _is_finding(word: str) -> bool:
    return word in LESION or (word.endswith(LESION_ENDINGS) and not word.endswith(NO_LESIONS))


def _denies(words: Sequence[str], index: int) -> bool:
    """Whether a word denies the finding beside it: "negative", "absent", the "not" of "not detected"."""
    is_not_there = words[index] in NOT and not DETECTED.isdisjoint(words[index + 1 : index + 2])
    return words[index] in NEGATIVE or is_not_there


def _negated(words: Sequence[str]) -> set[int]:
    """Positions of the lesions that a word before or after them negates."""
    found: set[int] = set()
    for index in range(len(words)):
        after = set(_negated_after(words, index))
        found |= after
        before = index - 2 if index and words[index - 1] == COMMA else index - 1
        if not after and before >= 0 and _denies(words, index) and _is_lesion(words[before]):
            found.add(before)
    return found


def _negated_after(words: Sequence[str], index: int) -> Iterator[int]:
    """Positions of the lesions that a word negates after it: "no tumour or metastasis", "negative (for malignancy)"."""
    word, start = words[index], index + 1
    if words[start : start + 1] == [COMMA] and not (JOINING - ALSO).isdisjoint(words[start + 1 : start + 2]):
        start += 1
    while start < len(words) and words[start] in (JOINING - ALSO) | EVIDENCE:
        start += 1
    if word in NOT_ONE and not OF_ENTITIES.isdisjoint(words[start : start + 1]):
        return
    if word in NOT or (word in NEGATIVE and (start > index + 1 or index == 0)):
        for position in range(start, len(words)):
            if _is_lesion(words[position]):
                yield position
            elif words[position] not in JOINING:
                return
            if word in NOT_ONE:
                return


def _benign(words: Sequence[str]) -> Iterator[int]:
    """Positions of lesions that the word beside them calls benign: "benign tumour", "tumor benigno"."""
    for index, word in enumerate(words):
        if word in MAY_BE_BENIGN or (word not in LESION and _is_lesion(word)):
            beside = {*words[max(0, index - 1) : index], *words[index + 1 : index + 2]}
            if not BENIGN.isdisjoint(beside):
                yield index


def _adjacent(words: Sequence[str]) -> Iterator[int]:
    """Positions of lesions that only say where the tissue is: "tumour-adjacent", "adjacent to tumour"."""
    for index, word in enumerate(words):
        if word in ADJACENT:
            yield index - 1
            yield index + 2 if words[index + 1 : index + 2] and words[index + 1] in JOINING | {"from"} else index + 1


def is_beside_lesion(words: Sequence[str]) -> bool:
    """Whether a name says only that the tissue is beside a lesion: "peritumoral stroma", "adjacent to tumour"."""
    if BESIDE.isdisjoint(words):
        place = {index for index, word in enumerate(words) if word in ADJACENT - AWAY}
        lesions = [index for index in _adjacent(words) if 0 <= index < len(words) and _is_lesion(words[index])]
        if not place or not lesions:
            return False
    else:
        place, lesions = {index for index, word in enumerate(words) if word in BESIDE}, []
    plain = TISSUE | PLACES | JOINING | {COMMA, "the", "from"}
    return all(word in plain or index in place or index in lesions for index, word in enumerate(words))


def _in_one_word(word: str) -> bool:
    """Whether a word negates a lesion by itself: "nontumor", "noncancerous", "tumorfree", "tumorlos"."""
    starts = {word.removeprefix(prefix) for prefix in NEGATIVE_STARTS if word.startswith(prefix)}
    ends = (word.removesuffix(end) for end in NEGATIVE_ENDINGS if word.endswith(end))
    if not starts.isdisjoint(OF_ENTITIES):
        return False
    if any(map(_is_finding, (*starts, *ends))):
        return True
    return any(word.startswith(prefix) and word.removeprefix(prefix) in LESION for prefix in NEGATIVE_STARTS_OF_WORDS)
