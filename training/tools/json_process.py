"""Answer of a module of training to the program that started it: one JSON line on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from training.foundation.errors import GemslideError


def reply(work: Callable[[], dict[str, Any]]) -> int:
    """Do the work and say what came of it. Returns the exit code: 1 where the input was at fault."""
    report: dict[str, Any]
    try:
        report = {"ok": True, **work()}
    except GemslideError as error:
        report = {"ok": False, "code": error.code, "message": str(error)}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["ok"] else 1
