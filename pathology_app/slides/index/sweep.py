"""One look at every slide of a project: what has changed since the last one, in batches.

A small project is swept by a thread of the app. A large one by a process of its own, since reading a hundred thousand
stores would hold up the app's tiles for minutes:

    python -m pathology_app.slides.index.sweep PROJECT PARENT

It sweeps once for each line on its standard input, writes a line of JSON for each batch and an empty one at the end of
each sweep. It ends when its input does, or the process PARENT.
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

SLIDES_AT_ONCE, ROWS_AT_ONCE = 200, 2_000
"""In one batch: what the app takes in before it serves somebody else."""
KEEP_AFTER = 10_000
"""Slides read: what a long sweep has done so far is kept."""
MANIFEST = "cohort.csv"
"""Of the project, where `gemslide cohort init` puts it."""


class CohortFacts(BaseModel):
    """One slide's entry in the manifest; `case_id` is its `patient_id`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slide_id: Text
    case_id: Text | None = None
    label: Text | None = None
    site: Text | None = None
    scanner: Text | None = None


class Batch(BaseModel):
    """A part of what a sweep finds.

    Attributes:
        facts: of slides that are new, or have changed.
        cohort_begins: what an earlier manifest said is no longer said.
        cohort: rows of the manifest.
        cohort_note: what is wrong with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    facts: tuple[SlideFacts, ...] = ()
    cohort_begins: bool = False
    cohort: tuple[CohortFacts, ...] = ()
    cohort_note: str = ""


class Sweeper:
    """Sweeps one project again and again, and remembers what it has said."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._kept: dict[str, Kept] | None = None
        self._said: dict[str, Kept] = {}
        self._manifest: object = ()

    def sweep(self) -> Iterator[bytes]:
        """Yield what has changed since the last sweep: batches as JSON (`Batch`), without line breaks."""
        yield from self._changed_cohort()
        if self._kept is None:
            self._kept = load_facts(self._project)
        said, lines, num_read = {}, [], 0
        cache = SlideCache(self._project)
        for slide_id in self._project.slide_ids():
            now, is_read = self._look(cache, slide_id)
            said[slide_id] = now
            num_read += is_read
            if now != self._said.get(slide_id):
                lines.append(now.line)
            if len(lines) == SLIDES_AT_ONCE:
                yield _batch(lines)
                lines = []
            if is_read and num_read % KEEP_AFTER == 0:
                self._keep(said)
        yield _batch(lines)
        self._said, self._kept = said, {}
        if num_read:
            self._keep(said)

    def _look(self, cache: SlideCache, slide_id: str) -> tuple[Kept, bool]:
        """A slide's facts, and whether its files had to be read for them."""
        try:
            stamp = stamp_of(self._project, slide_id)
        except READ_ERRORS:  # said by read_facts
            stamp = ""
        for known in (self._said.get(slide_id), (self._kept or {}).get(slide_id)):
            if known and stamp and known.stamp == stamp:
                return known, False
        facts = read_facts(cache, slide_id)
        return Kept(facts.stamp, facts.model_dump_json().encode()), True

    def _keep(self, said: dict[str, Kept]) -> None:
        save_facts(self._project, (each.line for each in said.values()))

    def _changed_cohort(self) -> Iterator[bytes]:
        path = self._project.root / MANIFEST
        try:
            found = path.stat()
        except OSError:
            identity: object = None
        else:
            identity = found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
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
    said: dict[str, Any] = {
        "case_id": entry.patient_id,
        "label": entry.label,
        "site": entry.site,
        "scanner": entry.scanner,
    }
    return CohortFacts(
        slide_id=entry.slide_id, **{name: text[:MAX_TEXT] if text else None for name, text in said.items()}
    )


def _batch(lines: list[bytes]) -> bytes:
    return b'{"facts":[' + b",".join(lines) + b"]}"


def main() -> None:
    """See above."""
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
