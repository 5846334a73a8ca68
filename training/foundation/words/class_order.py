"""Classes that mean that nothing is wrong, recognised by their names.

The first class of an order is the negative one: hotspots and lesions belong to the others. So a later class that is
called normal, healthy, benign, negative or the like suggests that a different order was meant, and is never taken for a
lesion. Whatever else a name says, it is a lesion's if it names a lesion that it does not negate (`class_lesions.py`).
Only names are examined: a class called "H" or "3" has the meaning of its position.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from training.foundation.words.class_lesions import COMMA, is_beside_lesion, names_lesion, says_no_lesion
from training.foundation.words.class_pairs import Denial, denial_of
from training.foundation.words.class_words import (
    BASELINE,
    BESIDE,
    HEALTHY,
    NOT,
    NOTHING,
    PHRASES,
    TISSUE,
    UNSPACED,
    UNSPACED_NOT,
)

NOT_HEALTHY = NOT | {"un", "ab", "in", "near", "almost"}
NOT_HEALTHY_AFTER = {"like", "karyotype", "degil"}
"""Normal-like is a kind of breast cancer; leukaemias may have a normal karyotype."""
_STAGE_0 = re.compile(r"(?:(?:y?[cp])?N|y?[cp]M|y?[cp]T)0(?:\s*\((?:sn|i-|mol-)\))?", re.IGNORECASE)
"""TNM: nothing found in lymph nodes, elsewhere, or of the tumour."""


def is_negative_class(name: str) -> bool:
    """Whether a class's name says that there is nothing to find: normal, healthy, benign, negative, background, no …"""
    if any(word in name for word in UNSPACED):
        return not any(word in name for word in UNSPACED_NOT)
    if _STAGE_0.fullmatch(name.strip()):
        return True
    clauses = _words(name)
    words = [word for word in clauses if word != COMMA]
    if is_beside_lesion(clauses):
        return True
    if not words or names_lesion(clauses):
        return False
    says_nothing = bool(NOTHING.intersection(words)) and NOTHING.union(TISSUE).issuperset(words)
    return _says_healthy(words) or says_no_lesion(clauses) or says_nothing


def lesion_classes(class_names: Sequence[str]) -> tuple[str, ...]:
    """Classes to look for if none are specified.

    All but the first, unless the names tell more: then none with a negative name, and also the first if only a later
    one has such a name, or plainly denies the first ("no necrosis" after "necrosis").
    """
    negative = {name for name in class_names if is_negative_class(name)}
    if not negative:
        denials = _denials_of_first(class_names)
        plain = {name for name, how in denials.items() if how == "plain"}
        negative = {name for name in plain if len(class_names) == 2 or not names_lesion(_words(name))}
    first_is_meant = not negative or class_names[0] in negative
    candidates = class_names[1:] if first_is_meant else class_names
    lesions = tuple(name for name in candidates if name not in negative)
    return lesions or tuple(class_names[1:]) or tuple(class_names)


def positive_of_two(class_names: Sequence[str]) -> int:
    """Index of the positive class of two: the second, unless its name is negative and the first's is not."""
    return class_names.index(lesion_classes(class_names)[0])


def order_warning(class_names: Sequence[str], *, setting: str) -> str | None:
    """A clause about an order whose first class is not the negative one, though a later one is; None if it looks right.

    A later class that is only the usual baseline, such as the wild type, or another kind of the first, such as
    "non-mucinous", is also named, though it keeps its position's meaning: its name alone does not tell what is looked
    for.

    Args:
        setting: where the order can be set, as in "`classes` in the [tile] section of gemslide.toml".
    """
    later = [name for name in class_names[1:] if is_negative_class(name)]
    if not class_names or is_negative_class(class_names[0]):
        return None
    if not later:
        later = list(_denials_of_first(class_names))
    if not later and not _is_baseline(class_names[0]):
        later = [name for name in class_names[1:] if _is_baseline(name)]
    if not later:
        return None
    better = [*later, *(name for name in class_names if name not in later)]
    listed = ", ".join(f'"{name}"' for name in better)
    return (
        f"the class order is {', '.join(class_names)}, and the first class counts as the negative one; "
        f"{', '.join(repr(name) for name in later)} looks like that class but comes later. Set {setting}: "
        f"classes = [{listed}]"
    )


def _denials_of_first(class_names: Sequence[str]) -> dict[str, Denial]:
    """Later classes that deny the first, and how."""
    found = {name: denial_of(name, class_names[0], _words) for name in class_names[1:]}
    return {name: how for name, how in found.items() if how}


def _words(name: str) -> list[str]:
    """Lower-case words without accents, split at spaces and punctuation, and where small letters meet capitals.

    Commas and brackets stay as `COMMA`; "(-)" is a word, as in "IDC(-)"; `PHRASES` are one, and so is "peri-tumoral".
    """
    spaced = re.sub(r"(?<=[a-zà-ÿ])(?=[A-ZÀ-Þ])", " ", unicodedata.normalize("NFC", name))
    spaced = re.sub(r"(?<=\w)\s*\(\s*[-−–]\s*\)", " negative ", spaced)
    decomposed = unicodedata.normalize("NFKD", spaced.casefold().replace("ł", "l").replace("ı", "i").replace("ø", "o"))
    kept = decomposed.replace("и\u0306", "й")  # a letter of its own; accents are dropped
    plain = "".join(letter for letter in kept if not unicodedata.combining(letter))
    commas = re.sub(r"[,;:()\[\]]+", f" {COMMA} ", unicodedata.normalize("NFC", plain))
    words = [word for word in re.split(rf"[^\w{COMMA}]+|[_\d]+", commas) if word]
    for index in range(len(words) - 2, -1, -1):
        if words[index] + words[index + 1] in PHRASES | BESIDE:
            words[index : index + 2] = [words[index] + words[index + 1]]
    return words


def _says_healthy(words: Sequence[str]) -> bool:
    """Whether a name says healthy: "normal", "benign gland", "tumour-adjacent normal", but not "un-healthy"."""
    for index, word in enumerate(words):
        if word in HEALTHY:
            after = words[index + 1 : index + 2]
            return (index == 0 or words[index - 1] not in NOT_HEALTHY) and NOT_HEALTHY_AFTER.isdisjoint(after)
    return False


def _is_baseline(name: str) -> bool:
    words = [word for word in _words(name) if word != COMMA]
    pairs = {one + other for one, other in pairwise(words)}
    return not BASELINE.isdisjoint({*words, *pairs})
