"""The reader that napari finds through napari.yaml."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pathology_app.desktop.layers import Layer, slide_layers
from pipeline.store import is_store

Reader = Callable[[str], list[Layer]]


def napari_get_reader(path: str | list[str]) -> Reader | None:
    """A reader for one slide store, intact or damaged; None leaves the path to other plug-ins."""
    return read_store if isinstance(path, str) and is_store(Path(path)) else None


def read_store(path: str) -> list[Layer]:
    """Read a store's layers, and add the dock to the viewer that opens them.

    Raises:
        GemslideError: the store is damaged. napari shows the message.
    """
    layers = slide_layers(Path(path))
    if "napari" in sys.modules:  # reading layers without a viewer must not load napari
        from pathology_app.desktop.window import furnish_current

        furnish_current()
    return layers
