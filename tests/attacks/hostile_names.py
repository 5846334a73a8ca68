"""Ids that become paths: wherever a path is built from one, names that could leave the project are refused.

`python -m tests.attacks.hostile_names`: every kind of name × every place, at least 1,520 cases.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

from pipeline.errors import BadManifestError
from pipeline.naming.models import find_package
from pipeline.naming.slides import find_slide_id
from pipeline.project import Project
from pipeline.store.layers.overlays import predictions_path
from tests.attacks.attack import Result, main

PROJECT = Project(Path("/nowhere/project"))
STEPS = (
    "..",
    "../..",
    "../../..",
    "./..",
    "..\\..",
    "....//",
    "..;",
    "%2e%2e",
    "\u2025",
    "\uff0e\uff0e",
    "~",
    "/",
    "//",
    "C:\\",
)
TAILS = ("", "/", "/etc/passwd", "/S-1.ome.zarr", "\\x", "\0", "\n", "/.", "%2f")
ALONE = (
    "", ".", "..", "...", " ", "a b", "a\n", "a\0b", "a/b", "a\\b", ".a", "-" * 65, "a" * 65, "é", "\ud800", "a\x1b[2J",
    "a:b", "a*", "a?", "a|b", "<a>", '"', "'", "`", "$(a)", "${a}", "a;b", "\u202egpj", "\t", "\r", "S-1.ome.zarr/..",
    "a\u0000", "😀",
)  # fmt: skip

PLACES: dict[str, Callable[[str], object]] = {
    "store": PROJECT.store_path,
    "tile table": PROJECT.tile_table_path,
    "model package": PROJECT.model_path,
    "model's results": PROJECT.model_results_dir,
    "slide's results": lambda name: PROJECT.result_dir(name, "m-1"),
    "results of a model": lambda name: PROJECT.result_dir("S-1", name),
    "quality": PROJECT.quality_dir,
    "predictions": lambda name: predictions_path(Path("/nowhere/S-1.ome.zarr"), name),
}


def hostile_names(times: int, seed: int) -> list[str]:
    """All listed names, and `times` random ones made of their letters."""
    chance = random.Random(seed)
    letters = sorted(set("".join((*STEPS, *ALONE))))
    listed = [*ALONE, *(step + tail for step, tail in itertools.product(STEPS, TAILS))]
    made = ["../" + "".join(chance.choices(letters, k=chance.randint(0, 12))) for _ in range(times)]
    return list(dict.fromkeys((*listed, *made)))


def _can_be_typed(name: str) -> bool:
    """Whether a shell can pass the name as an argument."""
    return "\0" not in name and "\ud800" not in name


def attack(times: int, seed: int) -> Result:
    result = Result("hostile names in paths")
    for name, (place, make) in itertools.product(hostile_names(times, seed), PLACES.items()):
        result.expect_refusal(f"{name!r:.60} as {place}", lambda make=make, name=name: make(name), BadManifestError)
    for name in filter(_can_be_typed, hostile_names(0, seed)):
        result.attempts += 1
        for find in (find_package, find_slide_id):
            try:
                result_path = find(name, PROJECT)
            except Exception as error:
                result.check(hasattr(error, "code"), f"{name!r:.60}: {find.__name__}: {type(error).__name__}: {error}")
            else:
                result.findings.append(f"{name!r:.60}: {find.__name__} gives {result_path}")
    return result


if __name__ == "__main__":
    main(attack, times=200)
