"""Pseudonyms by a secret key: the same name has the same pseudonym in every export, and nobody without the key can
reverse them, not even by trying all names."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from pipeline.cohort.pseudonyms import project_around
from pipeline.errors import BadManifestError
from pipeline.files import explain_unwritable, replace_file
from training.foundation.errors import UnreadableError
from training.foundation.reading import read_regular
from training.foundation.words.names import comparable

KEY_BYTES = 32
_LENGTH = 12
"""Letters of a pseudonym: 60 bits, so that a million names collide by chance for one key in two million."""


@dataclass(frozen=True)
class PseudonymKey:
    """A secret; anyone who has it can tell which pseudonym is whose."""

    secret: bytes

    @property
    def key_id(self) -> str:
        """Identifier of the key for the log; reveals nothing about the key."""
        return hashlib.sha256(b"gemslide pseudonym key" + self.secret).hexdigest()[:16]

    def pseudonym(self, kind: str, name: str) -> str:
        """Pseudonym of a slide, patient, site or reader: "slide-k3v…"."""
        code = hmac.new(self.secret, f"{kind}\0{comparable(name)}".encode(), hashlib.sha256).digest()
        return f"{kind}-{base64.b32encode(code).decode().lower()[:_LENGTH]}"


def open_pseudonym_key(path: Path) -> PseudonymKey:
    """The key in a file; a new one is generated if there is none. It is outside projects, which are made to be shared.

    Raises:
        BadManifestError: inside a project. UnreadableError: not a key of ours. DiskFullError: cannot be written.
    """
    around = project_around(path)
    if around:
        raise BadManifestError(
            f"{path}: the pseudonym key must not be inside the project {around}. Keep it elsewhere, readable only by "
            "you: anyone who has it can tell which pseudonym is whose."
        )
    if not path.exists():
        with explain_unwritable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode(), mode=0o600)
    try:
        text = read_regular(path, max_bytes=1024).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{path}: cannot be read as a pseudonym key ({type(error).__name__}).") from error
    if not re.fullmatch(rf"[0-9a-f]{{{2 * KEY_BYTES}}}", text):
        raise UnreadableError(
            f"{path}: is not a pseudonym key. Name another file; if there is none, a new key is generated."
        )
    return PseudonymKey(bytes.fromhex(text))
