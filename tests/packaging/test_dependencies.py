"""Every library the packages import is a declared dependency, not one that only developers happen to have."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {"pathology_app", "pipeline", "training"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_with(*extras: str) -> set[str]:
    """Packages that an installation with these extras brings in, from their declared requirements."""
    lines = [*PROJECT["dependencies"], *(line for extra in extras for line in PROJECT["optional-dependencies"][extra])]
    waiting, needed = [Requirement(line) for line in lines], set()
    while waiting:
        requirement = waiting.pop()
        wanted = {(normal(requirement.name), extra) for extra in ("", *requirement.extras)}
        if wanted <= needed:
            continue
        needed |= wanted
        for line in map(Requirement, distribution(requirement.name).requires or []):
            if line.marker is None or any(line.marker.evaluate({"extra": extra}) for _, extra in wanted):
                waiting.append(line)
    return {name for name, _ in needed}


def imported(files: list[Path]) -> dict[str, Path]:
    """Map each library that is imported anywhere in the files to one file that imports it."""
    modules: dict[str, Path] = {}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0]: path for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules[node.module.split(".")[0]] = path
    return {name: path for name, path in modules.items() if name not in OURS | sys.stdlib_module_names}


def files_in(folder: str, *, without: str = "") -> list[Path]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [path for path in paths if not (without and path.is_relative_to(ROOT / without))]


@pytest.mark.parametrize(
    ("files", "extras"),
    [
        pytest.param(files_in("training"), ["onnx"], id="training"),
        pytest.param(files_in("pipeline"), ["onnx", "dask", "buckets"], id="pipeline"),
        pytest.param(files_in("pathology_app", without="pathology_app/desktop"), ["app"], id="the web app"),
        pytest.param(files_in("pathology_app/desktop"), ["desktop"], id="the desktop viewer"),
    ],
)
def test_every_library_that_is_imported_comes_with_the_package_and_its_extras(files, extras):
    brought, packages = installed_with(*extras), packages_distributions()
    missing = {
        name: str(path.relative_to(ROOT))
        for name, path in imported(files).items()
        if not {normal(package) for package in packages.get(name, ())} & brought
    }

    assert missing == {}
