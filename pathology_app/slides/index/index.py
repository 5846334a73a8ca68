"""The index of the project that this process serves: filled by a separate thread, queried by every page.

Nothing waits for it: a list shows what is known, and how many slides are still to be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pathology_app.html.text import READ_ERRORS
from pathology_app.project.ledger import study_ledger_of
from pathology_app.slides.cache import SlideCache, current_cache
from pathology_app.slides.index import sweep
from pathology_app.slides.index.facts import SlideFacts, read_facts, stamp_of
from pathology_app.slides.index.sweep import Batch, Sweeper
from pathology_app.slides.index.table import Listed, SlideTable
from pipeline.settings.site import bucket_of
from pipeline.study.outcomes.search import slide_states

MANY = 300
"""Number of slides above which a separate process reads them."""
_REST, _SHORTEST_REST_S = 20, 2.0
"""Limits a sweep to about a twentieth of one core, however many people use the app."""
BUCKET_AGE_S = 60.0
"""How long the list of a bucket's slides is kept."""
_SETTLED_S = 1.0
"""A folder changed less than this before it was listed may have changed again unnoticed."""


class SlideIndex:
    """Facts about all slides of one project."""

    def __init__(self, cache: SlideCache) -> None:
        self.table = SlideTable()
        self._cache, self._project = cache, cache.project
        self._listed: tuple[tuple[int, int], list[str]] | None = None
        self._listing = threading.Lock()
        self._asked, self._closed, self._swept = threading.Event(), threading.Event(), threading.Event()
        self._sweeper: Sweeper | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._next_s = 0.0
        self._thread = threading.Thread(target=self._run, name="slide index", daemon=True)
        self._thread.start()

    @property
    def is_swept(self) -> bool:
        """Whether every slide has been read once."""
        return self._swept.is_set()

    def look(self, *, wait_s: float = 0.0) -> None:
        """Update the names, and request another sweep, which is scheduled later.

        Args:
            wait_s: time to wait for the first sweep: it completes at once for a small project.

        Raises:
            OSError: the project's folder cannot be read.
        """
        self._list()
        self._asked.set()
        if len(self.table) <= MANY:
            self._swept.wait(wait_s)

    def facts(self, listed: Listed) -> SlideFacts:
        """A slide's facts as its files are now: from the index if unchanged, else read."""
        if listed.facts is not None:
            with suppress(*READ_ERRORS):
                if listed.facts.stamp == stamp_of(self._project, listed.slide_id):
                    return listed.facts
        facts = read_facts(self._cache, listed.slide_id)
        self.table.put(Batch(facts=(facts,)))
        return facts

    def close(self) -> None:
        """Stop the thread and its process."""
        self._closed.set()
        self._asked.set()
        process = self._process
        if process is not None:
            process.terminate()
        self._thread.join()

    def _list(self) -> None:
        """List the slides if their folder was changed, as adding or removing one does; a bucket's now and then."""
        with self._listing:
            try:
                changed_ns = self._project.slides_dir.stat().st_mtime_ns
            except (FileNotFoundError, NotADirectoryError):
                changed_ns = 0
            moment = int(time.monotonic() / BUCKET_AGE_S) if bucket_of(self._project.root) else 0
            if self._listed and self._listed[0] == (changed_ns, moment):
                return
            is_settled = time.time_ns() - changed_ns > _SETTLED_S * 1e9
            slide_ids = self._project.slide_ids()
            self.table.set_names(slide_ids)
            self._listed = ((changed_ns, moment), slide_ids) if is_settled else None

    def _run(self) -> None:
        while not self._closed.is_set():
            self._asked.wait()
            self._asked.clear()
            self._closed.wait(max(0.0, self._next_s - time.monotonic()))
            if self._closed.is_set():
                break
            start = time.monotonic()
            with suppress(*READ_ERRORS):  # a page that lists the folder reports the error
                self._sweep()
            end = time.monotonic()
            self._next_s = end + max(_SHORTEST_REST_S, _REST * (end - start))
        self._end_process()

    def _sweep(self) -> None:
        self._list()
        for line in self._batches():
            self.table.put(Batch.model_validate_json(line))
            if self._closed.is_set():
                return
        self._read_studies()
        self._swept.set()

    def _batches(self) -> Iterator[bytes]:
        if len(self.table) <= MANY and self._process is None:
            self._sweeper = self._sweeper or Sweeper(self._project)
            yield from self._sweeper.sweep()
        else:
            yield from self._batches_of_process()

    def _batches_of_process(self) -> Iterator[bytes]:
        process = self._started()
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"sweep\n")
        process.stdin.flush()
        for line in process.stdout:
            if line == b"\n":
                return
            yield line
        self._end_process()  # the process has died; the next sweep starts another

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            command = [sys.executable, "-m", sweep.__name__, str(self._project.root), str(os.getpid())]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with process:
                process.terminate()

    def _read_studies(self) -> None:
        ledger = study_ledger_of(self._project).ledger()
        self.table.set_studies(slide_states(ledger) if ledger else ())


_SHARED: dict[Path, SlideIndex] = {}
_SHARING = threading.Lock()


def current_index() -> SlideIndex:
    """The index of the project that this process serves."""
    cache = current_cache()
    with _SHARING:
        if cache.project.root not in _SHARED:
            _SHARED[cache.project.root] = SlideIndex(cache)
        return _SHARED[cache.project.root]


def close_slide_indexes() -> None:
    """Stop the threads that fill the indexes, when the process ends."""
    with _SHARING:
        while _SHARED:
            _SHARED.popitem()[1].close()
