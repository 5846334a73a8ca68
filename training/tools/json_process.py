"""Reply of a training module to the program that started it: one JSON line on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from training.foundation.errors import GemslideError


def reply(work: Callable[[], dict[str, Any]]) -> int:
    """Do the work and report the result. Returns the exit code: 1 if the input was at fault."""
    report: dict[str, Any]
    try:
        report = {"ok": True, **work()}
    except GemslideError as error:
        report = {"ok": False, "code": error.code, "message": str(error)}
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["ok"] else 1
