"""Patients that may be one person in two spellings: "P-7" and "p 007", "12" and "12.0", "2024-01-05" and "5.1.24".

Persons are compared in one form (`comparable`), and spellings that only look alike are never merged, because they may
be two patients. They are found instead, so that somebody decides before one of them trains what the other tests.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta

from pipeline.cohort.manifest import SlideEntry
from pipeline.errors import BadManifestError
from training.foundation.errors import GemslideError

WHAT_TO_DO = (
    "If they are one patient, write both alike; if they are two, give one of them a patient_id that differs in more "
    "than capitals, blanks, dashes, quotes, leading zeros or the way a number or a date is written"
)
MAX_SHOWN = 3
"""Slides of a patient in a message."""
_QUOTES = re.compile("[\"'`´\u02b9-\u02bf\u2018-\u201f\u2032-\u2037«»‹›]")
_DASHES = frozenset("-_\u2043\u2212\u2796")
"""Beside those that Unicode calls dashes."""
_FOREIGN = str.maketrans("авекмнорстхіѕјαβεζηικμνορτυχ", "abekmhopctxisjabezhikmnoptyx")
"""Cyrillic and Greek letters that look like Latin ones, in small or in capitals."""
_TIME = re.compile(r"[ t]00:00(?::00(?:\.0+)?)?z?$")
_MONTHS = """
jan january januar janv janvier ene enero gen gennaio
feb february februar févr février febrero febbraio
mar march mär mrz märz mars marzo
apr april avr avril abr abril aprile
may mai mayo mag maggio
jun june juni juin junio giu giugno
jul july juli juil juillet julio lug luglio
aug august août aout ago agosto
sep sept september septembre septiembre set settembre
oct october okt oktober octobre octubre ott ottobre
nov november novembre noviembre
dec december dez dezember déc décembre dic diciembre dicembre
"""
_MONTH_OF = {name: number for number, names in enumerate(_MONTHS.strip().split("\n"), 1) for name in names.split()}
_SERIAL_DAY_0 = date(1899, 12, 30)
"""Of spreadsheets, which count days."""
MONTH = "month"
"""In the form of a date."""
When = tuple[int | None, int, int]
"""Year (or none), month and day of a text that may be a date."""


def look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of different names that may be the same, each in order of appearance."""
    spelt: dict[str, dict[str, None]] = defaultdict(dict)
    dated: dict[When, dict[str, str]] = defaultdict(dict)
    for name in dict.fromkeys(names):
        text = _plain(name)
        spelt[_folded(text)][name] = None
        for form, when in _dates(text):
            dated[when].setdefault(form, name)
    groups = [tuple(group) for group in spelt.values()]
    for (year, *_), forms in dated.items():
        if year is not None or any(MONTH in form for form in forms):  # else 1-2 and 1/2, which are no dates
            groups.append(tuple(dict.fromkeys(forms.values())))
    groups = [group for group in groups if len(group) > 1]
    return list(dict.fromkeys(groups))


def look_alike_patients(entries: Sequence[SlideEntry]) -> dict[str, GemslideError]:
    """An error for every slide whose patient looks like that of an earlier row, by slide id."""
    slides = slides_by_patient(entries)
    found: dict[str, GemslideError] = {}
    for first, *others in look_alikes(slides):
        for other in others:
            named = f"patient {other!r} looks like patient {first!r} ({shown_slides(slides[first])})"
            found |= {s: BadManifestError(f"slide {s}: its {named}. {WHAT_TO_DO}.") for s in slides[other]}
    return found


def slides_by_patient(entries: Iterable[SlideEntry]) -> dict[str, list[str]]:
    """Slide ids of each patient, in order of the rows; slides without a patient are left out."""
    slides: dict[str, list[str]] = defaultdict(list)
    for entry in entries:
        if entry.patient_id:
            slides[entry.patient_id].append(entry.slide_id)
    return slides


def shown_slides(slide_ids: Sequence[str]) -> str:
    """The rows of a patient, by their slides."""
    more = f" and {len(slide_ids) - MAX_SHOWN} more" if len(slide_ids) > MAX_SHOWN else ""
    return f"slide {', '.join(slide_ids[:MAX_SHOWN])}{more}"


def _plain(name: str) -> str:
    """A name in small letters of one width, with plain dashes and blanks; without quotes, or midnight after a date."""
    text = unicodedata.normalize("NFKC", _QUOTES.sub("", name)).casefold()  # NFKC makes a blank of some quotes
    text = _QUOTES.sub("", unicodedata.normalize("NFKC", text)).translate(_FOREIGN)
    text = " ".join(re.sub("-+", "-", "".join(map(_plain_letter, text))).split())
    return _TIME.sub("", text)


def _plain_letter(letter: str) -> str:
    category = unicodedata.category(letter)
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    if category == "Pd" or letter in _DASHES:
        return "-"
    return "" if category == "Cf" else letter


def _folded(text: str) -> str:
    """A plain text as its number, where it is one, without blanks and leading zeros."""
    text = "".join(text.split())
    if re.fullmatch(r"\d{1,3}(?:[.,]\d{3})+(?:[.,]0+)?|\d+[.,]0+", text):
        whole = re.sub(r"[.,](?:0|0{2}|0{4,})$", "", text)
        text = re.sub(r"[.,]", "", whole)
    return re.sub(r"(?<!\d)0+(?=\d)", "", text)


def _dates(text: str) -> Iterator[tuple[str, When]]:
    """What a plain text may say as a date, each with the form in which it is written.

    Only texts of different forms are compared: those of one form that say different things are different.
    """
    if re.fullmatch(r"[2-5]\d{4}", text):
        counted = _SERIAL_DAY_0 + timedelta(days=int(text))
        yield "number", (counted.year % 100, counted.month, counted.day)
        return
    parts = re.findall(r"\d+|[^\W\d_]+", text)
    form = re.sub(r"\d+", lambda digits: "0000" if len(digits[0]) == 4 else "0", re.sub(r"[^\W\d_]+", MONTH, text))
    if len(parts) == 1 and re.fullmatch(r"(?:19|20)\d{6}", text):
        parts, form = [text[:4], text[4:6], text[6:]], "compact"
    if len(parts) not in (2, 3):
        return
    names = [part for part in parts if not part.isdigit()]
    months = [_MONTH_OF.get(unicodedata.normalize("NFC", name)) for name in names]
    numbers = [int(part) for part in parts if part.isdigit() and len(part) <= 4]
    if None in months or len(months) > 1 or len(numbers) + len(months) != len(parts):
        return
    for year, month, day in _readings(numbers, months[0] if months else None, len(parts[0]) == 4):
        if 1 <= month <= 12 and 1 <= day <= 31:
            yield form, (None if year is None else year % 100, month, day)


def _readings(numbers: Sequence[int], month: int | None, year_first: bool) -> list[When]:
    if month is not None:
        if len(numbers) == 1:
            return [(None, month, numbers[0])]
        first, last = numbers
        return [(first, month, last)] if year_first else [(last, month, first)]
    if len(numbers) == 2:
        one, other = numbers
        return [(None, one, other), (None, other, one)]
    first, middle, last = numbers
    return [(first, middle, last)] if year_first else [(last, middle, first), (last, first, middle)]
