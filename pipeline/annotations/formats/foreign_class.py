"""Classes in GeoJSON properties of programs other than QuPath, which writes `classification`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.errors import BadAnnotationError

KEYS = (
    "class",
    "classname",
    "class_name",
    "classlabel",
    "class_label",
    "category",
    "category_name",
    "label",
    "label_name",
)
"""The first of these that a feature has names its class."""
_NAMES = ("name", "value", "label")


def foreign_class(properties: Mapping[str, Any], where: str) -> tuple[str, str] | None:
    """The property that names a feature's class, and the class; None if there is none.

    Raises:
        BadAnnotationError: a property that should name a class, but holds neither text, a number nor a name.
    """
    spelt = {key.casefold(): key for key in reversed(list(properties))}
    for key in (spelt[known] for known in KEYS if known in spelt):
        name = properties[key]
        if isinstance(name, dict):
            name = next((name[inner] for inner in _NAMES if name.get(inner)), name)
        if isinstance(name, str | int) and not isinstance(name, bool):
            if name != "":
                return key, str(name)
        elif name not in (None, {}):
            raise BadAnnotationError(
                f"{where}: has no `classification`, and its {key!r:.60} is {name!r:.80}, which does not name a class. "
                "Write the class as text, or export it from QuPath as GeoJSON."
            )
    return None
