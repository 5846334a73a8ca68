"""Options shared by many verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProjectOption = Annotated[Path, typer.Option("--project", help="Project folder.", file_okay=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON line per slide or run.")]
HERE = Path()
