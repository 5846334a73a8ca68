"""Models and tile sets by the names people type. Light to import: a misspelt name is reported before torch loads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.project import Project, check_name
from training.foundation.errors import EmptyTableError, UnreadableError
from training.foundation.words.names import is_name
from training.foundation.words.spelling import nearest

MAX_SHOWN = 8


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """A sentence with the known names nearest to a misspelt one, or with the first few of them all."""
    near = nearest(name, known, most=3)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    more = f" and {len(known) - MAX_SHOWN} more" if len(known) > MAX_SHOWN else ""
    return f"There are: {', '.join(known[:MAX_SHOWN]) or 'none'}{more}."


def find_package(model: str, project: Project) -> Path:
    """A model package by model id, or by its folder.

    Raises:
        UnreadableError: there is neither. BadManifestError: the folder's name is not a model id.
    """
    # Resolved: `.` in a package's folder is that package, and its name is the model's id.
    in_project = [project.model_path(model)] if is_name(model) else []
    for folder in (*in_project, Path(model).resolve()):
        if (folder / "config.json").exists():
            check_name(folder.name, what="model", remedy="Give the package's folder its own name again.")
            return folder
    known = sorted(path.name for path in project.models_dir.glob("*") if path.name[0] != ".")
    remedy = did_you_mean(model, known) if known else "It has none: train one with `gemslide train`."
    raise UnreadableError(f"{model}: no such model in {project.models_dir}, and no package's folder. {remedy}")


def check_tile_set(table: Path) -> None:
    """Check that a tile set's table exists.

    Raises:
        EmptyTableError: it does not.
    """
    if not table.exists():
        known = sorted(path.stem for path in table.parent.glob("[!.]*.parquet"))
        remedy = did_you_mean(table.stem, known) if known else "There is none yet."
        raise EmptyTableError(f"{table}: no such tile set. {remedy} `gemslide tile` makes one.")
