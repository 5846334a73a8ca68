"""Writer of a job's output to its log: bounded, without names of slide files; it never makes the job fail."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pipeline.project import Project
from training.foundation.errors import GemslideError
from training.foundation.reading import parse_json

MAX_LOG_BYTES = 64 * 2**20
_MAX_LINE_BYTES = 2**16
_LONGEST_NAME_BYTES = 2**13
"""Of a path, escaped."""


class LogWriter(threading.Thread):
    """Writes a job's output until it ends. Bytes that do not fit on the disk are counted.

    Args:
        log: descriptor of the log, opened for appending.
        hidden: slide files and manifests; their names are removed, as from `--json` lines.
        kept: ids of slides, which may be parts of those names.
    """

    def __init__(self, output: IO[bytes], log: int, project: Project, hidden: Sequence[Path], kept: Sequence[str]):
        super().__init__(name="log", daemon=True)
        self._output, self._log = output, log
        self._project, self._hidden, self._kept = project, hidden, kept
        self._room = MAX_LOG_BYTES
        self.left_out = 0

    def run(self) -> None:
        without_names = self._filter()
        begun = b""
        while line := self._output.readline(_MAX_LINE_BYTES):
            line = begun + line
            # A name must not be split where a line is too long for one read.
            begun = b"" if line.endswith(b"\n") else line[-_LONGEST_NAME_BYTES:]
            self.write(without_names(line.removesuffix(begun)))
        self.write(without_names(begun))

    def write(self, line: bytes) -> None:
        """Add a line. One that does not fit is left out."""
        if len(line) > self._room:
            self.left_out += len(line)
            return
        try:
            os.write(self._log, line)
        except OSError:  # a full disk: the job notices by itself where it matters
            self.left_out += len(line)
            return
        self._room -= len(line)

    def close(self) -> None:
        """Log how much is missing."""
        if self.left_out:
            self._room = _MAX_LINE_BYTES
            self.write(f"({self.left_out} bytes of output were left out: no room for them)\n".encode())

    def _ids_in_manifests(self) -> Iterator[str]:
        """Slide ids, which may be parts of names, too. Errors in a manifest are reported by the run itself."""
        from pipeline.cohort.manifest import load_cohort
        from pipeline.spreadsheets import TABLE_SUFFIXES

        for path in (path for path in self._hidden if path.suffix.lower() in TABLE_SUFFIXES):
            with suppress(GemslideError):
                yield from (entry.slide_id for entry in load_cohort(path).entries)

    def _filter(self) -> Callable[[bytes], bytes]:
        from pipeline.naming.sources import SourceNames  # takes as long to import as everything else here

        names = SourceNames(*self._hidden, project=self._project)
        for slide_id in (*self._kept, *self._ids_in_manifests()):
            names.keep(slide_id)

        def without_names(line: bytes) -> bytes:
            text = line.decode(errors="replace")
            if (content := _parse_json_line(text)) is None:
                return names.cleaned(text).encode()
            cleaned = _map_texts(content, names.cleaned)
            return line if cleaned == content else f"{json.dumps(cleaned)}\n".encode()

        return without_names


def _map_texts(value: Any, clean: Callable[[str], str]) -> Any:
    """A JSON value with every text except keys changed."""
    if isinstance(value, dict):
        return {key: _map_texts(item, clean) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_texts(item, clean) for item in value]
    return clean(value) if isinstance(value, str) else value


def _parse_json_line(line: str) -> Any:
    """Content of a line of JSON; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        return parse_json(line)
    except ValueError:
        return None
