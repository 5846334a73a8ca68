"""`python -m pipeline.bounded.child`: one of `BoundedProcesses`. Reads work from standard input until end of file."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
from typing import IO, Any

from pipeline.bounded.limits import Limits, within
from pipeline.bounded.processes import receive, send
from pipeline.errors import BadAnnotationError
from training.foundation.errors import GemslideError

ALLOWED = ("pipeline.", "pathology_app.")
_NICENESS = 10
"""Programs that show slides go first."""
_LAST_S = 5.0


def serve(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the other end is closed."""
    while True:
        try:
            question, body = json.loads(receive(questions)), receive(questions)
        except EOFError:
            return
        for part in _answer(question, body):
            send(answers, part)


def _answer(question: dict[str, Any], body: bytes) -> list[bytes]:
    """The number of parts and the parts, or just an error."""
    limits = Limits(**question["limits"])
    _end_after(limits.seconds + _LAST_S)
    try:
        function = _function(question["work"])  # its imports are not limited
        with within(limits, question["what"]):
            parts = function(body, **question["options"])
            encoded = [json.dumps(part, allow_nan=False).encode() for part in parts]
            return [json.dumps({"parts": len(encoded)}).encode(), *encoded]
    except GemslideError as error:
        failure = {"code": error.code, "message": str(error)}
    except RecursionError:
        failure = {"code": BadAnnotationError.code, "message": f"{question['what']}: is nested too deeply to be read."}
    return [json.dumps(failure).encode()]


def _end_after(seconds: float) -> None:
    """Have the system end this process if it runs on after its parent, which would kill it, has died."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    if not module.startswith(ALLOWED):
        raise BadAnnotationError(f"{name!r:.100} is not a function that this program may run.")
    return getattr(importlib.import_module(module), function)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text must not become an answer
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
