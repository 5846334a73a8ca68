"""A running `gemslide app`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GEMSLIDE = Path(sys.executable).with_name("gemslide")
_LINK = re.compile(r"http://([^\s/]+):(\d+)")

WITH_TIMEOUTS = (
    "import sys; from pathlib import Path; from pathology_app.serving.timeouts import Timeouts; "
    "from pathology_app.server import serve; "
    "serve(Path(sys.argv[1]), host=None, port=0, timeouts=Timeouts(*map(float, sys.argv[2:])))"
)
"""Program like `gemslide app` on any free port, with arguments project, headers_s, answer_s, idle_s."""


@dataclass(frozen=True)
class StartedApp:
    """A running app."""

    url: str
    name: str
    port: int
    process: subprocess.Popen[str]
    log: Path

    def next_link(self) -> str:
        """Wait for the next sign-in link on its terminal."""
        assert self.process.stdout
        for line in self.process.stdout:
            if "token=" in line:
                return next(word for word in line.split() if "token=" in word)
        raise AssertionError("no link on the terminal")


@contextmanager
def started_app(
    project: Path,
    log: Path,
    *options: str,
    command: Sequence[str | Path] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[StartedApp]:
    """Start the app and end it.

    Args:
        log: file for its stderr.
        command: replaces `gemslide app --project PROJECT --port 0`; must also print a link.
    """
    command = command or [GEMSLIDE, "app", "--project", project, "--port", "0"]
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [*map(str, command), *options],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
        ) as process,
    ):
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            match = next((found_link for line in lines if (found_link := _LINK.search(line))), None)
            assert match, f"the app did not say where it is\n{log.read_text()}"
            yield StartedApp(match[0], match[1], int(match[2]), process, log)
        finally:
            process.terminate()
            process.wait(timeout=20)
