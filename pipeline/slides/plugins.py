"""Readers that other packages provide, by the entry point group `gemslide.readers` (docs/reference/readers.md)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol, runtime_checkable

from pipeline.slides.common.slide import Slide

GROUP = "gemslide.readers"
_OURS = "pipeline.slides."
_IMPORT_ERRORS = (
    ImportError, SyntaxError, NameError, AttributeError, TypeError, ValueError, LookupError, OSError, RuntimeError,
)  # fmt: skip
"""Exceptions that a site's module can raise while it is imported."""


@runtime_checkable
class Reader(Protocol):
    """Reader that an entry point names: an object, or a class that is called without arguments."""

    @property
    def name(self) -> str:
        """As `gemslide doctor` lists it."""

    @property
    def priority(self) -> int:
        """Readers are tried from the highest to the lowest: ours have 40 (OME-Zarr), 30 (DICOM), 20 (TIFF), 10."""

    # Optional: `suffixes`, a tuple of strings such as ".ppm", by which folders are searched (`suffixes.py`).

    def accepts(self, path: Path, vendor: str | None) -> bool:
        """Whether the reader accepts a file or folder, by its first bytes: it may still be damaged.

        Args:
            vendor: OpenSlide's name for the file's family; None if OpenSlide does not recognise it.
        """

    def open(self, path: Path, series: str | None) -> Slide:
        """Open a slide. Raises the errors of `open_slide`."""


@dataclass(frozen=True)
class Plugins:
    """The readers of other packages."""

    readers: tuple[Reader, ...]
    broken: dict[str, str]
    """Entry points that could not be loaded: name → reason."""


@cache
def load_plugins() -> Plugins:
    """Load the entry points, once per process. One that cannot be loaded does not stop the others."""
    loaded: list[Reader] = []
    broken: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.value.startswith(_OURS):
            continue  # our own are in the registry's table, whether or not the package is installed
        try:
            loaded.append(_loaded(entry))
        except _IMPORT_ERRORS as error:
            broken[entry.name] = f"{entry.value}: {type(error).__name__}: {error}"
    return Plugins(tuple(loaded), broken)


def _loaded(entry: EntryPoint) -> Reader:
    reader = entry.load()
    reader = reader() if isinstance(reader, type) else reader
    if not isinstance(reader, Reader) or not isinstance(reader.priority, int):
        raise TypeError("is not a reader: it needs a name, a whole number as priority, accepts() and open()")
    suffixes = getattr(reader, "suffixes", ())
    if not isinstance(suffixes, tuple) or not all(isinstance(s, str) and s[:1] == "." and s[1:] for s in suffixes):
        raise TypeError("its suffixes are not a tuple of strings that begin with a dot")
    return reader
