"""The project that this process serves, as its environment names it."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.project import Project

PROJECT_VARIABLE = "GEMSLIDE_PROJECT"
"""Its folder; without it, the folder that the process was started in."""


def served_project() -> Project:
    """The project that the environment names: equal at each call, unless somebody changes the environment."""
    return Project(Path(os.environ.get(PROJECT_VARIABLE, ".")).resolve())
