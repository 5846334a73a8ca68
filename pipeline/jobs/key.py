"""Rule for finished work: its output states the key it was made from, and that equals the key requested now.

The same rule holds for every stage. A key holds everything an output depends on, as JSON: the source's bytes, settings,
models, methods. No key holds settings that only affect how an output is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Key = Mapping[str, Any]


def differences(made_from: Key | None, key: Key) -> tuple[str, ...]:
    """Names of the parts in which two keys differ, in the order of `key`; all of them if nothing was made yet."""
    if made_from is None:
        return tuple(key)
    made, requested = _as_stored(made_from), _as_stored(key)
    return tuple(name for name in {**requested, **made} if made.get(name, ...) != requested.get(name, ...))


def is_finished(made_from: Key | None, key: Key) -> bool:
    """Whether an output made from one key is the one that `key` requests."""
    return made_from is not None and not differences(made_from, key)


def _as_stored(key: Key) -> dict[str, Any]:
    """The key as JSON returns it, with lists in place of tuples."""
    stored: dict[str, Any] = json.loads(json.dumps(dict(key)))
    return stored
