"""Recipe files, before one is read in full: where they are, which TOML is a recipe, and how many ranks it needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.foundation.errors import BadRecipeError
from training.foundation.process import ranks_with_room
from training.foundation.toml_file import read_toml

RECIPES_DIR = Path(__file__).parents[1] / "recipes"
"""Folder of the shipped recipes."""
SUFFIX = ".toml"
AUTO = "auto"
"""`[parallel] strategy` of a recipe that leaves to the oracle how its batch is spread over the ranks that are there."""
SUBGRAPH = "subgraph"
"""`[parallel] strategy` of a recipe whose blocks are shared out by their branches."""
MAX_RANKS = 1024
"""Limit for one dimension of a run."""
_TABLES = ("data", "model")
"""Tables that every recipe has, and no other TOML file in a project."""


def find_recipe(name: Path) -> Path:
    """The recipe file that a user names: by its path, or as a shipped recipe; `.toml` may be omitted.

    Raises:
        BadRecipeError: neither exists.
    """
    if path := find_toml(name, RECIPES_DIR):
        return path
    names = ", ".join(sorted(path.name for path in RECIPES_DIR.glob(f"*{SUFFIX}")))
    raise BadRecipeError(f"{name}: no such recipe. Looked in {name.absolute().parent} and among shipped ones: {names}.")


def find_toml(name: Path, shipped_dir: Path) -> Path | None:
    """The TOML file that a user names, by its path or as a shipped one; `.toml` may be omitted. None: there is none."""
    for path in (name, Path(f"{name}{SUFFIX}")):
        if path.is_file():
            return path
        if path.name == str(path) and (shipped_dir / path).is_file():
            return shipped_dir / path
    return None


def is_recipe(path: Path) -> bool:
    """Whether a file is TOML with the tables of a recipe; its values may still be wrong."""
    try:
        content = read_toml(path)
    except (OSError, ValueError):
        return False
    return all(isinstance(content.get(table), dict) for table in _TABLES)


def ranks_of_recipe(path: Path) -> int:
    """Ranks that a recipe needs: those of a group, `data_parallel` times; for `auto` as many as there is room for here.

    1 if those are not counts, which training refuses.

    Raises:
        BadRecipeError: the file cannot be read, or is not TOML.
    """
    content = _read(path)
    if _setting(content, "parallel", "strategy") == AUTO:
        return min(ranks_with_room(_count(content, "train", "threads")), MAX_RANKS)
    return _group_size(content) * _count(content, "parallel", "data_parallel")


def _group_size(content: Mapping[str, Any]) -> int:
    """Ranks that together hold one model: one for each part of each stage."""
    stages = _count(content, "parallel", "num_stages")
    if _setting(content, "parallel", "virtual_parts") is True:
        return stages
    if _setting(content, "parallel", "strategy") == SUBGRAPH:
        return stages * _count(content, "parallel", "num_subgraphs")
    parts = _setting(content, "parallel", "parts")
    if isinstance(parts, list):
        return sum(part for part in parts if _is_count(part)) or stages
    return stages * _count(content, "parallel", "parts")


def is_auto(path: Path) -> bool:
    """Whether a recipe leaves the choice of a strategy to the oracle.

    Raises:
        BadRecipeError: the file cannot be read, or is not TOML.
    """
    return _setting(_read(path), "parallel", "strategy") == AUTO


def data_source(path: Path) -> object:
    """`[data] source` of a recipe; None if it names none.

    Raises:
        BadRecipeError: the file cannot be read, or is not TOML.
    """
    return _setting(_read(path), "data", "source")


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return read_toml(path)
    except (OSError, ValueError) as error:
        raise BadRecipeError(f"{path}: cannot be read as a recipe: {error}.") from error


def _setting(content: Mapping[str, Any], table: str, key: str) -> object:
    section = content.get(table)
    return section.get(key) if isinstance(section, dict) else None


def _count(content: Mapping[str, Any], table: str, key: str) -> int:
    value = _setting(content, table, key)
    return int(value) if _is_count(value) else 1  # type: ignore[call-overload]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_RANKS
