"""Sweep over every slide of a project, which yields all changes since the last sweep in batches.

A small project is swept by a thread of the app, a large one by a separate process, since reading a hundred thousand
stores would delay the app's tiles for minutes:

    python -m pathology_app.slides.index.sweep PROJECT PARENT

It sweeps once for each line on its standard input, writes a line of JSON for each batch, and an empty line at the end
of each sweep. It ends when its input or the process PARENT ends.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from pathology_app.html.text import READ_ERRORS, message_of
from pathology_app.slides.cache import SlideCache
from pathology_app.slides.index.cache_file import Kept, load_facts, save_facts
from pathology_app.slides.index.facts import MAX_TEXT, SlideFacts, Text, read_facts, stamp_of
from pipeline.cohort.manifest import SlideEntry, load_cohort
from pipeline.project import Project
from training.foundation.process import end_with
from training.foundation.words.names import comparable

SLIDES_AT_ONCE, ROWS_AT_ONCE = 200, 2_000
"""Size of one batch, which the app processes before it serves other requests."""
KEEP_AFTER = 10_000
"""Number of slides read after which a long sweep saves its progress."""
MANIFEST = "cohort.csv"
"""The project's manifest, as written by `gemslide cohort init`."""


class CohortFacts(BaseModel):
    """One slide's entry in the manifest; `case_id` is its `patient_id`. Names are in Unicode NFC."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slide_id: Text
    case_id: Text | None = None
    block: Text | None = None
    stain: Text | None = None
    label: Text | None = None
    site: Text | None = None
    scanner: Text | None = None


class Batch(BaseModel):
    """Part of a sweep's results.

    Attributes:
        facts: facts of new or changed slides.
        cohort_begins: discard all rows of an earlier manifest.
        cohort: rows of the manifest.
        cohort_note: fault of the manifest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: tuple[SlideFacts, ...] = ()
    cohort_begins: bool = False
    cohort: tuple[CohortFacts, ...] = ()
    cohort_note: str = ""


class Sweeper:
    """Repeated sweeps of one project, with a record of the facts already reported."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._kept: dict[str, Kept] | None = None
        self._said: dict[str, Kept] = {}
        self._manifest: object = ()

    def sweep(self) -> Iterator[bytes]:
        """Yield all changes since the last sweep: batches as JSON (`Batch`), without line breaks."""
        yield from self._changed_cohort()
        if self._kept is None:
            self._kept = load_facts(self._project)
        current, lines, num_read = {}, [], 0
        cache = SlideCache(self._project)
        for slide_id in self._project.slide_ids():
            now, is_read = self._look(cache, slide_id)
            current[slide_id] = now
            num_read += is_read
            if now != self._said.get(slide_id):
                lines.append(now.line)
            if len(lines) == SLIDES_AT_ONCE:
                yield _batch(lines)
                lines = []
            if is_read and num_read % KEEP_AFTER == 0:
                self._keep(current)
        yield _batch(lines)
        self._said, self._kept = current, {}
        if num_read:
            self._keep(current)

    def _look(self, cache: SlideCache, slide_id: str) -> tuple[Kept, bool]:
        """A slide's facts, and whether its files had to be read for them."""
        try:
            stamp = stamp_of(self._project, slide_id)
        except READ_ERRORS:  # reported by read_facts
            stamp = ""
        for known in (self._said.get(slide_id), (self._kept or {}).get(slide_id)):
            if known and stamp and known.stamp == stamp:
                return known, False
        facts = read_facts(cache, slide_id)
        return Kept(facts.stamp, facts.model_dump_json().encode()), True

    def _keep(self, current: dict[str, Kept]) -> None:
        save_facts(self._project, (kept.line for kept in current.values()))

    def _changed_cohort(self) -> Iterator[bytes]:
        path = self._project.root / MANIFEST
        try:
            status = path.stat()
        except OSError:
            identity: object = None
        else:
            identity = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if identity == self._manifest:
            return
        self._manifest = identity
        note = ""
        entries: tuple[SlideEntry, ...] = ()
        try:
            entries = load_cohort(path).entries if identity else ()
        except READ_ERRORS as error:
            note = message_of(error, self._project.root)
        yield Batch(cohort_begins=True, cohort_note=note).model_dump_json().encode()
        for at in range(0, len(entries), ROWS_AT_ONCE):
            rows = tuple(_cohort_facts(entry) for entry in entries[at : at + ROWS_AT_ONCE])
            yield Batch(cohort=rows).model_dump_json().encode()


def _cohort_facts(entry: SlideEntry) -> CohortFacts:
    columns: dict[str, Any] = {
        "case_id": entry.patient_id,
        "block": entry.block,
        "stain": entry.stain,
        "label": entry.label,
        "site": entry.site,
        "scanner": entry.scanner,
    }
    return CohortFacts(
        slide_id=entry.slide_id,
        **{name: comparable(text)[:MAX_TEXT] if text else None for name, text in columns.items()},
    )


def _batch(lines: list[bytes]) -> bytes:
    return b'{"facts":[' + b",".join(lines) + b"]}"


def main() -> None:
    """Run the sweeping process."""
    root, parent = sys.argv[1:]
    end_with(int(parent))
    os.nice(10)
    sweeper = Sweeper(Project(Path(root)))
    for _ in sys.stdin:
        for batch in sweeper.sweep():
            sys.stdout.buffer.write(batch + b"\n")
            sys.stdout.buffer.flush()
        sys.stdout.buffer.write(b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
