"""Attributes of a DICOM data set, as numbers and texts. pydicom parses a value only on access, and fails then.

Every function raises `DamagedFileError` if pydicom cannot parse the attribute, or it is of another kind.
"""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pydicom
from pydicom.dataset import Dataset
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.multival import MultiValue

from pipeline.slides.common.damage import DamagedFileError, library_errors

_PYDICOM_ERRORS = (
    InvalidDicomError, BytesLengthException, ValueError, LookupError, TypeError, AttributeError, ArithmeticError,
    AssertionError, struct.error, zlib.error, OSError, EOFError, RuntimeError, MemoryError,
)  # fmt: skip
"""Exceptions that pydicom raises on files with false claims."""


@contextmanager
def pydicom_errors() -> Iterator[None]:
    """Guard a pydicom call, and nothing else: its errors become a `DamagedFileError`, and its warnings are silenced."""
    with library_errors(_PYDICOM_ERRORS), warnings.catch_warnings(action="ignore"):
        yield


def value(ds: Dataset, keyword: str) -> Any:
    """An attribute's value as pydicom returns it; None if absent or empty."""
    with pydicom_errors():
        return ds.get(keyword)


def values(ds: Dataset, keyword: str) -> list[Any]:
    """All values of an attribute; [] if absent or empty."""
    one = value(ds, keyword)
    if one is None or one == "":
        return []
    return list(one) if isinstance(one, MultiValue | list | tuple) else [one]


def text(ds: Dataset, keyword: str) -> str:
    """An attribute as text; "" if absent or empty."""
    one = value(ds, keyword)
    return "" if one is None else str(one)


def integer(ds: Dataset, keyword: str) -> int:
    """An attribute as a whole number; 0 if absent or empty."""
    number = _number(ds, keyword)
    return 0 if number is None else int(number)


def number(ds: Dataset, keyword: str) -> float | None:
    """An attribute as a number; None if absent or empty."""
    return _number(ds, keyword)


def items(ds: Dataset, keyword: str) -> list[Dataset]:
    """The items of a sequence; [] if there is none."""
    sequence = value(ds, keyword)
    if not isinstance(sequence, pydicom.Sequence):
        return []
    with pydicom_errors():
        return list(sequence)


def first_item(ds: Dataset, keyword: str) -> Dataset:
    """The first item of a sequence; an empty data set if there is none."""
    return next(iter(items(ds, keyword)), Dataset())


def as_number(one: object, what: str) -> float:
    """A single value as a number: an int stays one."""
    if isinstance(one, int):
        return int(one)
    try:
        parsed = float(one) if isinstance(one, float | str) else math.nan
    except ValueError:
        parsed = math.nan
    if not math.isfinite(parsed):
        raise DamagedFileError(f"{what} is {one!r}, not a number")
    return parsed


def _number(ds: Dataset, keyword: str) -> float | None:
    entries = values(ds, keyword)
    if len(entries) > 1:
        raise DamagedFileError(f"{keyword} has {len(entries)} values")
    return as_number(entries[0], keyword) if entries else None
