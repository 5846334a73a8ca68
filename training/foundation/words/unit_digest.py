"""Names of patients and slides as a model's package lists them: a package that is passed on names no one.

A digest hides a name from readers, not from someone who guesses names: pseudonyms are still needed.
"""

from __future__ import annotations

import hashlib

from training.foundation.words.names import comparable

DIGITS = 16


def unit_digest(name: str) -> str:
    """The first 16 hex digits of a SHA-256 over a patient's or slide's id."""
    return hashlib.sha256(f"gemslide unit\n{comparable(name)}".encode()).hexdigest()[:DIGITS]
