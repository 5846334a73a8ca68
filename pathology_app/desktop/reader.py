"""The reader napari finds through napari.yaml."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pathology_app.desktop.layers import Layer, slide_layers
from pipeline.errors import GemslideError
from pipeline.store.reader import StoreReader

Reader = Callable[[str], list[Layer]]


def napari_get_reader(path: str | list[str]) -> Reader | None:
    """A reader for one slide store; None leaves the path to other plug-ins."""
    if not isinstance(path, str):
        return None
    try:
        StoreReader(path)
    except GemslideError:
        return None
    return lambda chosen: slide_layers(Path(chosen))
