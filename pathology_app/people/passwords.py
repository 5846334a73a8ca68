"""Passwords, kept as Argon2id hashes in the usual text form ($argon2id$v=19$…)."""

from __future__ import annotations

import os
import re
from functools import cache

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from training.foundation.errors import GemslideError
from training.foundation.words.counts import counted
from training.foundation.words.names import comparable

MIN_LENGTH, MAX_LENGTH = 12, 1024
"""In characters."""
# RFC 9106's second recommendation: 64 MiB, three passes, four lanes.
_MEMORY_KIB, _PASSES, _LANES = 65_536, 3, 4
_MOST_MEMORY_KIB, _MOST_PASSES = 262_144, 16
"""Limits for hashes in a file: higher values would let the file stall the app."""
_HASH = re.compile(
    r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,3})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{22,172}", re.ASCII
)


class WeakPasswordError(GemslideError):
    """A password that is not accepted."""

    code = "weak_password"


def hash_password(password: str) -> str:
    """The hash of a new password.

    Raises:
        WeakPasswordError: too short, or too long.
    """
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise WeakPasswordError(
            f"a password of {counted(len(password), 'character')}: use {MIN_LENGTH} to {MAX_LENGTH}. Several words "
            "make a good one."
        )
    return _hash(password)


def is_hash(text: str) -> bool:
    """Whether a text is a hash that can be checked without stalling the app."""
    match = _HASH.fullmatch(text)
    if not match:
        return False
    memory_kib, passes, lanes = map(int, match.groups())
    return 8 * lanes <= memory_kib <= _MOST_MEMORY_KIB and 1 <= passes <= _MOST_PASSES and 1 <= lanes <= 16


def is_password(password: str, hashed: str | None) -> bool:
    """Whether a password matches a hash. Without a hash, the check takes the same time and fails."""
    try:
        Argon2id.verify_phc_encoded(comparable(password[:MAX_LENGTH]).encode(errors="replace"), hashed or _nobodys())
    except InvalidKey:
        return False
    return hashed is not None


@cache
def _nobodys() -> str:
    return _hash(os.urandom(16).hex())


def _hash(password: str) -> str:
    kind = Argon2id(salt=os.urandom(16), length=32, iterations=_PASSES, lanes=_LANES, memory_cost=_MEMORY_KIB)
    return kind.derive_phc_encoded(comparable(password).encode(errors="replace"))
