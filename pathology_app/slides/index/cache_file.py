"""The facts of all slides in one file, `cache/slides.jsonl` of the project, so that the next start need not read them.

It is only a cache: a slide's facts count only while its stamp matches its files, and a file that is missing, damaged,
of another version or not ours is ignored. The first line is a header with the SHA-256 of the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from pathology_app.slides.index.facts import SlideFacts
from pipeline.project import Project
from training.foundation.errors import GemslideError
from training.foundation.publish import write_bytes_atomic
from training.foundation.reading import read_regular

FILE = "slides.jsonl"
VERSION = 2
MAX_BYTES = 2**29
"""About a million slides."""
_KIND = "gemslide slide index"


class Kept(NamedTuple):
    """A slide's facts as a line of JSON, and their stamp."""

    stamp: str
    line: bytes


def load_facts(project: Project) -> dict[str, Kept]:
    """Load facts saved by an earlier process, by slide, each line checked; nothing if the file cannot be trusted."""
    try:
        head, _, body = read_regular(project.cache_dir / FILE, max_bytes=MAX_BYTES).partition(b"\n")
        if json.loads(head) != _header(body):
            return {}
        kept = {}
        for line in body.splitlines():
            facts = SlideFacts.model_validate_json(line)
            kept[facts.slide_id] = Kept(facts.stamp, line)
        return kept
    except (OSError, ValueError, RecursionError):  # pydantic's error is a ValueError, too
        return {}


def save_facts(project: Project, lines: Iterable[bytes]) -> bool:
    """Save facts for the next start. Returns whether it worked: a project may be read-only, or its disk full."""
    body = b"".join(line + b"\n" for line in lines)
    head = json.dumps(_header(body)).encode() + b"\n"
    if len(head) + len(body) > MAX_BYTES or project.cache_dir.is_symlink():  # a link may lead out of the project
        return False
    try:
        project.cache_dir.mkdir(exist_ok=True)
        write_bytes_atomic(project.cache_dir / FILE, head + body)
    except (OSError, GemslideError):
        return False
    return True


def _header(body: bytes) -> dict[str, Any]:
    return {"kind": _KIND, "version": VERSION, "sha256": hashlib.sha256(body).hexdigest()}
