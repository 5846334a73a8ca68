"""Finding names in messages, in every form that a program may have written them, whole or cut short."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

HIDDEN = "(name left out)"
LONGEST_KEY = 6
"""Names at least this long are found inside words, too; shorter ones where they stand alone."""
SHORTEST = 3
SHORTEST_START = 4
"""Characters of a name that a message was cut in."""
_CUT = re.compile(r"…|\.\.\.|\s*(?:\n|\Z)")
"""The place where a message was cut short."""
_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_./-]*")
"""Text that every program writes unchanged."""
# Names of files and folders that identify nobody, and occur in our own messages.
_PLAIN = frozenset({
    "annotation", "annotations", "asap", "cohort", "data", "dicom", "done", "failed", "file", "files", "folder",
    "geojson", "halo", "hamamatsu", "histomicstk", "home", "image", "images", "imagescope", "label", "labels",
    "level", "levels", "manifest", "ndpa", "project", "qupath", "refused", "scan", "scans", "series", "skipped",
    "slide", "slides", "source", "sources", "study", "tile", "tiles", "user",
})  # fmt: skip
_MARK = "\ue000"
"""Placeholder for a name, until all are found."""
_IN_A_PATH = re.compile(r"""[^\s'"`<>|:;,)\]}]""")
"""A character that continues a path below a folder that is a name; a known name in it does so, too."""
_REST_OF_FILE = re.compile(r"""[ ][^\n'"`<>|:/\\]{0,120}?\.[A-Za-z]{2,8}(?![A-Za-z.])""")
"""The rest of a file name with spaces, up to its suffix."""


_BETWEEN = r"""(?:[\W_]|\\[A-Za-z0-9]{1,5}|%[0-9A-Fa-f]{2}|&\#?\w{2,6};){1,12}?"""
"""Any form that quoting and escaping can give to the punctuation between two words of a name."""
MAX_IN_WORDS = 2000
"""Most names that are searched word by word; if there are more, only the written forms are."""


def _in_words(names: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern of all names of several words, whatever separates the words."""
    patterns: set[str] = set()
    for name in names:
        for form in ("NFC", "NFD"):
            words = re.findall(r"(?:[^\W_]|[\u0300-\u036f])+", unicodedata.normalize(form, name))
            if len(words) > 1 and sum(map(len, words)) >= LONGEST_KEY:
                patterns.add(_BETWEEN.join(map(re.escape, words)))
    if not patterns or len(patterns) > MAX_IN_WORDS:
        return None
    longest_first = sorted(patterns, key=lambda pattern: (-len(pattern), pattern))
    return re.compile(rf"(?:{'|'.join(longest_first)})(?![^\W_])", re.IGNORECASE)


def written_forms(name: str) -> set[str]:
    """A name as file systems, Python, JSON, URLs, shells, HTML and C libraries write it."""
    if _PLAIN_TEXT.fullmatch(name):
        return {name, name.lower()}
    spellings = {unicodedata.normalize(form, name) for form in ("NFC", "NFD")} | {name, " ".join(name.split())}
    forms: set[str] = set()
    for spelling in spellings | {text.lower() for text in spellings}:
        forms |= {spelling, *_escaped(spelling), *_in_other_codes(spelling)}
    return {form for form in forms if form}


def _escaped(name: str) -> Iterator[str]:
    once = repr(name)[1:-1]
    yield from (
        once,
        repr(once)[1:-1],
        ascii(name)[1:-1],
        json.dumps(name)[1:-1],
        json.dumps(name, ensure_ascii=False)[1:-1],
    )
    yield from (name.replace("\\", "\\\\"), name.replace("'", "\\'"), name.replace('"', '\\"'))
    yield from (
        shlex.quote(name).removeprefix("'").removesuffix("'"),
        name.replace("'", "'\\''"),
        re.sub(r"([^\w@%+=:,./-])", r"\\\1", name),
    )
    yield from (html.escape(name), html.escape(name, quote=False))
    content = os.fsencode(name)
    yield repr(content)[2:-1]
    for percent in (quote(content, safe="/"), quote(content, safe=""), quote_plus(content)):
        yield from (percent, re.sub("%..", lambda match: match[0].lower(), percent))


def _in_other_codes(name: str) -> Iterator[str]:
    content = os.fsencode(name)
    yield from (content.decode("latin-1"), content.decode("cp1252", "replace"), content.decode("utf-8", "replace"))
    for errors in ("replace", "ignore", "xmlcharrefreplace", "backslashreplace"):
        yield name.encode("ascii", errors).decode("ascii")


class Names:
    """Many names, found in a text in one pass over it."""

    def __init__(self, names: Iterable[str], kept: Iterable[str]) -> None:
        identifying = {name for name in names if is_telling(name)}
        written = {form for name in identifying for form in written_forms(name)}
        self._in_words = _in_words(name for name in identifying if "/" not in name and not _PLAIN_TEXT.fullmatch(name))
        self._hidden = {form for form in written if is_telling(form)}
        self._starts = sorted(name for name in self._hidden if "/" not in name)
        self._longest_start = max(map(len, self._starts), default=0)
        self._kept: set[str] = set()
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)
        for name in self._hidden:
            self._lengths[name[:LONGEST_KEY]].add(len(name))
        for name in kept:
            self.keep(name)

    def keep(self, name: str) -> None:
        """Keep this name, even if another one is a part of it."""
        self._kept.add(name)
        self._lengths[name[:LONGEST_KEY]].add(len(name))

    def removed_from(self, text: str) -> str:
        """The text with each name replaced, longest first; also the rest of a path below a folder that is one, and the
        beginning of a name where the text was cut."""
        if " " in text:  # a single word was not cut
            text = self._without_starts(text)
        pieces, start, at = [], 0, 0
        while at < len(text):
            end = self._end_of_name_at(text, at)
            if end is None:
                at += 1
                continue
            if text[at:end] not in self._kept:
                end = self._end_below(text, at, end)
                pieces += [text[start:at], _MARK]
                start = end
            at = end
        return "".join([*pieces, text[start:]]).replace(_MARK, HIDDEN)

    def _end_below(self, text: str, start: int, end: int) -> int:
        """End of a path that continues below a folder, or beside a file, whose name was found."""
        if not ("/" in text[start:end] or text[end : end + 1] in ("/", "\\")):
            return end
        while end < len(text):
            following = self._end_of_name_at(text, end) or (end + 1 if _IN_A_PATH.match(text, end) else None)
            if following is None:
                break
            end = following
        rest = _REST_OF_FILE.match(text, end)
        return rest.end() if rest else end

    def _without_starts(self, text: str) -> str:
        """The text without beginnings of names where it, or a part of it, was cut."""
        pieces, start = [], 0
        for cut in _CUT.finditer(text):
            begin = self._begin_of_start(text, start, cut.start())
            if begin is not None:
                pieces += [text[start:begin], _MARK]
                start = cut.start()
        return "".join([*pieces, text[start:]])

    def _begin_of_start(self, text: str, first: int, end: int) -> int | None:
        for begin in range(max(first, end - self._longest_start), end - SHORTEST_START + 1):
            piece = text[begin:end]
            if text[begin - 1 : begin].isalnum() or piece in self._kept or not is_telling(piece):
                continue
            at = bisect_left(self._starts, piece)
            if at < len(self._starts) and self._starts[at].startswith(piece):
                return begin
        return None

    def _end_of_name_at(self, text: str, at: int) -> int | None:
        for key_length in range(LONGEST_KEY, 0, -1):
            for length in sorted(self._lengths.get(text[at : at + key_length], ()), reverse=True):
                end = at + length
                if self._is_name(text, at, end):
                    return end
        if self._in_words and not text[at - 1 : at].isalnum() and (match := self._in_words.match(text, at)):
            return match.end()
        return None

    def _is_name(self, text: str, start: int, end: int) -> bool:
        name = text[start:end]
        is_long = end - start >= LONGEST_KEY and name not in self._kept
        return (name in self._hidden or name in self._kept) and (is_long or _stands_alone(text, start, end))


def _stands_alone(text: str, start: int, end: int) -> bool:
    return not (text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum())


def is_telling(name: str) -> bool:
    """Whether a name can name somebody: not what is too short, a common word, or a number of up to three digits."""
    return len(name) >= SHORTEST and name.lower() not in _PLAIN and not re.fullmatch(r"[\W_]*(\d[\W_]*){0,3}", name)
