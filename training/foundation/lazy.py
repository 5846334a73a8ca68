"""Public names of a package that are imported when they are asked for: naming a package must not load all of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def public_names(
    package: str, names_of: Mapping[str, str], *, modules: str = ""
) -> tuple[list[str], Callable[[str], Any]]:
    """A package's `__all__` and `__getattr__` (PEP 562): what other packages may import from it.

    Args:
        package: `__name__` of the package.
        names_of: for each of its modules (or one of another package, by its whole name), the public names in it, with
            blanks between.
        modules: those that are public as a whole.
    """
    top = package.partition(".")[0] + "."
    module_of = {
        name: module if module.startswith(top) else f"{package}.{module}"
        for module, names in names_of.items()
        for name in names.split()
    }
    whole = {name: f"{package}.{name}" for name in modules.split()}

    def get(name: str) -> Any:
        if name in whole:
            return importlib.import_module(whole[name])
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return sorted({*module_of, *whole}), get
