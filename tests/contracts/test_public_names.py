"""What another package may import stands in a package's `__init__.py`."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.name
    for path in (ROOT / "pipeline").glob("*/__init__.py")
    if path.parent.name not in ("demo", "verbs")  # nobody imports these
)


def package_of(module: str) -> str | None:
    """The package of the pipeline that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "pipeline" and parts[1] in PACKAGES else None


def imported_from_other_packages():
    """(file, package, name) of every import across a package's border."""
    for path in sorted(
        path for top in ("pathology_app", "pipeline", "training") for path in (ROOT / top).rglob("*.py")
    ):
        own = package_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                package = package_of(node.module)
                if package and package != own:
                    yield from ((path.relative_to(ROOT), package, alias.name) for alias in node.names)


def test_other_packages_import_public_names_only():
    public = {package: set(importlib.import_module(f"pipeline.{package}").__all__) for package in PACKAGES}

    private = [
        f"{path} imports {name}, which is not in pipeline/{package}/__init__.py"
        for path, package, name in imported_from_other_packages()
        if name not in public[package]
    ]

    assert not private, "\n".join(private)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_there(package):
    module = importlib.import_module(f"pipeline.{package}")

    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'"):
        module.nothing_of_the_kind  # noqa: B018
