"""Public names of a package that are imported when they are asked for: naming a package must not load all of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, module_of: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` (PEP 562).

    Args:
        package: `__name__` of the package.
        module_of: for each public name, the module that defines it.
    """

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return get
