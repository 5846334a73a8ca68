"""Owners of answers that a browser keeps until they are signed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pathology_app.people.person import Person


def draft_owner(root: Path, person: Person) -> str:
    """Identifier of a person of one project in a browser's storage, which other people may use, too."""
    return hashlib.sha256(f"{root}\ndrafts of\n{person.actor}".encode()).hexdigest()[:24]
