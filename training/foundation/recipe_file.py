"""Recipe files, before one is read in full: where they are, which TOML is a recipe, and how many ranks it needs."""

from __future__ import annotations

from pathlib import Path

from training.foundation.errors import BadRecipeError
from training.foundation.toml_file import read_toml

RECIPES_DIR = Path(__file__).parents[1] / "recipes"
"""Folder of the shipped recipes."""
SUFFIX = ".toml"
MAX_RANKS = 1024
"""Limit for one dimension of a run."""
_TABLES = ("data", "model")
"""Tables that every recipe has, and no other TOML file in a project."""


def find_recipe(name: Path) -> Path:
    """The recipe file that a user names: by its path, or as a shipped recipe; `.toml` may be omitted.

    Raises:
        BadRecipeError: neither exists.
    """
    for path in (name, Path(f"{name}{SUFFIX}")):
        if path.is_file():
            return path
        if path.name == str(path) and (RECIPES_DIR / path).is_file():
            return RECIPES_DIR / path
    names = ", ".join(sorted(path.name for path in RECIPES_DIR.glob(f"*{SUFFIX}")))
    raise BadRecipeError(f"{name}: no such recipe. Looked in {name.absolute().parent} and among shipped ones: {names}.")


def is_recipe(path: Path) -> bool:
    """Whether a file is TOML with the tables of a recipe; its values may still be wrong."""
    try:
        content = read_toml(path)
    except (OSError, ValueError):
        return False
    return all(isinstance(content.get(table), dict) for table in _TABLES)


def ranks_of_recipe(path: Path) -> int:
    """Ranks that a recipe needs: `num_stages` · `data_parallel`. 1 if those are not counts, which training refuses.

    Raises:
        BadRecipeError: the file cannot be read, or is not TOML.
    """
    try:
        content = read_toml(path)
    except (OSError, ValueError) as error:
        raise BadRecipeError(f"{path}: cannot be read as a recipe: {error}.") from error
    parallel = content.get("parallel")
    counts = [parallel.get(name, 1) if isinstance(parallel, dict) else 1 for name in ("num_stages", "data_parallel")]
    if not all(isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_RANKS for count in counts):
        return 1
    return int(counts[0] * counts[1])
