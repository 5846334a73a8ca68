"""Texts in the column `exclude` that say that the slide stays: "use", "not excluded", "good quality", "no issues".

Somebody who writes one does not mean to exclude the slide, and others, such as "ok but blurred", are ambiguous. All are
refused, so that no slide is excluded or kept unless somebody has decided it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_ORDERS_TEXT = """
use keep include included retain retained accept accepted ok okay usable approved verwenden benutzen nutzen
einschliessen eingeschlossen behalten utiliser garder inclure inclus usar incluir incluido usare includere tenere
"""
_ORDERS = frozenset(_ORDERS_TEXT.split())
"""At the beginning of a text they say that the slide stays, whatever follows."""
_GOOD_TEXT = """
good fine great excellent perfect high best sharp clean clear pass passes passed valid suitable adequate sufficient
acceptable eligible inclusion correct complete intact gut gute guter einwandfrei bon bonne buena bueno buona buono
"""
_GOOD = _ORDERS | frozenset(_GOOD_TEXT.split())
_EXCLUDING_TEXT = """
exclude excluded excluding exclusion exclusions remove removed drop dropped discard discarded reject rejected omit
omitted skip skipped fail failed fails ausschliessen ausgeschlossen ausschluss exclure exclu exclue excluir excluido
excluida escludere escluso esclusa
"""
_EXCLUDING = frozenset(_EXCLUDING_TEXT.split())
_PROBLEMS_TEXT = """
issue issues problem problems reason reasons need needed needs necessary required concern concerns complaint
complaints objection objections artefact artefacts artifact artifacts defect defects damage damaged dirt error errors
fault faults wrong bad poor blur blurred blurry blurring pen mark marks fold folds bubble bubbles probleme grund
gründe mängel problème problèmes problema problemas problemi
"""
_PROBLEMS = frozenset(_PROBLEMS_TEXT.split())
_NOT_TEXT = """
no not none never nothing without false nor neither nicht kein keine keinen keiner ohne nichts pas aucun aucune ne sin
non
"""
_NOT = frozenset(_NOT_TEXT.split())
_FILL_TEXT = """
a an the this that slide slides scan image file is are was were be been being to for in of on at by and or with do
does did should must can could may will it we i very so far now still yet all everything looks look seems quality qc
check checked criteria criterion met study cohort analysis training test set tissue stain staining focus please any
here qualität qualité calidad qualità ist sind der die das den zu est la le el il
"""
_FILL = frozenset(_FILL_TEXT.split())
"""Words that say neither."""
_LEADING = _FILL - {"of", "by", "or", "at", "on"}


def says_kept(text: str) -> bool:
    """Whether a text says that a slide is not to be left out, or begins like one that does."""
    words = _words(text)
    first = next((word for word in words if word not in _LEADING), None)
    return first in _ORDERS or _nothing_but_good(words)


def _words(text: str) -> Sequence[str]:
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    plain = re.sub(r"n't\b", " not", folded).replace("in focus", "sharp").replace("leave out", "exclude")
    return re.findall(r"[^\W\d_]+", plain.replace("left out", "excluded"))


def _nothing_but_good(words: Sequence[str]) -> bool:
    """Whether words praise a slide, or deny a problem or its exclusion, and say nothing else."""
    praises = excludes = denies = is_open = False
    for word in words:
        if word in _NOT:
            denies = is_open = True
        elif word in _EXCLUDING:
            if denies:
                return True
            excludes = True
        elif word in _PROBLEMS:
            if not denies:
                return False
            praises, is_open = True, False
        elif word in _GOOD:
            if is_open:
                return False
            praises = True
        elif word not in _FILL:
            return False
    return denies if excludes else praises and not is_open
