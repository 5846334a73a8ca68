"""A package's `__init__.pyi` lists what other packages may import; mypy reads it, and importing loads nothing."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(
    path.parent.name
    for path in (ROOT / "pipeline").glob("*/__init__.py")
    if path.parent.name not in ("demo", "verbs")  # not imported by anything
)


def package_of(module: str) -> str | None:
    """Package of the pipeline to which a module belongs."""
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
        f"{path} imports {name}, which is not in pipeline/{package}/__init__.pyi"
        for path, package, name in imported_from_other_packages()
        if name not in public[package]
    ]

    assert not private, "\n".join(private)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_there(package):
    module = importlib.import_module(f"pipeline.{package}")

    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        module.nothing_of_the_kind  # noqa: B018


HEAVY = ("torch", "numpy", "cv2", "zarr", "openslide", "pydicom", "tifffile", "sqlalchemy", "pandas", "shapely")


def test_naming_a_package_loads_nothing_heavy():
    named = ", ".join(f"pipeline.{package}" for package in PACKAGES)
    program = f"import sys, {named}; print([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"


def test_mypy_knows_what_every_public_name_is(tmp_path):
    names = [
        (f"pipeline.{package}", name)
        for package in PACKAGES
        for name in importlib.import_module(f"pipeline.{package}").__all__
    ]
    lines = [f"from {package} import {name} as n{index}" for index, (package, name) in enumerate(names)]
    program = tmp_path / "names.py"
    program.write_text("\n".join([*lines, *(f"reveal_type(n{index})" for index in range(len(names)))]))

    # Strict, without `Any`, and with the cache of `make check`.
    command = [sys.executable, "-m", "mypy", "--no-namespace-packages", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(revealed) == len(names), done.stdout + done.stderr
    unknown = [".".join(name) for name, kind in zip(names, revealed, strict=True) if kind == "Any"]
    assert not unknown, unknown
